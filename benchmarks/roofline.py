"""What a document costs in each stage beside what memory allows; docs/speed.md reads it.

Run: python -m benchmarks.roofline
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks import documents
from benchmarks.fingerprint import BATCH, STAGES, timed_stages
from benchmarks.processes import one_cpu
from benchmarks.report import Report, Row, Table, arguments, columns, progress, run
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.index.base import IndexBatch, index_batch
from stream_dedup.index.memory import MemoryIndex
from stream_dedup.settings import Settings
from stream_dedup.types import Document

#: Bytes of an array, by where it then lives on most machines.
LEVELS = {"L1": 16 << 10, "L2": 96 << 10, "L3": 4 << 20, "memory": 256 << 20}
_LINE = 64
#: Random reads at a time.
_READS = 1 << 16
_SECONDS = 0.5
#: Lines that a table entry takes on its way in: its slot when it is looked up and when it is
#: filled, and the key and the link of the entry that stands there already, if one does.
_LINES_OF_AN_ENTRY = 4


def best(act: Callable[[], object]) -> float:
    """Return the CPU seconds of the fastest run among those that fit into a moment of CPU time."""
    act()  # so that the system has given all pages
    fastest, until = float("inf"), time.process_time() + _SECONDS
    while time.process_time() < until:
        began = time.process_time()
        act()
        fastest = min(fastest, time.process_time() - began)
    return fastest


def pass_rate(size: int) -> float:
    """Return the bytes per second, read and written, of one pass over an array of this size.

    A plain copy would tell less: by how two arrays lie to each other, the C library's is up to 20
    times slower than itself.
    """
    source, target = np.ones(size // 8, np.uint64), np.zeros(size // 8, np.uint64)
    times = max(1, (1 << 24) // size)  # so that one run takes longer than the clock's tick

    def act() -> None:
        for _ in range(times):
            np.invert(source, out=target)

    return 2 * size * times / best(act)


def read_seconds(size: int) -> float:
    """Return the seconds of one read at random from an array of this size."""
    values = np.ones(size // 8, np.uint64)
    places = np.random.default_rng(1).integers(0, len(values), _READS)
    return best(lambda: values.take(places)) / _READS


def measure(options: argparse.Namespace) -> Report:
    """Measure the memory, then the stages."""
    with one_cpu():
        progress("memory")
        memory = {name: (pass_rate(size), read_seconds(size)) for name, size in LEVELS.items()}
        progress("stages")
        stages = _stages(options.documents, memory)
    rows: list[Row] = [
        [name, f"{LEVELS[name] >> 10:,} KiB", rate / 1e9, seconds * 1e9]
        for name, (rate, seconds) in memory.items()
    ]
    header = columns("array lives in", "size", "pass, GB/s|.1f", "random read, ns|.2f")
    note = (
        f"One core, CPU time, the best of the runs that fit into {_SECONDS} s: one pass of numpy "
        f"over an array, each number inverted into another array, bytes read and written; and "
        f"{_READS:,} reads of 8 bytes at random places in one call."
    )
    return Report("Roofline", [Table("Memory", note, header, rows), stages])


def _stages(count: int, memory: dict[str, tuple[float, float]]) -> Table:
    texts = [document.text for document in documents.stream(count, duplicates=0)]
    fingerprinter = Fingerprinter(Settings())
    fingerprinter.fingerprint(texts[:BATCH])
    characters = sum(map(len, texts)) / count
    shingles = len(fingerprinter.shingles(texts[:BATCH]).hashes) / min(BATCH, count)
    width = fingerprinter.verifier.sketch_bytes + 8 * len(fingerprinter.method.prefix_bits)
    least = (2 * characters, characters + 16, characters + 8 * shingles, 8 * shingles + width)
    with timed_stages(fingerprinter) as laps:
        batches = _prepared(fingerprinter, texts)
    fastest = memory["L2"][0]
    rows: list[Row] = []
    for stage, size in zip(STAGES[:-1], least, strict=True):
        rows.append(_row(stage, size, size / fastest, laps.seconds[stage] / count))
    lines = _LINES_OF_AN_ENTRY * len(fingerprinter.method.prefix_bits)
    rows.append(
        _row("index", lines * _LINE, lines * memory["memory"][1], _claim(fingerprinter, batches))
    )
    note = (
        f"{count:,} originals of {characters:,.0f} characters and {shingles:,.0f} shingles, "
        "MinHash, one core. *Bytes*: what a stage cannot do without, its input and its output; for "
        f"the index the {lines} lines of {_LINE} bytes that {_LINES_OF_AN_ENTRY} random reads a "
        "table touch. *Bound*: the time of a pass over these bytes in L2, for the index the time "
        "of that many random reads in memory. Measured CPU time, and how many times the bound it "
        "is."
    )
    header = columns("stage", "bytes|,.0f", "bound, µs|.2f", "measured, µs|.2f", "times|,.0f")
    return Table("Stages of a document", note, header, rows)


def _prepared(fingerprinter: Fingerprinter, texts: Sequence[str]) -> list[IndexBatch]:
    batches = []
    for start in range(0, len(texts), BATCH):
        part = texts[start : start + BATCH]
        prints = fingerprinter.fingerprint(part)
        named = [Document(str(start + at), text) for at, text in enumerate(part)]
        batches.append(index_batch(named, prints))
    return batches


def _claim(fingerprinter: Fingerprinter, batches: Sequence[IndexBatch]) -> float:
    """Return the CPU seconds for a document of claiming the second half of the batches."""
    index = MemoryIndex(fingerprinter.verifier)
    half = len(batches) // 2
    for batch in batches[:half]:
        index.claim(batch)
    began = time.process_time()
    for batch in batches[half:]:
        index.claim(batch)
    return (time.process_time() - began) / sum(map(len, batches[half:]))


def _row(stage: str, size: float, bound: float, measured: float) -> Row:
    return [stage, size, bound * 1e6, measured * 1e6, measured / bound]


def main() -> None:
    """Run from the command line."""
    parser = arguments(__doc__)
    parser.add_argument("--documents", type=int, default=50_000, help="documents of the stream")
    run(parser, measure)


if __name__ == "__main__":
    main()
