"""One post copied at all workers at once, beside ordinary documents: their rate, and growth."""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import islice
from multiprocessing.synchronize import Barrier
from typing import Any, NamedTuple

import msgspec

from benchmarks.report import Report, Row, Table, arguments, columns, progress, run
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.generate import StreamShape, generate
from stream_dedup.index.base import IndexBatch, index_batch
from stream_dedup.index.redis import RedisIndex
from stream_dedup.settings import Settings
from stream_dedup.types import Document
from tests.services.redis import RedisServer

WORKERS = 4
#: Documents claimed together, as a worker does.
BATCH = 1000
_SECONDS = 600.0


class Share(NamedTuple):
    """What one worker found, times by a clock that all processes share.

    Attributes:
        began: when it began to fingerprint.
        fingerprinted: seconds that this took.
        claiming: when it began to claim.
        ended: when it had claimed everything.
        originals: documents without an original.
        voided: claims of others that it voided.
    """

    began: float
    fingerprinted: float
    claiming: float
    ended: float
    originals: int
    voided: int


def streams(count: int) -> dict[str, StreamShape]:
    """Describe what is measured: ordinary documents, then copies of one post alone."""
    ordinary = StreamShape(documents=count, duplicate_share=0.3, edits=1, words=200, seed=1)
    post = msgspec.structs.replace(ordinary, duplicate_share=0.0, viral=1, viral_copies=count - 1)
    return {
        "ordinary, no copies": msgspec.structs.replace(ordinary, duplicate_share=0.0),
        "ordinary, 30 % copies": ordinary,
        "one post, exact copies": msgspec.structs.replace(post, exact_share=1.0),
        "one post, half near copies": post,
        "one post, near copies": msgspec.structs.replace(post, exact_share=0.0),
    }


#: Where the workers wait for each other; set in each worker's process.
_together: list[Barrier] = []


def meet_at(together: Barrier) -> None:
    """Keep the place where the workers wait for each other."""
    _together.append(together)


def work(number: int, settings: Settings, shape: StreamShape) -> Share:
    """Be one worker: take every fourth document, fingerprint them all, then claim them all."""
    made = islice(generate(shape), number, None, WORKERS)
    documents = [Document(one.id, one.text, source=one.id) for one in made]
    fingerprinter, index = Fingerprinter(settings), RedisIndex.connect(settings)
    _together[0].wait(_SECONDS)
    began = time.monotonic()
    batches = _fingerprint(fingerprinter, documents)
    fingerprinted = time.monotonic() - began
    _together[0].wait(_SECONDS)
    claiming, originals, voided = time.monotonic(), 0, 0
    for batch in batches:
        originals += sum(attachment is None for attachment in index.claim(batch))
        voided += index.counts.voided
    ended = time.monotonic()
    index.close()
    return Share(began, fingerprinted, claiming, ended, originals, voided)


def _fingerprint(fingerprinter: Fingerprinter, documents: Sequence[Document]) -> list[IndexBatch]:
    batches = []
    for start in range(0, len(documents), BATCH):
        part = documents[start : start + BATCH]
        batches.append(
            index_batch(part, fingerprinter.fingerprint([document.text for document in part]))
        )
    return batches


def run_workers(settings: Settings, shape: StreamShape) -> list[Share]:
    """Run all workers at once, each a process of its own."""
    context = multiprocessing.get_context("spawn")
    # Each waits for all the others, so no process takes two shares.
    together = context.Barrier(WORKERS)
    with ProcessPoolExecutor(WORKERS, context, meet_at, (together,)) as pool:
        futures = [pool.submit(work, number, settings, shape) for number in range(WORKERS)]
        try:
            return [future.result() for future in as_completed(futures)]
        except BaseException:
            together.abort()
            raise


def contents(settings: Settings) -> tuple[int, int]:
    """Count the table entries and the claim records of an index on one node."""
    index = RedisIndex.connect(settings)
    client: Any = index.store.client
    entries = records = 0
    for key in client.scan_iter(match=f"{settings.redis_namespace}:{{*", count=1000):
        kind = key.rpartition(b"}:")[2][:1]
        entries += client.zcard(key) if kind == b"t" else 0
        records += client.hlen(key) if kind == b"c" else 0
    index.close()
    return entries, records


def measure_stream(name: str, shape: StreamShape) -> Row:
    """Give a stream to all workers, into an empty index."""
    progress(name)
    with RedisServer() as server:
        settings = Settings(redis_url=server.url, expected_originals=100_000)
        shares = run_workers(settings, shape)
        entries, records = contents(settings)
    claiming = max(share.ended for share in shares) - min(share.claiming for share in shares)
    fingerprinting = max(share.began + share.fingerprinted for share in shares)
    fingerprinting -= min(share.began for share in shares)
    return [
        name,
        shape.documents / (fingerprinting + claiming),
        shape.documents / claiming,
        sum(share.originals for share in shares),
        entries,
        records,
        sum(share.voided for share in shares),
    ]


def measure(options: argparse.Namespace) -> Report:
    """Measure each stream by itself."""
    rows = [measure_stream(name, shape) for name, shape in streams(options.documents).items()]
    note = (
        f"{options.documents:,} documents of 200 words over {WORKERS} workers that begin at the "
        f"same moment, each a process with its own connection, in batches of {BATCH:,}, into an "
        "empty index on one Redis, all on one machine. Documents per second by the clock of all "
        "workers together: fingerprint and claim one after the other, and claims alone. Originals; "
        "table entries and claim records in the end, void ones included; claims that one worker "
        "voided of another. A near copy has one word replaced."
    )
    header = columns("stream", "documents/s|,.0f", "claims/s|,.0f", "originals|,")
    more = columns("entries|,", "records|,", "voided|,")
    return Report("Skew", [Table("One post at all workers", note, [*header, *more], rows)])


def main() -> None:
    """Run from the command line."""
    parser = arguments(__doc__)
    parser.add_argument("--documents", type=int, default=100_000, help="documents in each stream")
    run(parser, measure)


if __name__ == "__main__":
    main()
