"""A burst of ten times what a worker can take: does it keep its promises?

For each transport on a broker and a Redis of its own: how much one worker program takes is measured
on a full topic; then it gets half as much, then ten times as much for some seconds, and then time
to work off what has piled up. After that come documents of one template, which are all originals
and share a good part of their table keys; then some of the largest size allowed, half of them
such that compress a hundredfold. Promised are: peak memory of each process within a limit; no
rebalance; the backlog drained at 90 % of what the worker could take before; nothing left over.
Memory is the peak of resident bytes that the kernel keeps for each process (``VmHWM``), so no
peak is missed between two looks. The program fails when a promise is not kept.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import numpy as np

from benchmarks import adversarial, documents
from benchmarks.processes import cpu_of
from benchmarks.programs import Program, Stage, add_transports
from benchmarks.report import Report, Row, Table, arguments, columns, progress, run
from benchmarks.traffic import Message, Sender, plain
from stream_dedup.generate import StreamShape, generate

#: Times the capacity that the burst is.
TIMES = 10
#: Part of the capacity at which the backlog has to be drained.
DRAINED = 0.9
#: Part of a full topic that is not counted: the worker starts then.
_START = 0.1
#: Characters of the largest documents, below 900,000 bytes of JSON, and of what some repeat.
_LARGEST, _REPEATED = 880_000, 4_000
_MIB = 1024 * 1024
#: Seconds between two looks, and without progress after which a run is given up.
_LOOK_SECONDS, _PATIENCE = 0.5, 120.0


class Moment(NamedTuple):
    """A look at a worker: the clock, seconds; answered records; CPU seconds of its processes."""

    clock: float
    answered: float
    cpu: float


class Drained(NamedTuple):
    """Rates at which a backlog was worked off: documents per second by the clock and of CPU."""

    by_clock: float
    by_cpu: float


class Found(NamedTuple):
    """What became of one transport.

    Attributes:
        transport: which.
        capacity: rates on a full topic.
        offered: documents per second of the burst.
        backlog: records that waited at its end.
        drain: rates at which these were worked off.
        small: peak bytes of a worker process and of the supervisor after the burst.
        templates: the same after documents of a template.
        large: the same after the largest documents.
        rebalances: after the worker had joined.
        left: records without an answer.
    """

    transport: str
    capacity: Drained
    offered: float
    backlog: int
    drain: Drained
    small: tuple[int, int]
    templates: tuple[int, int]
    large: tuple[int, int]
    rebalances: int
    left: int


class Overload:
    """One transport, from the start of its worker to the end.

    Args:
        options: of the command line.
        transport: which.
        stack: ends what is started.
    """

    def __init__(self, options: argparse.Namespace, transport: str, stack: ExitStack) -> None:
        self._options = options
        self._transport = transport
        stage = Stage.set_up(stack, options.partitions)
        self._sender = Sender(stage.broker, stage.topics)
        self._program = Program(transport, stage, transport)
        stack.callback(self._program.end)
        shape = StreamShape(documents=10**12, edits=documents.EDITS, seed=7)
        self._stream = plain(generate(shape), "d")

    def run(self) -> Found:
        """Run to the end."""
        progress(f"{self._transport}: capacity")
        self._program.start()
        self._sender.send_all(self._take(2_000))
        joined = self._until_drained()[-1]
        rebalances = self._program.total("rebalances_total")
        self._sender.send_all(self._take(self._options.backlog))
        capacity = _rate(self._until_drained(), joined.answered + _START * self._options.backlog)
        offered, at_end = self._burst(capacity.by_clock)
        backlog = int(self._sender.sent - at_end.answered)
        progress(f"{self._transport}: {offered:,.0f} a second; {backlog:,} wait")
        drain = _rate([at_end, *self._until_drained()], at_end.answered)
        small = self._peaks()
        progress(f"{self._transport}: {self._options.templates:,} documents of a template")
        self._sender.send_all(_templates(self._options.templates))
        self._until_drained()
        templates = self._peaks()
        progress(f"{self._transport}: {self._options.large} of the largest documents")
        self._sender.send_all(_largest(self._options.large))
        last = self._until_drained()[-1]
        return Found(
            self._transport,
            capacity,
            offered,
            backlog,
            drain,
            small,
            templates,
            self._peaks(),
            int(self._program.total("rebalances_total") - rebalances),
            int(self._sender.sent - last.answered),
        )

    def _take(self, count: int) -> list[Message]:
        return [next(self._stream) for _ in range(count)]

    def _burst(self, capacity: float) -> tuple[float, Moment]:
        """Produce half of the capacity, then much more; return how much that was, and its end."""
        options = self._options
        half = self._take(int(capacity / 2 * options.half) + 1)
        burst = self._take(int(TIMES * capacity * options.seconds) + 1)
        progress(f"{self._transport}: {capacity / 2:,.0f} a second for {options.half:g} s")
        self._sender.send(iter(half), capacity / 2)
        progress(f"{self._transport}: {TIMES * capacity:,.0f} a second for {options.seconds:g} s")
        began = time.monotonic()
        self._sender.send(iter(burst), TIMES * capacity)
        return len(burst) / (time.monotonic() - began), self._look()

    def _until_drained(self) -> list[Moment]:
        """Look until all is answered, or nothing happens any more."""
        moments = [self._look()]
        changed = moments[0]
        while moments[-1].answered < self._sender.sent:
            time.sleep(_LOOK_SECONDS)
            moments.append(self._look())
            if moments[-1].answered > changed.answered:
                changed = moments[-1]
            if moments[-1].clock > changed.clock + _PATIENCE:
                break
        return moments

    def _look(self) -> Moment:
        cpu = sum(cpu_of(one.pid) for name, one in self._program.processes() if "worker" in name)
        metrics = self._program.metrics()
        answered = sum(
            value
            for name, value in metrics.items()
            if name.startswith(("stream_dedup_documents_total", "stream_dedup_dead_letters_total"))
        )
        return Moment(time.monotonic(), answered, cpu)

    def _peaks(self) -> tuple[int, int]:
        """Return the peak memory of the largest worker process and of the supervisor."""
        peaks = {name: taken.peak for name, taken in self._program.footprints()}
        supervisor = peaks.pop(f"{self._transport}, supervisor")
        return max(peaks.values()), supervisor


def _rate(moments: list[Moment], first: float) -> Drained:
    """Return the rates from the first moment with so many answers to the first with all."""
    begin = next(one for one in moments if one.answered >= first)
    end = next(one for one in moments if one.answered >= moments[-1].answered)
    count = end.answered - begin.answered
    return Drained(
        count / max(end.clock - begin.clock, 1e-9), count / max(end.cpu - begin.cpu, 1e-9)
    )


def _templates(count: int) -> Iterator[Message]:
    """Yield documents of one template."""
    words = adversarial.template(np.random.default_rng(5), count)
    for number, text in enumerate(adversarial.spell(words)):
        value = json.dumps({"id": f"template-{number}", "text": text})
        yield Message(b"t%d" % number, value.encode())


def _largest(count: int) -> Iterator[Message]:
    """Yield documents of the largest size; every second one compresses a hundredfold."""
    texts = (one.text for one in generate(StreamShape(documents=10**12, seed=8)))
    whole = ""
    while len(whole) < 2 * _LARGEST:
        whole += next(texts) + " "
    for number in range(count):
        at = number * _LARGEST // count
        if number % 2:
            text = (whole[at : at + _REPEATED] * (_LARGEST // _REPEATED))[:_LARGEST]
        else:
            text = whole[at : at + _LARGEST]
        yield Message(b"%d" % number, json.dumps({"id": f"large-{number}", "text": text}).encode())


def broken(found: Found, options: argparse.Namespace) -> Iterator[str]:
    """Yield each promise that was not kept."""
    name = found.transport
    limit = options.limit * _MIB
    if max(*found.small, *found.templates, *found.large) > limit:
        yield f"{name}: a process took more than {options.limit:g} MiB"
    if found.rebalances:
        yield f"{name}: {found.rebalances} rebalances"
    if found.left:
        yield f"{name}: {found.left} records without an answer"
    if _ratio(found, options) < DRAINED:
        yield f"{name}: drained at {_ratio(found, options):.0%} of the capacity"


def _ratio(found: Found, options: argparse.Namespace) -> float:
    if options.by_cpu:
        return found.drain.by_cpu / found.capacity.by_cpu
    return found.drain.by_clock / found.capacity.by_clock


def measure(options: argparse.Namespace) -> Report:
    """Run it and report; end the program when a promise is broken."""
    rows: list[Row] = []
    wrong: list[str] = []
    for transport in options.transports:
        with ExitStack() as stack:
            found = Overload(options, transport, stack).run()
        rows.append(_row(found))
        wrong += broken(found, options)
    report = Report("Overload", [_table(rows, options)])
    if wrong:
        print(report.markdown())
        sys.exit("; ".join(wrong))
    return report


def _row(found: Found) -> Row:
    memory = (*found.small, *found.templates, *found.large)
    return [
        found.transport,
        found.capacity.by_clock,
        found.offered / found.capacity.by_clock,
        found.backlog,
        found.drain.by_clock / found.capacity.by_clock,
        found.drain.by_cpu / found.capacity.by_cpu,
        *(one / _MIB for one in memory),
        found.rebalances,
        found.left,
    ]


def _table(rows: list[Row], options: argparse.Namespace) -> Table:
    judged = "of CPU time" if options.by_cpu else "by the clock"
    note = (
        f"One worker process. Capacity: documents per second on a topic of {options.backlog:,}. "
        f"Burst: for {options.seconds:g} s {TIMES} times that, as far as the machine could (times "
        f"the capacity); what waited at its end, and the rate at which that was drained, as a part "
        f"of the capacity, by the clock and for each second of CPU time ({judged} {DRAINED:.0%} "
        f"are promised). Peak memory, MiB, of worker and supervisor, after the burst, after "
        f"{options.templates:,} documents of a template, and after {options.large} documents of "
        f"{_LARGEST:,} characters at once (limit {options.limit:g}). "
        "Rebalances since the worker joined; records without an answer."
    )
    header = columns("transport", "capacity|,.0f", "burst|.1f", "backlog|,d", "drain, clock|.0%")
    header += columns("drain, CPU|.0%", "worker|,.0f", "supervisor|,.0f")
    header += columns("templates: worker|,.0f", "supervisor|,.0f")
    header += columns("large: worker|,.0f", "supervisor|,.0f", "rebalances|,d", "left|,d")
    return Table("A burst", note, header, rows)


def main() -> None:
    """Run from the command line."""
    parser = arguments(__doc__)
    parser.add_argument("--backlog", type=int, default=20_000, help="documents of a full topic")
    parser.add_argument("--half", type=float, default=10, help="seconds of half the capacity")
    parser.add_argument("--seconds", type=float, default=5, help="of the burst")
    parser.add_argument("--templates", type=int, default=5_000, help="documents of a template")
    parser.add_argument("--large", type=int, default=200, help="documents of the largest size")
    parser.add_argument("--limit", type=float, default=512, help="MiB that a process may take")
    parser.add_argument("--partitions", type=int, default=4, help="of each topic")
    parser.add_argument(
        "--by-cpu",
        action="store_true",
        help="judge rates by the worker's CPU time, on a machine that others use too",
    )
    add_transports(parser)
    run(parser, measure)


if __name__ == "__main__":
    main()
