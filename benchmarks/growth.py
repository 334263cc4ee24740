"""An index as it grows: memory for an entry, rate, and candidates, in memory and in Redis."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from benchmarks import plan_check
from benchmarks.plan_check import BATCH, CLAIMED, LOOKING, RandomDocuments
from benchmarks.report import Report, Row, Table, arguments, columns, progress, run
from stream_dedup.fingerprint.fingerprinter import Fingerprinter, FingerprintMethod, method_of
from stream_dedup.index.memory import MemoryIndex
from stream_dedup.index.pairs import entry_keys
from stream_dedup.index.redis import RedisIndex
from stream_dedup.settings import Settings
from tests.services.redis import RedisServer

SIZES, FULL_SIZES = ["1e5", "1e6"], ["1e5", "1e6", "1e7"]
#: Sorted sets of which memory for an entry is taken.
SAMPLED = 2_000
_PAGE_BYTES = 4096


class Grown(NamedTuple):
    """An index at one size.

    Attributes:
        where: which index.
        originals: in it.
        entry_bytes: memory for one table entry.
        bytes: memory for everything.
        rate: documents claimed per second by the clock.
        candidates: that a probe for a document not in the index met.
        server_us: CPU microseconds of the server for a document; None without one.
    """

    where: str
    originals: int
    entry_bytes: float
    bytes: float
    rate: float
    candidates: float
    server_us: float | None


class Growing(Protocol):
    """An index that is filled further and further."""

    name: str

    def fill(self, count: int) -> None:
        """Register so many more originals."""

    def look(self, originals: int) -> Grown:
        """Measure it as it is."""


class InMemory:
    """The memory index."""

    name = "memory"

    def __init__(self, method: FingerprintMethod) -> None:
        self._documents = RandomDocuments(method)
        self._index = MemoryIndex(Fingerprinter(Settings()).verifier)
        self._tables = len(method.prefix_bits)
        self._before = _resident()

    def fill(self, count: int) -> None:
        """Register so many more originals."""
        for batch in self._documents.batches(count):
            self._index.claim(batch)

    def look(self, originals: int) -> Grown:
        """Measure it as it is; the documents claimed for it stay."""
        size = _resident() - self._before
        table = self._index._tables
        arrays = (table._keys, table._values, table._next, table._heads)
        entry = sum(array.nbytes for array in arrays) / len(table)
        batches = list(self._documents.batches(LOOKING))
        met = sum(len(table.find(entry_keys(b.prints.keys).reshape(-1))[0]) for b in batches)
        began = time.perf_counter()
        for batch in batches:
            self._index.claim(batch)
        rate = LOOKING / (time.perf_counter() - began)
        probes = LOOKING * self._tables
        return Grown(self.name, originals, entry, size, rate, met / probes, None)


class InRedis:
    """The Redis index, on one server."""

    name = "Redis"

    def __init__(self, method: FingerprintMethod, settings: Settings) -> None:
        self._documents = RandomDocuments(method)
        self._index = RedisIndex.connect(settings)
        self._tables = len(method.prefix_bits)
        self._before = plan_check._memory(self._index)

    def fill(self, count: int) -> None:
        """Register so many more originals."""
        for batch in self._documents.batches(count):
            plan_check._register(self._index, batch)

    def look(self, originals: int) -> Grown:
        """Measure it as it is; the documents claimed for it stay."""
        size = plan_check._memory(self._index) - self._before
        met = plan_check._look(self._index, self._documents) / self._tables
        batches = list(self._documents.batches(CLAIMED))
        cpu, began = plan_check._cpu_seconds(self._index), time.perf_counter()
        for batch in batches:
            self._index.claim(batch)
        rate = CLAIMED / (time.perf_counter() - began)
        server = (plan_check._cpu_seconds(self._index) - cpu) * 1e6 / CLAIMED
        return Grown(self.name, originals, self._entry_bytes(), size, rate, met, server)

    def _entry_bytes(self) -> float:
        client = self._index.store.client
        size = entries = sets = 0
        for key in client.scan_iter(count=1000):
            if client.type(key) == b"zset":
                size += int(client.memory_usage(key) or 0)
                entries += client.zcard(key)
                sets += 1
                if sets == SAMPLED:
                    break
        return size / max(entries, 1)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES


def grow(index: Growing, sizes: list[int]) -> Iterator[Grown]:
    """Fill an index to each size and measure it there."""
    filled = 0
    for size in sizes:
        progress(f"{index.name}: {size:,} originals")
        index.fill(size - filled)
        filled = size
        yield index.look(size)
        filled += LOOKING if isinstance(index, InMemory) else CLAIMED


def measure(options: argparse.Namespace) -> Report:
    """Grow both indexes."""
    named = options.originals or (FULL_SIZES if options.full else SIZES)
    sizes = sorted(int(float(size)) for size in named)
    method = method_of(Settings())
    found = list(grow(InMemory(method), sizes))
    with RedisServer() as server:
        settings = Settings(redis_url=server.url, expected_originals=sizes[-1] + CLAIMED)
        found += grow(InRedis(method, settings), sizes)
    if options.plot is not None:
        plot(found, options.plot)
    return Report("Indexes as they grow", [_table(found)])


def _table(found: list[Grown]) -> Table:
    rows: list[Row] = [
        [
            grown.where,
            grown.originals,
            grown.entry_bytes,
            grown.bytes / grown.originals,
            grown.rate,
            grown.candidates,
            grown.server_us,
        ]
        for grown in found
    ]
    note = (
        "Random MinHash fingerprints in 16 tables, so a candidate is met by chance alone; batches "
        f"of {BATCH:,}. *Entry* is one original in one table: in memory the tables' arrays, which "
        f"are up to half empty; in Redis `MEMORY USAGE` of {SAMPLED:,} sorted sets. *Original* is "
        "everything: growth of resident memory, or of `used_memory`. Documents that are not in the "
        "index, claimed per second by the clock; candidates that one probe met; CPU time of the "
        "server for a claimed document."
    )
    header = columns("index", "originals|,d", "bytes an entry|,.1f", "bytes an original|,.0f")
    more = columns("documents/s|,.0f", "candidates a probe|.5f", "server µs|,.1f")
    return Table("Memory, rate and candidates by size", note, [*header, *more], rows)


def plot(found: list[Grown], path: Path) -> None:
    """Draw rate and memory against the number of originals."""
    # Imported here because nothing else needs it.
    import matplotlib as mpl  # noqa: PLC0415

    mpl.use("svg")
    from matplotlib import pyplot  # noqa: PLC0415

    figure, (rates, memory) = pyplot.subplots(1, 2, figsize=(10, 4))
    for name in dict.fromkeys(grown.where for grown in found):
        own = [grown for grown in found if grown.where == name]
        sizes = [grown.originals for grown in own]
        rates.plot(sizes, [grown.rate for grown in own], marker="o", label=name)
        memory.plot(sizes, [grown.bytes / 2**20 for grown in own], marker="o", label=name)
    rates.set(title="Documents claimed per second", xscale="log", ylim=0)
    memory.set(title="Memory, MiB", xscale="log", yscale="log")
    for axes in (rates, memory):
        axes.set_xlabel("originals")
        axes.legend()
        axes.grid(visible=True)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Run from the command line."""
    parser = arguments(__doc__)
    parser.add_argument("originals", nargs="*", help=f"sizes; {SIZES} if left out")
    parser.add_argument("--full", action="store_true", help=f"sizes {FULL_SIZES}")
    parser.add_argument("--plot", type=Path, help="file to draw to (.svg)")
    run(parser, measure)


if __name__ == "__main__":
    main()
