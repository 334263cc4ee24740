"""One worker process as the supervisor would start it, watched from its first to its last batch.

Reads an ``Order`` from standard input and writes a ``Watched`` to standard output. The worker is
the real one; only ``Loop.step`` and ``Loop._spent`` are wrapped, to look at the clocks after each
batch and each stage.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from typing import Any
from unittest import mock

import msgspec
import redis
from stream_dedup_workers import annotate
from stream_dedup_workers.pulse import Pulse

from benchmarks.processes import cpu_of
from stream_dedup import metrics
from stream_dedup.settings import Settings
from stream_dedup.stream.loop import Loop


class Order(msgspec.Struct, frozen=True):
    """What to do.

    Attributes:
        settings: of the worker.
        documents: messages after which it ends.
        broker: process of the broker, if it runs on this machine.
    """

    settings: dict[str, Any]
    documents: int
    broker: int | None = None


class Moment(msgspec.Struct, frozen=True):
    """All clocks after a batch, in seconds.

    Attributes:
        documents: published so far.
        clock: time.
        worker: CPU time of this process, all threads.
        redis: CPU time of the Redis server.
        broker: CPU time of the broker.
        stages: time in each stage, by the worker's own metrics.
        stages_cpu: CPU time of the loop's thread in each stage.
    """

    documents: int
    clock: float
    worker: float
    redis: float
    broker: float | None
    stages: dict[str, float]
    stages_cpu: dict[str, float]


class Watched(msgspec.Struct, frozen=True):
    """The moments after the first and after the last batch, and all decisions by status."""

    first: Moment
    last: Moment
    statuses: dict[str, int]


class Watch:
    """Counts what the loop publishes and ends it when all is done."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._redis: Any = redis.Redis.from_url(order.settings["redis_url"])
        self._documents = 0
        self._thread = time.thread_time()
        self._stages_cpu = dict.fromkeys(metrics.STAGES, 0.0)
        self.moments: list[Moment] = []

    def saw(self, published: int) -> None:
        """Note a turn of the loop."""
        self._documents += published
        if not published:
            return
        if not self.moments:
            self.moments.append(self._moment())
        if self._documents >= self._order.documents:
            self.moments.append(self._moment())
            os.kill(os.getpid(), signal.SIGTERM)

    def spent(self, stage: str) -> None:
        """Note the end of a stage; each begins where the last one ended."""
        now = time.thread_time()
        self._stages_cpu[stage] += now - self._thread
        self._thread = now

    def _moment(self) -> Moment:
        worker, clock = time.process_time(), time.monotonic()
        info = self._redis.info("cpu")
        return Moment(
            documents=self._documents,
            clock=clock,
            worker=worker,
            redis=info["used_cpu_user"] + info["used_cpu_sys"],
            broker=None if self._order.broker is None else cpu_of(self._order.broker),
            stages=_values(metrics.stage_seconds_total, "stage"),
            stages_cpu=dict(self._stages_cpu),
        )


def _values(counter: Any, label: str) -> dict[str, float]:
    """Return a counter's values by label."""
    (family,) = counter.collect()
    return {
        sample.labels[label]: sample.value
        for sample in family.samples
        if sample.name.endswith("_total")
    }


def main() -> None:
    """Run the worker until all is published."""
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    watch, step, spent = Watch(order), Loop.step, Loop._spent

    def watched(loop: Loop) -> int:
        published = step(loop)
        watch.saw(published)
        return published

    def also_cpu(loop: Loop, stage: str, since: float) -> float:
        watch.spent(stage)
        return spent(loop, stage, since)

    pulse = Pulse(multiprocessing.get_context("spawn"))
    with (
        mock.patch.object(Loop, "step", watched),
        mock.patch.object(Loop, "_spent", also_cpu),
    ):
        annotate.run(Settings(**order.settings), "benchmark", 0, pulse)
    first, last = watch.moments
    statuses = _values(metrics.documents_total, "status")
    result = Watched(first, last, {name: int(count) for name, count in statuses.items()})
    sys.stdout.buffer.write(msgspec.json.encode(result))


if __name__ == "__main__":
    main()
