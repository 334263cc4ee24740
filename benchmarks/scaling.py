"""From Kafka to Kafka with more worker processes and more Redis nodes: what saturates first."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import redis
from kafka import KafkaConsumer, TopicPartition  # type: ignore[import-untyped]

from benchmarks import documents
from benchmarks.processes import child_running, cpu_of
from benchmarks.report import Report, Row, Table, arguments, columns, progress, run
from benchmarks.stream import produce
from stream_dedup.generate import GeneratedDocument
from tests.services.kafka import KafkaBroker, Topics
from tests.services.redis import RedisCluster, RedisServer

#: Seconds between two looks at the clocks.
LOOK_SECONDS = 0.1
#: Seconds after which a run that has not come to the end is given up.
PATIENCE = 600.0


class Moment(NamedTuple):
    """All clocks at one time, in seconds.

    Attributes:
        clock: time.
        published: messages on the output topic.
        workers: CPU time of all worker processes.
        nodes: CPU time of each Redis node.
        broker: CPU time of the broker.
    """

    clock: float
    published: int
    workers: float
    nodes: list[float]
    broker: float


class Watch:
    """Looks at the clocks of one run."""

    def __init__(self, broker: KafkaBroker, topics: Topics, nodes: Sequence[RedisServer]) -> None:
        self._consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap)
        self._partitions = [TopicPartition(topics.output, n) for n in range(topics.partitions)]
        self._nodes = [redis.Redis.from_url(node.url) for node in nodes]
        self._broker = child_running("kafka.Kafka")

    def until(self, count: int, supervisor: int) -> tuple[Moment, Moment]:
        """Return the moments after the first tenth of the messages and after the last."""
        first: Moment | None = None
        deadline = time.monotonic() + PATIENCE
        while True:
            time.sleep(LOOK_SECONDS)
            moment = self._moment(supervisor)
            if first is None and moment.published >= count // 10:
                first = moment
            if first is not None and moment.published >= count:
                return first, moment
            if moment.clock > deadline:
                msg = f"only {moment.published} of {count} documents came out"
                raise TimeoutError(msg)

    def close(self) -> None:
        """Close the clients."""
        self._consumer.close()
        for node in self._nodes:
            node.close()

    def _moment(self, supervisor: int) -> Moment:
        # Markers of transactions count as messages here: one for a batch of a thousand.
        published = sum(self._consumer.end_offsets(self._partitions).values())
        nodes = [node.info("cpu") for node in self._nodes]
        return Moment(
            time.monotonic(),
            published,
            sum(cpu_of(pid) for pid in _children(supervisor)),
            [node["used_cpu_user"] + node["used_cpu_sys"] for node in nodes],
            0.0 if self._broker is None else cpu_of(self._broker),
        )


@contextmanager
def opened(shards: int) -> Iterator[Sequence[RedisServer]]:
    """Start one Redis, or a Cluster of so many masters."""
    if shards == 1:
        with RedisServer() as server:
            yield [server]
    else:
        with RedisCluster(shards) as cluster:
            yield cluster.masters


def measure_one(
    stream: Sequence[GeneratedDocument],
    options: argparse.Namespace,
    processes: int,
    shards: int,
) -> Row:
    """Let some processes work through a stream that has been produced before."""
    progress(f"{processes} processes, {shards} Redis nodes")
    with KafkaBroker() as broker, opened(shards) as nodes:
        topics = broker.create_topics(options.partitions)
        produce(broker, topics, stream)
        watch = Watch(broker, topics, nodes)
        flags = {
            "kafka-bootstrap": broker.bootstrap,
            "redis-url": nodes[0].url,
            "transport": options.transport,
            "partitions": str(1 if shards == 1 else options.tags),
            "processes": str(processes),
            "input-topic": topics.input,
            "output-topic": topics.output,
            "dead-letter-topic": topics.dead_letter,
            "group": topics.input,
            "http-port": "0",
        }
        program = [sys.executable, "-c", "from stream_dedup.cli.main import main; main()", "worker"]
        given = [part for name, value in flags.items() for part in (f"--{name}", value)]
        with subprocess.Popen([*program, *given]) as supervisor:
            try:
                first, last = watch.until(len(stream), supervisor.pid)
            finally:
                supervisor.terminate()
        watch.close()
    return _row(processes, shards, first, last)


def measure(options: argparse.Namespace) -> Report:
    """Measure each number of processes on each number of nodes."""
    stream = documents.stream(options.documents, duplicates=0.3)
    rows = [
        measure_one(stream, options, processes, shards)
        for shards in options.shards
        for processes in options.processes
    ]
    return Report("Worker processes and Redis nodes", [_table(rows, options)])


def _row(processes: int, shards: int, first: Moment, last: Moment) -> Row:
    count, clock = last.published - first.published, last.clock - first.clock
    workers = last.workers - first.workers
    nodes = [b - a for a, b in zip(first.nodes, last.nodes, strict=True)]
    broker = last.broker - first.broker
    return [
        f"{processes} on {shards}",
        count / clock,
        workers / count * 1e6,
        sum(nodes) / count * 1e6,
        broker / count * 1e6,
        workers / clock,
        max(nodes) / clock,
        broker / clock,
    ]


def _table(rows: list[Row], options: argparse.Namespace) -> Table:
    note = (
        f"{options.documents:,} documents with 30 % copies on {options.partitions} partitions, "
        f"produced before; so many worker processes ({options.transport}) on so many Redis nodes "
        f"(one alone; more are the masters of a Cluster, with {options.tags} hash tags), settings "
        "otherwise as they come. From a tenth of the messages to the last, by the clock; CPU time "
        "per document of all workers, all nodes and the broker; and the cores that the workers, "
        f"the busiest node and the broker keep busy, of the {os.cpu_count()} that they share with "
        "the benchmark. A node has one thread, so it is full at 1.00."
    )
    header = columns("processes on nodes", "documents/s|,.0f", "workers µs|.0f", "Redis µs|.0f")
    more = columns("broker µs|.0f", "workers|.2f", "busiest node|.2f", "broker|.2f")
    return Table("What saturates first", note, [*header, *more], rows)


def _children(pid: int) -> list[int]:
    """Return all processes under one."""
    found = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in file.read_text().split():
            found += [int(child), *_children(int(child))]
    return found


def main() -> None:
    """Run from the command line."""
    parser = arguments(__doc__)
    parser.add_argument("--processes", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--shards", nargs="+", type=int, default=[1, 3])
    parser.add_argument("--documents", type=int, default=40_000, help="messages")
    parser.add_argument("--partitions", type=int, default=4, help="of each topic")
    parser.add_argument("--tags", type=int, default=64, help="hash tags on a Cluster")
    parser.add_argument("--transport", choices=["kafka-python", "confluent"], default="confluent")
    run(parser, measure)


if __name__ == "__main__":
    main()
