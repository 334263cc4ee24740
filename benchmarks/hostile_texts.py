"""What the most expensive messages of the largest size cost, from bytes to a decision.

The classes are those of ``tests/hostile/growth.py``, which tests hold to linear time. CPU time is
that of the least of some runs, of one thread; memory is what Python and numpy had allocated at most
in another run.
"""

from __future__ import annotations

import argparse
import tracemalloc

from benchmarks.report import Report, Row, Table, arguments, columns, progress, run
from stream_dedup import Measure, Settings
from stream_dedup.verify.texts import CHARACTERS
from tests.hostile.growth import WAYS, Make, Step, align, colliding, decide, of_text, seconds

ORDINARY = of_text("The ferry to the island leaves at nine in the morning. ")


def measure_class(step: Step, make: Make, size: int, times: int) -> Row:
    """Return milliseconds for a message of a size, their ratio to half of it, and MiB at most."""
    value, half = make(size), make(size // 2)
    whole, part = seconds(step, value, times), seconds(step, half, times)
    tracemalloc.start()
    step(value)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return [whole * 1000, whole / part, peak / 2**20]


def measure(options: argparse.Namespace) -> Report:
    """Measure each class in each way through the program that it is made for."""
    tables = []
    for way, (given, classes) in WAYS.items():
        progress(way)
        step = decide(way, near=False)
        rows: list[Row] = []
        for name, make in {"ordinary words": ORDINARY, **classes}.items():
            rows.append([name, *measure_class(step, make, options.bytes, options.times)])
        rows.sort(key=_milliseconds, reverse=True)
        with_settings = ", ".join(f"{name} {value}" for name, value in given.items()) or "defaults"
        note = (
            f"Messages of {options.bytes:,} bytes that repeat one part; settings: {with_settings}. "
            "CPU time of one message, its ratio to one of half the size, memory allocated at most."
        )
        heads = columns("class", "ms|,.0f", "to half|.1f", "MiB|,.0f")
        tables.append(Table(way, note, heads, rows[: options.rows] if options.rows else rows))
    tables.append(_alignments(options.times))
    return Report("Hostile messages", tables)


def _milliseconds(row: Row) -> float:
    return float(row[1] or 0)


def _alignments(times: int) -> Table:
    """Measure how long two texts take that are aligned."""
    value = colliding(3 * CHARACTERS).encode()
    rows: list[Row] = [
        [f"{measure}, characters that collide", seconds(align(measure), value, times) * 1000]
        for measure in (Measure.LCS, Measure.EDIT)
    ]
    note = f"What is kept of two texts, {CHARACTERS:,} characters each, without a threshold."
    return Table("Alignment of two texts", note, columns("texts", "ms|,.1f"), rows)


def main() -> None:
    """Run from the command line."""
    parser = arguments(__doc__)
    largest = Settings().max_document_bytes
    parser.add_argument("--bytes", type=int, default=largest, help="size of a message")
    parser.add_argument("--times", type=int, default=3, help="runs of which the least counts")
    parser.add_argument(
        "--rows", type=int, default=0, help="rows of a table, the most first; 0: all"
    )
    run(parser, measure)


if __name__ == "__main__":
    main()
