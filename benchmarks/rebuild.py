"""Rebuilding an index in Redis from the annotated topic; registering beside claiming."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple, cast

import msgspec
import numpy as np
from kafka import KafkaProducer  # type: ignore[import-untyped]

from benchmarks import documents
from benchmarks.redis_index import prepare
from benchmarks.report import Report, Row, Table, arguments, columns, progress, run
from benchmarks.stream import kafka_version
from stream_dedup.deduplicator import Deduplicator
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.generate import GeneratedDocument
from stream_dedup.index.base import IndexBatch
from stream_dedup.index.rebuilding import Past, RedisRebuilding
from stream_dedup.index.redis import RedisIndex
from stream_dedup.index.revisions import Answers
from stream_dedup.settings import Settings
from stream_dedup.stream.annotation import annotate
from stream_dedup.stream.handover import take_topic
from stream_dedup.stream.headers import HEADER_SOURCE
from stream_dedup.stream.rebuild import Rebuild
from stream_dedup.stream.told import Reading
from stream_dedup.types import Document
from tests.services.kafka import KafkaBroker, Topics
from tests.services.redis import RedisServer

#: Originals registered per second and process that the project wants to reach.
TARGET = 20_000


class Cost(NamedTuple):
    """What something took, in seconds: by the clock, and of CPU here and in Redis."""

    clock: float
    client: float
    server: float

    def row(self, name: str, count: int) -> Row:
        """Return rates and microseconds for each of so many originals."""
        each = [seconds / count * 1e6 for seconds in (self.client, self.server)]
        return [name, count / self.clock, 1e6 / max(each), *each]


def timed(server: RedisServer, work: Callable[[], object]) -> Cost:
    """Do something and take its clocks."""
    with server.client() as client:

        def cpu() -> float:
            info = client.info("cpu")
            return float(info["used_cpu_user"] + info["used_cpu_sys"])

        before, mine, clock = cpu(), time.process_time(), time.perf_counter()
        work()
        clock, mine = time.perf_counter() - clock, time.process_time() - mine
        return Cost(clock, mine, cpu() - before)


def measure_index(server: RedisServer, stream: Sequence[GeneratedDocument]) -> list[Row]:
    """Register originals, and claim the same ones in another index; fingerprints made before."""
    batches = prepare(Fingerprinter(Settings()), stream, "rebuild")
    rows = []
    for name in ("register", "claim"):
        server.flush()
        settings = Settings(redis_url=server.url, expected_originals=len(stream))
        with Deduplicator(settings, index=RedisIndex.connect(settings)) as deduplicator:
            work = _registering if name == "register" else _claiming
            progress(f"{name}: {len(stream)} originals")
            cost = timed(server, work(deduplicator, batches))
            rows.append(cost.row(f"{name}, fingerprints made before", len(stream)))
    return rows


def _registering(deduplicator: Deduplicator, batches: Sequence[IndexBatch]) -> Callable[[], None]:
    target = _target(deduplicator)
    target.start("a benchmark")

    def work() -> None:
        for batch in batches:
            none = np.zeros(len(batch), np.int64)
            target.register(batch, Past(none, none))

    return work


def _claiming(deduplicator: Deduplicator, batches: Sequence[IndexBatch]) -> Callable[[], None]:
    def work() -> None:
        for batch in batches:
            deduplicator.index.claim(batch)

    return work


def _target(deduplicator: Deduplicator) -> RedisRebuilding:
    index = cast("RedisIndex", deduplicator.index)
    return RedisRebuilding(index)


def measure_topic(server: RedisServer, stream: Sequence[GeneratedDocument], parts: int) -> Row:
    """Rebuild an index from a topic of originals."""
    server.flush()
    with KafkaBroker() as broker:
        topics = broker.create_topics(parts)
        settings = Settings(
            redis_url=server.url,
            expected_originals=len(stream),
            kafka_bootstrap=broker.bootstrap,
            input_topic=topics.input,
            output_topic=topics.output,
            dead_letter_topic=topics.dead_letter,
        )
        progress(f"annotating and producing {len(stream)} originals")
        produce(broker, topics, stream)
        with Deduplicator(settings, index=RedisIndex.connect(settings)) as deduplicator:
            target = _target(deduplicator)
            reading = Reading(settings, annotated=True)
            job = Rebuild(deduplicator, target, reading)
            progress("rebuilding")
            cost = timed(server, lambda: take_topic(settings, topics.output, target, job, reading))
            registered = job.summary().registered
    return cost.row("rebuild from the topic", registered)


def produce(broker: KafkaBroker, topics: Topics, stream: Sequence[GeneratedDocument]) -> None:
    """Put documents on the output topic, as a worker annotates originals."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap, compression_type="lz4", linger_ms=50, batch_size=200_000
    )
    with Deduplicator() as deduplicator:
        for number, one in enumerate(stream):
            document = Document(one.id, one.text)
            batch = deduplicator.prepare([document])
            answers = Answers([None])
            (decision,) = deduplicator.decisions([document], batch.prints.digests, answers)
            decision = msgspec.structs.replace(decision, decided_at=now)
            producer.send(
                topics.output,
                annotate(documents.encode(one), decision),
                one.id.encode(),
                [(HEADER_SOURCE, f"{topics.input}/0/{number}".encode())],
                number % topics.partitions,
            )
    producer.close()


def measure(options: argparse.Namespace) -> Report:
    """Measure the index alone, then everything from the topic on."""
    stream = documents.stream(options.originals, duplicates=0)
    with RedisServer() as server:
        rows = [*measure_index(server, stream), measure_topic(server, stream, options.partitions)]
        with server.client() as client:
            redis_version = str(client.info("server")["redis_version"])
    note = (
        f"{options.originals:,} originals of 150 words into an empty index laid out for as many. "
        "Originals per second by the clock, everything on one machine; per second of the busier "
        "of the two, this process and Redis, which is what the clock gives when each has a core of "
        "its own; CPU time of this process and of the Redis server for each. *From the topic* "
        f"includes Kafka ({options.partitions} partitions), decoding and fingerprints. Wanted: "
        f"{TARGET:,} a second."
    )
    header = columns("what", "originals/s|,.0f", "with a core each/s|,.0f")
    table = Table("Rates", note, [*header, *columns("client µs|.1f", "server µs|.1f")], rows)
    return Report("Rebuild", [table], {"Kafka": kafka_version(), "Redis": redis_version})


def main() -> None:
    """Run from the command line."""
    parser = arguments(__doc__)
    parser.add_argument("--originals", type=int, default=60_000, help="originals registered")
    parser.add_argument("--partitions", type=int, default=4, help="partitions of the topic")
    run(parser, measure)


if __name__ == "__main__":
    main()
