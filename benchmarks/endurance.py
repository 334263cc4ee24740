"""Whether what is sampled over a long time grows: verdicts, a table and a picture."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.report import Row, Table, columns

#: Parts of the time that are compared: around half-time, and at the end.
MIDDLE, LAST = (0.375, 0.625), (0.75, 1.0)
#: Growth that is allowed from one to the other: a share, and what is allowed in any case. Objects
#: come and go with the collector, which waits for 50,000 of them (``stream.collector``), and
#: connections that were dropped are opened again when there is something to ask.
ALLOWED = {
    "memory, MiB": (0.05, 5.0),
    "descriptors": (0.0, 1.0),
    "threads": (0.0, 1.0),
    "objects": (0.05, 50_000.0),
    "connections": (0.0, 2.0),
}
#: What is told but may grow: the index is as large as what it holds.
TOLD = frozenset({"Redis"})


class Point(NamedTuple):
    """A value at one time: seconds since the beginning, whose, of what, and how much."""

    at: float
    whose: str
    what: str
    value: float


class Verdict(NamedTuple):
    """A series' middle values in both parts of the time, and the growth that is allowed."""

    whose: str
    what: str
    middle: float
    last: float
    allowed: float

    @property
    def kept(self) -> bool:
        """Whether it did not grow."""
        return self.whose in TOLD or self.last - self.middle <= self.allowed


def verdicts(points: Sequence[Point], seconds: float) -> Iterator[Verdict]:
    """Yield a verdict for each series."""
    series: dict[tuple[str, str], list[Point]] = defaultdict(list)
    for point in points:
        series[(point.whose, point.what)].append(point)
    for (whose, what), some in series.items():
        middle, last = (
            float(np.median([one.value for one in some if low <= one.at / seconds <= high]))
            for low, high in (MIDDLE, LAST)
        )
        share, least = ALLOWED[what]
        yield Verdict(whose, what, middle, last, max(share * middle, least))


def growth_table(found: Sequence[Verdict], minutes: float) -> Table:
    """Return what all series were and whether they grew."""
    rows: list[Row] = [
        [
            f"{one.whose}: {one.what}",
            one.middle,
            one.last,
            one.last - one.middle,
            None if one.whose in TOLD else one.allowed,
            "–" if one.whose in TOLD else "yes" if one.kept else "NO",
        ]
        for one in found
    ]
    note = (
        f"Medians of all samples of two quarters of {minutes:g} minutes: that around "
        "half-time and the last. Resident memory; descriptors are open files and sockets; objects "
        "are those that Python's collector tracks in a worker process; connections are those of "
        "both programs to Redis, taken while no other program was there. Redis grows until as much "
        "leaves its window as comes in."
    )
    header = columns("whose, what", "half-time|,.1f", "end|,.1f", "growth|+,.1f", "allowed|,.1f")
    return Table("What is taken", note, [*header, *columns("kept")], rows)


def draw(points: Sequence[Point], path: Path) -> None:
    """Draw memory, descriptors and threads over time."""
    # Imported here because the figures can be had without it.
    from matplotlib.figure import Figure  # noqa: PLC0415

    shown = ("memory, MiB", "descriptors", "threads")
    figure = Figure(figsize=(12, 3.8), layout="constrained")
    for axes, what in zip(figure.subplots(1, len(shown)), shown, strict=True):
        for whose in dict.fromkeys(one.whose for one in points if one.what == what):
            some = [one for one in points if (one.whose, one.what) == (whose, what)]
            axes.plot([one.at / 60 for one in some], [one.value for one in some], label=whose)
        axes.set(title=what, xlabel="minutes", ylim=(0, None))
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize="small")
    figure.savefig(path, dpi=144)
