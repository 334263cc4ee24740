"""Pictures of the dashboards: workers under a load with phases, and each panel's query drawn.

Grafana itself has no part in it: the queries of ops/grafana/dashboards are asked of a Prometheus
that scraped the workers every second.

Run: python -m benchmarks.dashboards --plot docs/images
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path

from kafka import KafkaProducer  # type: ignore[import-untyped]

from benchmarks.dashboard_answers import Answers, ask
from benchmarks.dashboard_drawing import draw
from benchmarks.report import progress
from tests.services.dashboards import NAMES, read
from tests.services.kafka import KafkaBroker, Topics
from tests.services.observed import beside, messages, shadow_file
from tests.services.prometheus import Prometheus
from tests.services.redis import RedisServer
from tests.services.worker import Worker

PARTITIONS = 4
#: Time between two portions of the steady load.
_PAUSE = 0.5
#: Seconds' worth of load that come at once.
_BURST = 60
#: Windows go by and sweeps have something to do, within minutes.
_SETTINGS = {
    "window": "30s",
    "lateness": "5s",
    "longest_attempt": "10s",
    "sweep_interval": "10s",
    "sample_interval": "2s",
    "expected_originals": "15000",
    "batch_documents": "200",
}


class Load:
    """Sends messages to workers, and remembers when each phase began (Unix time)."""

    def __init__(self, workers: list[Worker], rate: int) -> None:
        self._workers = workers
        self._rate = rate
        self._messages = messages(500_000)
        bootstrap = workers[0].kafka.bootstrap
        self._producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=20)
        self._sent = 0
        self.begins: list[float] = []

    def run(self, seconds: float) -> None:
        """Go through the phases: steady, a burst, one worker stopped and started again."""
        second = self._workers[1]
        with ThreadPoolExecutor() as aside:
            self._phase("steady", seconds)
            self._phase("a burst", seconds, at_once=_BURST * self._rate)
            stopped = aside.submit(second.stop)
            self._phase("one worker stops", seconds)
            stopped.result()
            started = aside.submit(second.start, **_SETTINGS)
            self._phase("it starts again", seconds)
            started.result()
        self._producer.close()

    def _phase(self, text: str, seconds: float, at_once: int = 0) -> None:
        progress(text)
        self.begins.append(time.time())
        self._send(at_once)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._send(round(self._rate * _PAUSE))
            time.sleep(_PAUSE)

    def _send(self, count: int) -> None:
        topic = self._workers[0].topics.input
        for message in islice(self._messages, count):
            partition = self._sent % PARTITIONS
            self._producer.send(topic, message.value, message.key, partition=partition)
            self._sent += 1
        self._producer.flush()


@contextmanager
def observed() -> Iterator[tuple[list[Worker], Prometheus]]:
    """Start two workers with a shadow, and a Prometheus beside them."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        broker = stack.enter_context(KafkaBroker())
        server = stack.enter_context(RedisServer(extra=("--maxmemory", "64mb")))
        names = ("documents", "documents.annotated", "documents.dead-letter")
        broker.create(names, PARTITIONS)
        topics = Topics(*names, PARTITIONS)
        workers = [
            Worker(broker, topics, server.url, folder / f"{number}.log", "kafka-python")
            for number in range(2)
        ]
        for worker in workers:
            worker.flags["shadow"] = shadow_file(folder)
            worker.start(**_SETTINGS)
            stack.callback(worker.stop)
        yield workers, stack.enter_context(beside(workers))


def watch(seconds: float, rate: int) -> tuple[dict[str, Answers], list[float]]:
    """Load the workers; return what each dashboard's queries say, and when phases began."""
    with observed() as (workers, prometheus):
        began = time.time()
        load = Load(workers, rate)
        load.run(seconds)
        ended = time.time()
        return {name: ask(prometheus, name, began, ended) for name in NAMES}, load.begins[1:]


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", type=Path, required=True, help="folder for the pictures")
    parser.add_argument("--seconds", type=float, default=35, help="of each of four phases")
    parser.add_argument("--rate", type=int, default=120, help="messages a second")
    options = parser.parse_args()
    found, marks = watch(options.seconds, options.rate)
    for name, answers in found.items():
        path = options.plot / f"dashboard-{name}.png"
        draw(read(name)["title"], answers, marks, path)
        progress(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
