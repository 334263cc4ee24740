"""Indexes of several sizes side by side: memory for an entry, rate, candidates, server's time."""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from statistics import median
from typing import NamedTuple, Protocol

import numpy as np

from benchmarks.filling import BATCH, FILLED, RandomDocuments, fill, joined, look
from benchmarks.plan_check import cpu_seconds, memory
from benchmarks.report import Report, Row, Table, arguments, columns, progress, run
from stream_dedup.fingerprint.fingerprinter import Fingerprinter, method_of
from stream_dedup.index.base import IndexBatch
from stream_dedup.index.memory import MemoryIndex
from stream_dedup.index.pairs import entry_keys
from stream_dedup.index.redis import RedisIndex
from stream_dedup.settings import Settings
from stream_dedup.types import Method
from tests.services.redis import RedisServer

SIZES, FULL_SIZES = ["1e5", "1e6"], ["1e5", "1e6", "1e7"]
#: Shares of copies, and batches of each that are claimed of every index in turn.
SHARES, ROUNDS = (0.0, 0.5, 0.9), 7
#: Documents that look for candidates.
LOOKING = 20_000
#: Originals of which copies are made, and records of which memory is taken, about so many.
KEPT, SAMPLED = 20_000, 2_000
_PAGE_BYTES = 4096


class Timing(NamedTuple):
    """What a batch took.

    Attributes:
        seconds: by the clock.
        server: CPU seconds of the server; 0 without one.
    """

    seconds: float
    server: float


class Grown(NamedTuple):
    """An index of one size.

    Attributes:
        where: which index, and its plan.
        originals: in it.
        entry_bytes: memory for one table entry.
        bytes: memory for everything.
        candidates: that a probe for a document not in the index met.
        timings: of batches with each share of copies.
    """

    where: str
    originals: int
    entry_bytes: float
    bytes: float
    candidates: float
    timings: dict[float, list[Timing]]

    def rate(self) -> float:
        """Return the documents without copies that are claimed per second by the clock."""
        return BATCH / median(timing.seconds for timing in self.timings[0.0])

    def server_us(self, share: float) -> float | None:
        """Return the CPU microseconds of the server for a document; None without a server."""
        used = median(timing.server for timing in self.timings[share])
        return used * 1e6 / BATCH if used else None


class Filled(Protocol):
    """An index that has been filled.

    Attributes:
        where: which index, and its plan.
        originals: in it.
    """

    where: str
    originals: int

    def weigh(self) -> tuple[float, float]:
        """Return memory for one table entry, and for everything."""

    def candidates(self) -> float:
        """Return the candidates of a probe for a document not in the index."""

    def claim(self, share: float) -> Timing:
        """Claim a batch with this share of copies."""


