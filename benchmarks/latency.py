"""How long from producing a document to reading it annotated, while a worker is half busy."""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec
import numpy as np
from kafka import KafkaConsumer, KafkaProducer  # type: ignore[import-untyped]

from benchmarks import documents
from benchmarks.report import Report, Row, Table, arguments, columns, progress, run
from stream_dedup.generate import GeneratedDocument
from tests.services.kafka import KafkaBroker, Topics
from tests.services.redis import RedisServer

PERCENTILES = (50, 99, 99.9)
#: Documents are produced this often, as many as are due by then.
TICK_SECONDS = 0.005
#: Seconds after which documents that have not come out are given up.
PATIENCE = 120.0


class Stream:
    """The topics of one worker: what is produced is taken out again, each with its clock."""

    def __init__(self, broker: KafkaBroker, topics: Topics) -> None:
        self._topics = topics
        self._producer = KafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=1)
        self._consumer = KafkaConsumer(
            topics.output,
            bootstrap_servers=broker.bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            group_id=None,
        )
        self.sent: dict[bytes, float] = {}
        self.arrived: dict[bytes, float] = {}

    def produce(self, stream: Sequence[GeneratedDocument], rate: float | None = None) -> None:
        """Produce documents, so many a second if a rate is given."""
        encoded = [(document.id.encode(), documents.encode(document)) for document in stream]
        began = time.monotonic()
        done = 0
        while done < len(encoded):
            due = len(encoded) if rate is None else int((time.monotonic() - began) * rate) + 1
            for key, value in encoded[done:due]:
                partition = done % self._topics.partitions
                self.sent[key] = time.monotonic()
                self._producer.send(self._topics.input, value, key, partition=partition)
                done += 1
            if rate is not None:
                time.sleep(TICK_SECONDS)
        self._producer.flush()

    def take(self, count: int) -> None:
        """Take annotated documents until there are so many in all."""
        deadline = time.monotonic() + PATIENCE
        while len(self.arrived) < count:
            for records in self._consumer.poll(timeout_ms=100, max_records=10_000).values():
                now = time.monotonic()
                self.arrived.update((record.key, now) for record in records)
            if time.monotonic() > deadline:
                msg = f"only {len(self.arrived)} of {count} documents came out"
                raise TimeoutError(msg)

    def close(self) -> None:
        """Close both clients."""
        self._producer.close()
        self._consumer.close()


@contextmanager
def worker(
    broker: KafkaBroker, server: RedisServer, topics: Topics, batch: int, transport: str
) -> Iterator[None]:
    """Run one worker process under its supervisor."""
    flags = {
        "kafka-bootstrap": broker.bootstrap,
        "redis-url": server.url,
        "input-topic": topics.input,
        "output-topic": topics.output,
        "dead-letter-topic": topics.dead_letter,
        "group": topics.input,
        "http-port": "0",
        "batch-documents": str(batch),
        "transport": transport,
    }
    program = [sys.executable, "-c", "from stream_dedup.cli.main import main; main()", "worker"]
    given = [part for name, value in flags.items() for part in (f"--{name}", value)]
    with subprocess.Popen([*program, *given]) as process:
        try:
            yield
        finally:
            process.terminate()


def measure(options: argparse.Namespace) -> Report:
    """Find out how much a worker takes, then give it half as much, with batches of each size."""
    rows: list[Row] = []
    for batch in options.batches:
        progress(f"batches of up to {batch} documents")
        full, waits = measure_batch(options, batch)
        rows.append(_row(batch, full, waits))
    return Report("Latency", [_table(rows, options)])


def measure_batch(options: argparse.Namespace, batch: int) -> tuple[float, list[float]]:
    """Return how much a worker takes, and how long documents wait at half of it."""
    backlog = documents.stream(options.backlog, seed=5)
    with KafkaBroker() as broker, RedisServer() as server:
        topics = broker.create_topics(options.partitions)
        stream = Stream(broker, topics)
        progress(f"a backlog of {len(backlog)} documents")
        stream.produce(backlog)
        with worker(broker, server, topics, batch, options.transport):
            stream.take(len(backlog))
            times = sorted(stream.arrived.values())
            # The first tenth is not counted: the worker starts then.
            first = len(times) // 10
            full = (len(times) - first) / max(times[-1] - times[first], 1e-9)
            rate = options.rate or full / 2
            half = documents.stream(int(rate * options.seconds), seed=6)
            half = [msgspec.structs.replace(d, id=f"half-{d.id}") for d in half]
            waits = _half_load(stream, half, rate)
        stream.close()
    return full, waits


def _half_load(stream: Stream, half: list[GeneratedDocument], rate: float) -> list[float]:
    progress(f"{rate:,.0f} documents a second, {len(half)} in all")
    before = len(stream.arrived)
    producing = threading.Thread(target=stream.produce, args=(half, rate))
    producing.start()
    stream.take(before + len(half))
    producing.join()
    keys = [document.id.encode() for document in half]
    return [stream.arrived[key] - stream.sent[key] for key in keys]


def _row(batch: int, full: float, waits: list[float]) -> Row:
    found = np.percentile(waits, PERCENTILES).tolist()
    return [f"{batch:,}", full, *(1000 * seconds for seconds in found), 1000 * max(waits)]


def _table(rows: list[Row], options: argparse.Namespace) -> Table:
    load = f"{options.rate:,.0f} a second" if options.rate else "half as many"
    note = (
        f"One worker process ({options.transport}) with batches of up to so many documents "
        "(`batch_documents`; all else as it comes); how many it took a second from a backlog; "
        f"then {load} were produced for {options.seconds:g} s. Milliseconds from the call that "
        "produces a document to the poll that reads it annotated (`read_committed`, so after its "
        "transaction), by the clock of one process; broker, Redis, worker and both clients on one "
        "machine."
    )
    header = columns("batch", "at full load|,.0f", *(f"p{p:g} ms|,.0f" for p in PERCENTILES))
    return Table("From produced to annotated", note, [*header, *columns("most ms|,.0f")], rows)


def main() -> None:
    """Run from the command line."""
    parser = arguments(__doc__)
    parser.add_argument("--backlog", type=int, default=40_000, help="documents at full load")
    parser.add_argument("--seconds", type=float, default=20, help="time at half load")
    parser.add_argument("--rate", type=float, help="documents a second, instead of half load")
    parser.add_argument(
        "--batches", nargs="+", type=int, default=[1000, 250], help="values of batch_documents"
    )
    parser.add_argument(
        "--transport", choices=["kafka-python", "confluent"], default="kafka-python"
    )
    parser.add_argument("--partitions", type=int, default=4, help="of each topic")
    run(parser, measure)


if __name__ == "__main__":
    main()
