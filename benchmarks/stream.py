"""From Kafka to Kafka through Redis, exactly once, with one worker process."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence

import msgspec
from kafka import KafkaProducer  # type: ignore[import-untyped]

from benchmarks import documents
from benchmarks.processes import child_running
from benchmarks.report import Report, Row, Table, arguments, columns, progress, run
from benchmarks.worker_process import Order, Watched
from stream_dedup.generate import GeneratedDocument, Kind
from stream_dedup.metrics import STAGES
from stream_dedup.types import Status
from tests.services.container import docker_answers
from tests.services.kafka import IMAGE, LIBRARIES, KafkaBroker, Topics
from tests.services.redis import RedisServer

#: Documents per second that the project wants to reach.
TARGET_CPU, TARGET_CLOCK = 10_000, 5_000
#: Seconds after which a worker that has not come to the end is given up.
PATIENCE = 300


def produce(broker: KafkaBroker, topics: Topics, stream: Sequence[GeneratedDocument]) -> None:
    """Put documents on the input topic, over all partitions in turn."""
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap, compression_type="lz4", linger_ms=50, batch_size=200_000
    )
    for number, document in enumerate(stream):
        producer.send(
            topics.input,
            documents.encode(document),
            document.id.encode(),
            partition=number % topics.partitions,
        )
    producer.close()


def work(order: Order) -> Watched:
    """Run one worker process until it has published everything."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.worker_process"],
            check=True,
            input=msgspec.json.encode(order),
            stdout=subprocess.PIPE,
            timeout=PATIENCE,
            # As the supervisor does, so that counting costs what it costs in production.
            env=os.environ | {"PROMETHEUS_MULTIPROC_DIR": folder},
        )
    return msgspec.json.decode(done.stdout, type=Watched)


def kafka_version() -> str:
    """Return the version of the broker that the services start."""
    if docker_answers():
        return IMAGE.rpartition(":")[2]
    (jar,) = LIBRARIES.glob("kafka_2.*.jar")
    return jar.stem.rpartition("-")[2]


def measure(options: argparse.Namespace) -> Report:
    """Produce a stream, let one worker decide it, and take its clocks."""
    stream = documents.stream(options.documents, duplicates=options.duplicates)
    with KafkaBroker() as broker, RedisServer() as server:
        topics = broker.create_topics(options.partitions)
        progress(f"producing {len(stream)} documents")
        produce(broker, topics, stream)
        progress("one worker")
        settings = {
            "kafka_bootstrap": broker.bootstrap,
            "redis_url": server.url,
            "input_topic": topics.input,
            "output_topic": topics.output,
            "dead_letter_topic": topics.dead_letter,
            "group": topics.input,
            "batch_documents": options.batch,
            "expected_originals": options.originals,
        }
        watched = work(Order(settings, len(stream), child_running("kafka.Kafka")))
        with server.client() as client:
            redis_version = str(client.info("server")["redis_version"])
    tables = [
        _rate_table(watched, stream, options.partitions),
        _cost_table(watched),
        _stage_table(watched),
    ]
    versions = {"Kafka": kafka_version(), "Redis": redis_version}
    return Report("Stream, from Kafka to Kafka through Redis", tables, versions)


def _rate_table(watched: Watched, stream: Sequence[GeneratedDocument], partitions: int) -> Table:
    first, last = watched.first, watched.last
    count = last.documents - first.documents
    by_cpu = count / (last.worker - first.worker)
    by_clock = count / (last.clock - first.clock)
    copies = sum(documents.truth_of(document).kind is not Kind.ORIGINAL for document in stream)
    found = sum(watched.statuses.values()) - watched.statuses[Status.ORIGINAL]
    rows: list[Row] = [
        ["per second of the worker's CPU time", by_cpu, TARGET_CPU, by_cpu / TARGET_CPU],
        ["per second by the clock", by_clock, TARGET_CLOCK, by_clock / TARGET_CLOCK],
    ]
    note = (
        f"{len(stream):,} documents of 150 words, {copies / len(stream):.0%} copies, on "
        f"{partitions} partitions, produced before; one worker process with the settings as they "
        f"come, between the ends of its first and its last batch. Broker, Redis and worker share "
        f"the machine's {os.cpu_count()} cores. The worker published "
        f"{sum(watched.statuses.values()):,} annotations, and called {found / copies:.2%} as many "
        "documents duplicates as there are true ones. (Partitions are read a stretch at a time; a "
        "near copy that is read before its original becomes one, so a few copies of that original "
        "are no longer near enough. On one partition all are found.)"
    )
    header = columns("documents", "measured|,.0f", "target|,d", "measured / target|.2f")
    return Table("One worker process", note, header, rows)


def _cost_table(watched: Watched) -> Table:
    first, last = watched.first, watched.last
    count = last.documents - first.documents
    clock = last.clock - first.clock
    spent: dict[str, float | None] = {
        "worker": last.worker - first.worker,
        "Redis server": last.redis - first.redis,
        "Kafka broker": None,
    }
    if last.broker is not None and first.broker is not None:
        spent["Kafka broker"] = last.broker - first.broker
    rows: list[Row] = [
        [name, None if cpu is None else cpu / count * 1e6, None if cpu is None else cpu / clock]
        for name, cpu in spent.items()
    ]
    note = (
        "CPU time, user and system, of each process over the same span: per document, and as "
        "cores kept busy. The broker is the tests' own, with settings for a quick start (512 MB, "
        "the first compiler only); in Docker its CPU time is not seen."
    )
    return Table("CPU time per document", note, columns("process", "µs|,.1f", "cores|.2f"), rows)


def _stage_table(watched: Watched) -> Table:
    first, last = watched.first, watched.last
    count = last.documents - first.documents
    clock = last.clock - first.clock
    spent = {stage: last.stages[stage] - first.stages[stage] for stage in STAGES}
    spent["the rest"] = clock - sum(spent.values())
    rows: list[Row] = [
        [stage, seconds / clock, seconds / count * 1e6] for stage, seconds in spent.items()
    ]
    note = (
        "Time by the clock in each stage of a batch, as `stream_dedup_stage_seconds_total` tells "
        "it, waits for Redis (decide) and Kafka (poll, publish) included."
    )
    return Table(
        "Stages of the worker", note, columns("stage", "share|.0%", "µs per document|,.1f"), rows
    )


def main() -> None:
    """Run from the command line."""
    parser = arguments(__doc__)
    parser.add_argument("--documents", type=int, default=60_000, help="messages")
    parser.add_argument("--duplicates", type=float, default=0.3, help="share of copies")
    parser.add_argument("--partitions", type=int, default=4, help="partitions of each topic")
    parser.add_argument("--batch", type=int, default=1000, help="batch_documents of the worker")
    parser.add_argument(
        "--originals", type=int, default=1_000_000, help="expected_originals of the worker"
    )
    run(parser, measure)


if __name__ == "__main__":
    main()