class _Documents:
    """The documents of one index: originals to fill it with, and batches with copies of them."""

    def __init__(self, settings: Settings, originals: int) -> None:
        self.method = method_of(settings)
        self.random = RandomDocuments(self.method)
        self._originals = originals
        self._kept: list[IndexBatch] = []

    def filling(self, size: int) -> Iterator[IndexBatch]:
        """Return the originals, batch by batch; some are kept."""
        each = max(1, self._originals // KEPT)
        for batch in self.random.batches(self._originals, size):
            self._kept.append(batch.rows(np.arange(0, len(batch), each)))
            yield batch

    def mixed(self, share: float) -> IndexBatch:
        """Return a batch with this share of copies of originals of the index."""
        self._kept = [joined(self._kept)]
        return self.random.mixed(self._kept[0], share)


class InMemory:
    """The memory index."""

    def __init__(self, name: str, settings: Settings, originals: int) -> None:
        """Fill one."""
        self.where, self.originals = f"memory, {name}", originals
        self._documents = _Documents(settings, originals)
        # Resident memory tells nothing where an earlier index has left some to be used again.
        with multiprocessing.get_context("spawn").Pool(1) as fresh:
            self._bytes = fresh.apply(_memory_of, (settings, originals))
        self._index = MemoryIndex(Fingerprinter(settings).verifier)
        for batch in self._documents.filling(BATCH):
            self._index.claim(batch)

    def weigh(self) -> tuple[float, float]:
        """See ``Filled.weigh``."""
        table = self._index._tables
        arrays = (table._entries, table._lasts)
        return sum(array.nbytes for array in arrays) / len(table), self._bytes

    def candidates(self) -> float:
        """See ``Filled.candidates``."""
        table = self._index._tables
        keys = [
            entry_keys(batch.prints.keys).reshape(-1)
            for batch in self._documents.random.batches(LOOKING)
        ]
        return sum(len(table.find(one)[0]) for one in keys) / sum(map(len, keys))

    def claim(self, share: float) -> Timing:
        """See ``Filled.claim``."""
        return _timed(self._index.claim, self._documents.mixed(share), lambda: 0.0)


def _memory_of(settings: Settings, originals: int) -> int:
    """Return the growth of resident memory while a memory index is filled."""
    index = MemoryIndex(Fingerprinter(settings).verifier)
    random = RandomDocuments(method_of(settings))
    random.batch(BATCH)
    before = _resident()
    for batch in random.batches(originals):
        index.claim(batch)
    return _resident() - before


class InRedis:
    """The Redis index, on a server of its own."""

    def __init__(self, server: RedisServer, name: str, settings: Settings, originals: int) -> None:
        """Fill one, laid out for as many originals as it gets in the end."""
        self.where, self.originals = f"Redis, {name}", originals
        expected = originals + ROUNDS * sum(round((1 - share) * BATCH) for share in SHARES)
        layout = {"redis_url": server.url, "expected_originals": expected}
        settings = settings.model_copy(update=layout)
        self._documents = _Documents(settings, originals)
        self._index = RedisIndex.connect(settings)
        before = memory(self._index)
        for batch in self._documents.filling(FILLED):
            fill(self._index, batch)
            progress(f"  {len(batch):,} originals more")
        self._bytes = memory(self._index) - before

    def weigh(self) -> tuple[float, float]:
        """See ``Filled.weigh``; an entry is what is left without the records."""
        entries = self._bytes / self.originals - self._record_bytes()
        return entries / len(self._documents.method.prefix_bits), self._bytes

    def candidates(self) -> float:
        """See ``Filled.candidates``."""
        found = look(self._index, self._documents.random.batches(LOOKING))
        return found / LOOKING / len(self._documents.method.prefix_bits)

    def claim(self, share: float) -> Timing:
        """See ``Filled.claim``."""
        batch = self._documents.mixed(share)
        return _timed(self._index.claim, batch, lambda: cpu_seconds(self._index))

    def _record_bytes(self) -> float:
        """Return the memory for a record, its share of the hash included."""
        client = self._index.store.client
        partition = self._index.store.layout.partition_key(0)
        size = records = 0
        for key in client.scan_iter(f"{partition}c*", count=1000):
            size += int(client.memory_usage(key, samples=0) or 0)
            records += client.hlen(key)
            if records >= SAMPLED:
                break
        return size / max(records, 1)


def _timed(
    claim: Callable[[IndexBatch], object], batch: IndexBatch, server: Callable[[], float]
) -> Timing:
    cpu, began = server(), time.perf_counter()
    claim(batch)
    seconds = time.perf_counter() - began
    return Timing(seconds, server() - cpu)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES


def compare(indexes: Sequence[Filled]) -> list[Grown]:
    """Measure indexes side by side: whatever else the machine does, it does to all of them."""
    grown = [
        Grown(one.where, one.originals, *one.weigh(), one.candidates(), {s: [] for s in SHARES})
        for one in indexes
    ]
    for share, round_ in product(SHARES, range(ROUNDS)):
        turn = list(range(len(indexes)))
        for at in turn[round_ % len(turn) :] + turn[: round_ % len(turn)]:
            grown[at].timings[share].append(indexes[at].claim(share))
    return grown


def plans() -> list[tuple[str, Settings]]:
    """Return the plans that are measured: MinHash from .8 on, SimHash within 3 bits."""
    return [
        ("MinHash in 16 tables", Settings()),
        ("SimHash in 10 tables", Settings(method=Method.SIMHASH, hamming=3)),
    ]


def grow(name: str, settings: Settings, sizes: list[int], *, redis: bool) -> list[Grown]:
    """Fill indexes of all sizes and measure them."""
    with ExitStack() as stack:
        indexes: list[Filled] = []
        for size in sizes:
            progress(f"{'Redis' if redis else 'memory'}, {name}: {size:,} originals")
            if redis:
                server = stack.enter_context(RedisServer())
                indexes.append(InRedis(server, name, settings, size))
            else:
                indexes.append(InMemory(name, settings, size))
        return compare(indexes)


def measure(options: argparse.Namespace) -> Report:
    """Measure every plan in memory and in Redis."""
    named = options.originals or (FULL_SIZES if options.full else SIZES)
    sizes = sorted(int(float(size)) for size in named)
    rows: list[Row] = []
    found: list[Grown] = []
    for (name, settings), redis in product(plans(), (False, True)):
        if options.only in f"{'Redis' if redis else 'memory'}, {name}":
            grown = grow(name, settings, sizes, redis=redis)
            rows += _rows(grown)
            found += grown
    if options.plot is not None:
        plot(found, options.plot)
    return Report("Indexes as they grow", [_table(rows)])


def _rows(found: Sequence[Grown]) -> list[Row]:
    """Return the rows of an index in its sizes, the smallest first."""
    smallest = found[0].timings[0.0]
    rows: list[Row] = []
    for grown in found:
        pairs = zip(smallest, grown.timings[0.0], strict=True)
        rows.append(
            [
                grown.where,
                grown.originals,
                grown.entry_bytes,
                grown.bytes / grown.originals,
                grown.candidates,
                grown.rate(),
                median(small.seconds / large.seconds for small, large in pairs),
                *(grown.server_us(share) for share in SHARES),
            ]
        )
    return rows


def _table(rows: list[Row]) -> Table:
    note = (
        "Random fingerprints, so a candidate is met by chance alone, and ids of 20 bytes. *Entry* "
        "is one original in one table: in memory the tables' arrays, which are up to half empty; "
        "in Redis what is left of an original without its record. *Original* is everything: growth "
        "of resident memory, in a process of its own, or of `used_memory`. Candidates that one "
        "probe for a document not in the index met. Documents that are not in the index, claimed "
        f"per second by the clock in batches of {BATCH:,}, and the same relative to the smallest "
        "index: all sizes take turns, "
        f"{ROUNDS} batches each, and the medians are given. CPU time of the server for a document "
        f"where {', '.join(f'{share:.0%}' for share in SHARES)} of a batch are copies, half of "
        "them exact."
    )
    header = columns("index", "originals|,d", "bytes an entry|,.1f", "bytes an original|,.0f")
    header += columns("candidates a probe|.3g", "documents/s|,.0f", "times the smallest|.2f")
    header += columns(*(f"server µs, {share:.0%} copies|,.1f" for share in SHARES))
    return Table("Memory, rate and candidates by size", note, header, rows)


def plot(found: Sequence[Grown], path: Path) -> None:
    """Draw rate and memory against the number of originals."""
    # Imported here because nothing else needs it.
    import matplotlib as mpl  # noqa: PLC0415

    mpl.use("agg")
    from matplotlib import pyplot  # noqa: PLC0415

    figure, (rates, sizes) = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for name in dict.fromkeys(grown.where for grown in found):
        own = [grown for grown in found if grown.where == name]
        originals = [grown.originals for grown in own]
        style = {"marker": "o", "label": name, "linestyle": "-" if "Redis" in name else "--"}
        rates.plot(originals, [grown.rate() for grown in own], **style)
        sizes.plot(originals, [grown.bytes / grown.originals for grown in own], **style)
    rates.set(title="Documents claimed per second", xscale="log", yscale="log", ylim=(1e4, 1e6))
    sizes.set(title="Bytes for an original", xscale="log", ylim=0)
    for axes in (rates, sizes):
        axes.set_xlabel("originals in the index")
        axes.grid(visible=True)
    figure.legend(*sizes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main() -> None:
    """Run from the command line."""
    parser = arguments(__doc__)
    parser.add_argument("originals", nargs="*", help=f"sizes; {SIZES} if left out")
    parser.add_argument("--full", action="store_true", help=f"sizes {FULL_SIZES}")
    parser.add_argument("--only", default="", help='such as "Redis, MinHash"; all if left out')
    parser.add_argument("--plot", type=Path, help="file to draw to (.svg, .png)")
    run(parser, measure)


if __name__ == "__main__":
    main()
