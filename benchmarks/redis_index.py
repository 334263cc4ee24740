"""The Redis index alone, its fingerprints made before: rate, CPU time on both sides, and memory."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks import documents
from benchmarks.report import Report, Row, Table, arguments, columns, progress, run
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.generate import GeneratedDocument
from stream_dedup.index.base import Attachment, IndexBatch, index_batch
from stream_dedup.index.redis import RedisIndex
from stream_dedup.settings import Settings
from stream_dedup.types import Document
from tests.services.redis import RedisServer

PARTITIONS = (1, 64)
SHARES = (0.5, 0.9)
#: Documents claimed together, as a worker does.
BATCH = 1000


class Claimed(NamedTuple):
    """What it took to claim some documents, each in seconds.

    Attributes:
        seconds: by the clock.
        client: CPU time of this process.
        server: CPU time of Redis.
        attachments: what was decided.
    """

    seconds: float
    client: float
    server: float
    attachments: list[Attachment | None]


def prepare(
    fingerprinter: Fingerprinter, stream: Sequence[GeneratedDocument], name: str, size: int = BATCH
) -> list[IndexBatch]:
    """Fingerprint a stream, batch by batch; ``name`` tells its documents from another's."""
    batches = []
    for start in range(0, len(stream), size):
        part = [
            Document(document.id, document.text, source=f"{name}/{document.id}")
            for document in stream[start : start + size]
        ]
        prints = fingerprinter.fingerprint([document.text for document in part])
        batches.append(index_batch(part, prints))
    return batches


def claim(index: RedisIndex, batches: Sequence[IndexBatch]) -> Claimed:
    """Claim batches one after another."""
    attachments: list[Attachment | None] = []
    server, client, clock = server_cpu(index), time.process_time(), time.perf_counter()
    for batch in batches:
        attachments += index.claim(batch)
    seconds, client = time.perf_counter() - clock, time.process_time() - client
    return Claimed(seconds, client, server_cpu(index) - server, attachments)


def server_cpu(index: RedisIndex) -> float:
    """Return the CPU time of an index's server so far."""
    return cpu_told(index.store.client.info("cpu"))


def cpu_told(info: dict[str, float]) -> float:
    """Return the CPU time of a server, of what it says of itself."""
    return info["used_cpu_user"] + info["used_cpu_sys"]


def _memory(index: RedisIndex) -> int:
    return int(index.store.client.info("memory")["used_memory"])


class Streams(NamedTuple):
    """What is claimed: originals that fill the index, then streams with more and more copies."""

    filling: list[IndexBatch]
    measured: dict[float, tuple[list[GeneratedDocument], list[IndexBatch]]]

    @classmethod
    def generate(cls, originals: int, count: int) -> Streams:
        """Generate and fingerprint everything; copies come long after their originals."""
        fingerprinter = Fingerprinter(Settings())
        measured = {}
        for share in SHARES:
            stream = more_documents(share, count)
            measured[share] = (stream, prepare(fingerprinter, stream, f"share {share}"))
        filling = documents.stream(originals, duplicates=0, seed=2)
        return cls(prepare(fingerprinter, filling, "filling"), measured)


def more_documents(share: float, count: int) -> list[GeneratedDocument]:
    """Return a stream of its own for each share of copies."""
    return documents.stream(count, duplicates=share, distance=count, seed=round(3 + 10 * share))


def measure_partitions(partitions: int, streams: Streams) -> list[Row]:
    """Fill an index and measure it."""
    with RedisServer() as server:
        filling = streams.filling
        originals = sum(map(len, filling))
        settings = Settings(
            redis_url=server.url, partitions=partitions, expected_originals=originals
        )
        index = RedisIndex.connect(settings)
        progress(f"partitions {partitions}: filling with {originals} originals")
        before = _memory(index)
        last = len(streams.measured[SHARES[0]][1])
        claim(index, filling[:-last])
        rows = [_row(partitions, 0.0, claim(index, filling[-last:]), None)]
        rows[0][-1] = (_memory(index) - before) / originals
        for share, (stream, batches) in streams.measured.items():
            progress(f"partitions {partitions}: {share:.0%} copies")
            claimed = claim(index, batches)
            found = documents.score(stream, originals_of(claimed)).duplicates
            rows.append(_row(partitions, share, claimed, found))
        index.close()
    return rows


def originals_of(claimed: Claimed) -> list[str | None]:
    """Return the id of the original of each document that is a copy."""
    return [None if found is None else str(found.original_id) for found in claimed.attachments]


def _row(partitions: int, share: float, claimed: Claimed, found: float | None) -> Row:
    count = len(claimed.attachments)
    return [
        f"{partitions} partition{'s' * (partitions > 1)}, {share:.0%} copies",
        count / claimed.seconds,
        claimed.client / count * 1e6,
        claimed.server / count * 1e6,
        found,
        None,
    ]


def measure(options: argparse.Namespace) -> Report:
    """Measure the index."""
    streams = Streams.generate(options.originals, options.documents)
    rows = [row for partitions in PARTITIONS for row in measure_partitions(partitions, streams)]
    return Report("The Redis index", [_index_table(rows, options)])


def _index_table(rows: list[Row], options: argparse.Namespace) -> Table:
    note = (
        f"An index filled with {options.originals:,} originals and laid out for as many; then, in "
        f"batches of {BATCH:,}, the last {options.documents:,} of them (0 % copies) and "
        f"{options.documents:,} more of each share of copies, most of whose originals came in "
        "earlier batches. Documents per second by the clock, client and server on one machine; "
        "CPU time of this process and of the Redis server per document; share of true "
        "copies attached to their original; growth of `used_memory` while filling, per original."
    )
    header = columns("index", "documents/s|,.0f", "client µs|.1f", "server µs|.1f")
    return Table("Claims", note, [*header, *columns("found|.2%", "bytes per original|,.0f")], rows)


def main() -> None:
    """Run from the command line."""
    parser = arguments(__doc__)
    parser.add_argument("--originals", type=int, default=100_000, help="originals in the index")
    parser.add_argument("--documents", type=int, default=20_000, help="documents measured")
    run(parser, measure)


if __name__ == "__main__":
    main()
