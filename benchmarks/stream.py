"""From Kafka to Kafka through Redis, exactly once, with one worker process, by either client."""

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

#: Documents per second that the project wants to reach: of CPU time by transport, and by the clock.
TARGETS_CPU = {"kafka-python": 12_000, "confluent": 30_000}
TARGET_CLOCK = 5_000
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
    """Produce a stream for each transport, let one worker decide it, and take its clocks."""
    stream = documents.stream(options.documents, duplicates=options.duplicates)
    watched = {}
    with KafkaBroker() as broker, RedisServer() as server:
        for transport in options.transports:
            server.flush()
            progress(f"{transport}: producing {len(stream)} documents")
            watched[transport] = _decide(transport, stream, broker, server, options)
        with server.client() as client:
            redis_version = str(client.info("server")["redis_version"])
    tables = [
        _rate_table(watched, stream, options.partitions),
        _cost_table(watched),
        _stage_table(watched),
    ]
    versions = {"Kafka": kafka_version(), "Redis": redis_version}
    return Report("Stream, from Kafka to Kafka through Redis", tables, versions)


def _decide(
    transport: str,
    stream: Sequence[GeneratedDocument],
    broker: KafkaBroker,
    server: RedisServer,
    options: argparse.Namespace,
) -> Watched:
    topics = broker.create_topics(options.partitions)
    produce(broker, topics, stream)
    progress(f"{transport}: one worker")
    settings = {
        "transport": transport,
        "kafka_bootstrap": broker.bootstrap,
        "redis_url": server.url,
        "input_topic": topics.input,
        "output_topic": topics.output,
        "dead_letter_topic": topics.dead_letter,
        "group": topics.input,
        "batch_documents": options.batch,
        "expected_originals": options.originals,
    }
    return work(Order(settings, len(stream), child_running("kafka.Kafka")))


def _rate_table(
    watched: dict[str, Watched], stream: Sequence[GeneratedDocument], partitions: int
) -> Table:
    copies = sum(documents.truth_of(document).kind is not Kind.ORIGINAL for document in stream)
    rows: list[Row] = []
    for transport, seen in watched.items():
        first, last, statuses = seen.first, seen.last, seen.statuses
        count = last.documents - first.documents
        by_cpu = count / (last.worker - first.worker)
        by_clock = count / (last.clock - first.clock)
        target = TARGETS_CPU[transport]
        found = (sum(statuses.values()) - statuses[Status.ORIGINAL]) / copies
        published = sum(statuses.values())
        rows += [
            [
                transport,
                "of the worker's CPU time",
                by_cpu,
                target,
                by_cpu / target,
                published,
                found,
            ],
            [
                transport,
                "by the clock",
                by_clock,
                TARGET_CLOCK,
                by_clock / TARGET_CLOCK,
                None,
                None,
            ],
        ]
    note = (
        f"{len(stream):,} documents of 150 words, {copies / len(stream):.0%} copies, on "
        f"{partitions} partitions, produced before; one worker process with the settings as they "
        f"come but for `transport`, between the ends of its first and its last batch. Broker, "
        f"Redis and worker share the machine's {os.cpu_count()} cores. *Found*: as many documents "
        "were called duplicates as there are true ones, as a share. (Partitions are read a stretch "
        "at a time; a near copy that is read before its original becomes one, so a few copies of "
        "that original are no longer near enough. On one partition all are found.)"
    )
    header = columns(
        "transport",
        "documents per second",
        "measured|,.0f",
        "target|,d",
        "measured / target|.2f",
        "published|,d",
        "found|.2%",
    )
    return Table("One worker process", note, header, rows)


def _cost_table(watched: dict[str, Watched]) -> Table:
    rows: list[Row] = []
    for transport, seen in watched.items():
        first, last = seen.first, seen.last
        count, clock = last.documents - first.documents, last.clock - first.clock
        spent: dict[str, float | None] = {
            "worker": last.worker - first.worker,
            "Redis server": last.redis - first.redis,
            "Kafka broker": None,
        }
        if last.broker is not None and first.broker is not None:
            spent["Kafka broker"] = last.broker - first.broker
        rows += [
            [
                transport,
                name,
                None if cpu is None else cpu / count * 1e6,
                None if cpu is None else cpu / clock,
            ]
            for name, cpu in spent.items()
        ]
    note = (
        "CPU time, user and system, of each process over the same span: per document, and as "
        "cores kept busy. The broker is the tests' own, with settings for a quick start (512 MB, "
        "the first compiler only); in Docker its CPU time is not seen."
    )
    header = columns("transport", "process", "µs|,.1f", "cores|.2f")
    return Table("CPU time per document", note, header, rows)


def _stage_table(watched: dict[str, Watched]) -> Table:
    rows: list[Row] = []
    for transport, seen in watched.items():
        first, last = seen.first, seen.last
        count, clock = last.documents - first.documents, last.clock - first.clock
        spent = {stage: last.stages[stage] - first.stages[stage] for stage in STAGES}
        spent["the rest"] = clock - sum(spent.values())
        cpu = {stage: last.stages_cpu[stage] - first.stages_cpu[stage] for stage in STAGES}
        cpu["the rest"] = last.worker - first.worker - sum(cpu.values())
        rows += [
            [transport, stage, seconds / clock, seconds / count * 1e6, cpu[stage] / count * 1e6]
            for stage, seconds in spent.items()
        ]
    note = (
        "Time in each stage of a batch: by the clock as `stream_dedup_stage_seconds_total` tells "
        "it, waits for Redis (decide) and Kafka (poll, publish) included; and CPU time of the "
        "loop's thread. The rest of the CPU time is that of the client's own threads, above all."
    )
    header = columns("transport", "stage", "share|.0%", "µs per document|,.1f", "of CPU time|,.1f")
    return Table("Stages of the worker", note, header, rows)


def main() -> None:
    """Run from the command line."""
    parser = arguments(__doc__)
    parser.add_argument(
        "--transports", nargs="+", choices=list(TARGETS_CPU), default=list(TARGETS_CPU)
    )
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
