"""Worker programs under load, and what their processes take."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks.watched_worker import FOLDER_VARIABLE, objects_file
from tests.services.kafka import KafkaBroker, Topics
from tests.services.redis import RedisServer
from tests.services.worker import Worker

_STOP_SECONDS = 40.0
#: Offsets and transactions are compacted early, as they are on a broker that has run for long: one
#: that was killed reads all of them before it is of use.
_BROKER = {
    "message.max.bytes": "2000000",
    "offsets.topic.segment.bytes": "1048576",
    "transaction.state.log.segment.bytes": "1048576",
}


class Footprint(NamedTuple):
    """What a process takes.

    Attributes:
        memory: resident bytes.
        peak: most resident bytes of its life so far, as the kernel counted them.
        descriptors: open files and sockets.
        threads: of the process.
        objects: that Python's collector tracks; None where that is not told.
    """

    memory: int
    peak: int
    descriptors: int
    threads: int
    objects: int | None


class Stage(NamedTuple):
    """What programs run on.

    Attributes:
        broker: the broker.
        topics: three topics.
        server: with the index.
        folder: for logs and counts.
    """

    broker: KafkaBroker
    topics: Topics
    server: RedisServer
    folder: Path

    @classmethod
    def set_up(cls, stack: ExitStack, partitions: int, folder: Path | None = None) -> Stage:
        """Start everything, to end with the stack; a folder that is given stays."""
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        broker = stack.enter_context(KafkaBroker(extra=_BROKER))
        server = stack.enter_context(RedisServer())
        return cls(broker, broker.create_topics(partitions), server, folder)


class Program(Worker):
    """``stream-dedup worker`` as a program of its own, which is started when ``start`` is called.

    Args:
        name: of the program.
        stage: what it runs on.
        transport: kafka-python or confluent.
        flags: more settings.
    """

    def __init__(self, name: str, stage: Stage, transport: str, **flags: str) -> None:
        log = stage.folder / f"{name}.log"
        super().__init__(stage.broker, stage.topics, stage.server.url, log, transport)
        del self.flags["max-document-bytes"]
        self.flags |= {one.replace("_", "-"): value for one, value in flags.items()}
        self.name = name
        self._folder = stage.folder

    def command(self, **flags: str) -> list[str]:
        """Return how it is started."""
        given = super().command(**flags)[1:]
        return [sys.executable, "-m", "benchmarks.watched_worker", *given]

    def begin(self) -> None:
        """Start it, and do not wait until it is ready."""
        with self.log.open("ab") as stderr:
            self.process = subprocess.Popen(
                self.command(), stderr=stderr, env=os.environ | {FOLDER_VARIABLE: str(self._folder)}
            )

    def start(self, **_: str) -> None:
        """Start it, and wait until it is a member of the group."""
        self.begin()
        self.until(lambda: self.get("/readyz")[0] == 200)

    def end(self) -> None:
        """Ask it to end, if it runs, and wait for that."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(_STOP_SECONDS)
            self.process = None

    def footprints(self) -> Iterator[tuple[str, Footprint]]:
        """Yield what the supervisor and each worker process take, by name."""
        for role, process in self.processes():
            try:
                with process.oneshot():
                    yield f"{self.name}, {role}", self._footprint(process)
            except (psutil.Error, OSError):  # it has just ended
                continue

    def processes(self) -> Iterator[tuple[str, psutil.Process]]:
        """Yield the supervisor and each worker process, by what they are."""
        if self.process is None:
            return
        supervisor = psutil.Process(self.process.pid)
        yield "supervisor", supervisor
        workers = [child for child in supervisor.children() if _is_worker(child)]
        for number, child in enumerate(workers):
            yield f"worker {number}", child

    def total(self, metric: str) -> float:
        """Return the sum of all samples of a metric."""
        return sum(
            value
            for name, value in self.metrics().items()
            if name.partition("{")[0] == f"stream_dedup_{metric}"
        )

    def _footprint(self, process: psutil.Process) -> Footprint:
        counted = objects_file(self._folder, process.pid)
        told = counted.read_text() if counted.is_file() else ""
        return Footprint(
            memory=process.memory_info().rss,
            peak=peak_of(process.pid),
            descriptors=process.num_fds(),
            threads=process.num_threads(),
            objects=int(told) if told else None,
        )


def add_transports(parser: argparse.ArgumentParser) -> None:
    """Let a benchmark be run with one transport only."""
    both = ["kafka-python", "confluent"]
    parser.add_argument("--transports", nargs="+", choices=both, default=both)


def peak_of(pid: int) -> int:
    """Return the most resident bytes that a process ever had (``VmHWM``)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "VmHWM":
            return int(value.split()[0]) * 1024
    return 0


def _is_worker(process: psutil.Process) -> bool:
    try:
        return "--multiprocessing-fork" in process.cmdline()
    except psutil.Error:
        return False
