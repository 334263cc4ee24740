"""The Redis index alone, its fingerprints made before: rate, CPU time on both sides, and memory."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import numpy as np

from benchmarks import documents
from benchmarks.peers import ask
from benchmarks.processes import one_cpu
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
#: Values of the setting ``rows`` that are put beside a peer; 0 is as it comes.
BANDS_OF = (0, 5, 4, 3)
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
    fingerprinter: Fingerprinter, stream: Sequence[GeneratedDocument], name: str
) -> list[IndexBatch]:
    """Fingerprint a stream, batch by batch; ``name`` tells its documents from another's."""
    batches = []
    for start in range(0, len(stream), BATCH):
        part = [
            Document(document.id, document.text, source=f"{name}/{document.id}")
            for document in stream[start : start + BATCH]
        ]
        prints = fingerprinter.fingerprint([document.text for document in part])
        batches.append(index_batch(part, prints))
    return batches


def claim(index: RedisIndex, batches: Sequence[IndexBatch]) -> Claimed:
    """Claim batches one after another."""
    attachments: list[Attachment | None] = []
    server, client, clock = _server_cpu(index), time.process_time(), time.perf_counter()
    for batch in batches:
        attachments += index.claim(batch)
    seconds, client = time.perf_counter() - clock, time.process_time() - client
    return Claimed(seconds, client, _server_cpu(index) - server, attachments)


def _server_cpu(index: RedisIndex) -> float:
    return _cpu(index.store.client.info("cpu"))


def _cpu(info: dict[str, float]) -> float:
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
    """Measure the index, then datasketch's."""
    streams = Streams.generate(options.originals, options.documents)
    rows = [row for partitions in PARTITIONS for row in measure_partitions(partitions, streams)]
    peer, versions = compare(options.slow)
    return Report("The Redis index", [_index_table(rows, options), peer], versions)


class Beside(NamedTuple):
    """What a library did with the same few documents.

    Attributes:
        name: of the library.
        rate: documents per second by the clock.
        client: microseconds of CPU time of the client per document.
        server: the same of Redis.
        found: what it found.
        tables: how many tables it has; None where it does not tell.
        candidates: pairs of a document and an earlier original that share a key, per document.
    """

    name: str
    rate: float
    client: float
    server: float
    found: documents.Found
    tables: int | None = None
    candidates: float | None = None


def compare(count: int) -> tuple[Table, dict[str, str]]:
    """Give datasketch's Redis back end and ours the same few documents, into an empty server."""
    stream = documents.stream(count, seed=3)
    versions = {}
    with RedisServer() as server, tempfile.TemporaryDirectory() as folder:
        with server.client() as client:
            versions["Redis"] = str(client.info("server")["redis_version"])
        own = []
        for bands_of in BANDS_OF:
            own.append(_decide(server, stream, bands_of))
            server.flush()
        path = Path(folder) / "documents.jsonl"
        documents.write(path, stream)
        with server.client() as client:
            before = _cpu(client.info("cpu"))
            port = str(urlsplit(server.url).port)
            figure = ask("datasketch", "decide", path, "--redis-port", port)
            served = (_cpu(client.info("cpu")) - before) / count * 1e6
    peer = None
    if figure is not None:
        versions["datasketch"] = figure.version
        attached = [None if at is None else stream[at].id for at in figure.attached]
        found = documents.score(stream, attached)
        cpu = figure.cpu / count * 1e6
        peer = Beside("datasketch", count / figure.seconds, cpu, served, found)
    return _peer_table(own, peer, count), versions


def _decide(server: RedisServer, stream: Sequence[GeneratedDocument], bands_of: int) -> Beside:
    """Fingerprint and claim, one batch after another."""
    settings = Settings(redis_url=server.url, rows=bands_of)
    fingerprinter, index = Fingerprinter(settings), RedisIndex.connect(settings)
    with one_cpu():
        clock, cpu = time.perf_counter(), time.process_time()
        batches = prepare(fingerprinter, stream, "compare")
        claimed = claim(index, batches)
        seconds, cpu = time.perf_counter() - clock, time.process_time() - cpu
    index.close()
    count = len(stream)
    return Beside(
        f"stream-dedup, rows = {bands_of}" if bands_of else "stream-dedup",
        count / seconds,
        cpu / count * 1e6,
        claimed.server / count * 1e6,
        documents.score(stream, originals_of(claimed)),
        batches[0].prints.keys.shape[1],
        _candidates(batches, claimed) / count,
    )


def _candidates(batches: Sequence[IndexBatch], claimed: Claimed) -> int:
    """Count the pairs of a document and an earlier original that share a table key."""
    originals: dict[tuple[int, int], list[int]] = {}
    count = 0
    keys = np.concatenate([batch.prints.keys for batch in batches]).tolist()
    for number, (row, found) in enumerate(zip(keys, claimed.attachments, strict=True)):
        places = list(enumerate(row))
        count += len({one for place in places for one in originals.get(place, ())})
        if found is None:
            for place in places:
                originals.setdefault(place, []).append(number)
    return count


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


def _peer_row(one: Beside, peer: Beside | None) -> Row:
    by_clock = by_cpu = None
    if peer is not None and one is not peer:
        by_clock = one.rate / peer.rate
        by_cpu = (peer.client + peer.server) / (one.client + one.server)
    row: Row = [one.name, one.tables, one.rate, by_clock, one.client, one.server, by_cpu]
    return [*row, one.candidates, *one.found]


def _peer_table(own: list[Beside], peer: Beside | None, count: int) -> Table:
    rows = [_peer_row(one, peer) for one in own]
    if peer is None:
        rows.append(["datasketch", *[None] * 10])
    else:
        rows.append(_peer_row(peer, peer))
    note = (
        f"Fingerprint, look up and insert {count:,} documents with 30 % copies into an empty "
        "Redis: documents per second by the clock; CPU time of the client and of the server per "
        "document, and the ratio of both together, which other work on the machine disturbs least. "
        "datasketch keeps its tables in Redis and its signatures for verification in its own "
        "memory; it makes its calls for one document at a time, and looks under 9 keys for each. "
        "With fewer values in a band there are fewer tables to look in, and more candidates: pairs "
        "of a document and an earlier original that share a key, a document. Recall is that of "
        "the setting `recall` in all cases. *Found*, *near found* and *wrong* as for files."
    )
    header = columns("library", "tables", "documents/s|,.0f", "ours / peer|.1f")
    header += columns("client µs|,.0f", "server µs|,.0f")
    header += columns("peer's CPU time / ours|.1f", "candidates|.2f")
    more = columns("found|.2%", "near found|.2%", "wrong|.2%")
    return Table("Beside datasketch on Redis", note, [*header, *more], rows)


def main() -> None:
    """Run from the command line."""
    parser = arguments(__doc__)
    parser.add_argument("--originals", type=int, default=100_000, help="originals in the index")
    parser.add_argument("--documents", type=int, default=20_000, help="documents measured")
    parser.add_argument("--slow", type=int, default=3_000, help="documents for datasketch")
    run(parser, measure)


if __name__ == "__main__":
    main()
