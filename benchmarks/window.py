"""Memory of an index with a window, while many windows go by: it must reach a plateau.

Run: python -m benchmarks.window [--plot docs/images/window.png]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.report import Report, Row, Table, arguments, columns, progress, run
from benchmarks.theory import BLUE, GREY, ORANGE
from stream_dedup.deduplicator import Deduplicator
from stream_dedup.fingerprint.fingerprinter import Fingerprinter, Fingerprints
from stream_dedup.index.base import Index, IndexBatch
from stream_dedup.index.connection import Client
from stream_dedup.index.expiry import Swept
from stream_dedup.index.redis import RedisIndex
from stream_dedup.settings import Settings
from tests.services.redis import RedisServer

BATCH = 500
#: Sweeps in each window.
SWEEPS = 5
#: Windows after which the table has a row.
_SHOWN = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
_PAGE_BYTES = 4096


class Point(NamedTuple):
    """An index after so many documents.

    Attributes:
        windows: that have gone by.
        originals: in it.
        bytes: memory that it takes.
        swept: what the sweep has removed that this point follows.
    """

    windows: float
    originals: int
    bytes: int
    swept: Swept


class RandomOriginals:
    """Makes batches of originals without texts, one each second of event time."""

    def __init__(self, settings: Settings) -> None:
        method = Fingerprinter(settings).method
        self._unused = 64 - np.array(method.prefix_bits, np.uint64)
        self._width = method.sketch_bytes
        self._rng = np.random.default_rng(1)

    def batch(self, first: int) -> IndexBatch:
        """Return the documents from this number on."""
        rng, numbers = self._rng, np.arange(first, first + BATCH)
        keys = rng.integers(1 << 64, size=(BATCH, len(self._unused)), dtype=np.uint64)
        return IndexBatch(
            ids=[f"document-{number}" for number in numbers.tolist()],
            identities=numbers.astype(np.uint64),
            times=numbers.astype(np.float64),
            prints=Fingerprints(
                empty=np.zeros(BATCH, np.bool_),
                digests=[rng.bytes(16) for _ in range(BATCH)],
                keys=keys >> self._unused,
                sketches=rng.integers(256, size=(BATCH, self._width), dtype=np.uint8),
            ),
            ranks=np.full(BATCH, np.inf),
        )


def watch(index: Index, settings: Settings, windows: int, memory: Callable[[], int]) -> list[Point]:
    """Let windows go by; measure after each sweep."""
    assert settings.window is not None
    window = int(settings.window)
    originals = RandomOriginals(settings)
    points = []
    every = window // SWEEPS // BATCH * BATCH
    for first in range(0, windows * window, BATCH):
        index.claim(originals.batch(first))
        end = first + BATCH
        if end % every == 0:
            swept = index.sweep()
            points.append(Point(end / window, swept.originals, memory(), swept))
    return points


def resident() -> int:
    """Return the memory of this process, bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES


def measure(options: argparse.Namespace) -> Report:
    """Watch both indexes."""
    window = float(options.window)
    settings = Settings(
        window=window,
        lateness=window / 10,
        # Windows go by in seconds here: claims must be old as soon, or their void bytes stay.
        longest_attempt=1.0,
        # What the plateau comes to: window, lateness, and what is between two sweeps.
        expected_originals=round(window * (1.2 + 1 / SWEEPS)),
    )
    progress("memory")
    with Deduplicator(settings) as embedded:
        before = resident()
        inside = watch(embedded.index, settings, options.windows, lambda: resident() - before)
    progress("redis")
    with RedisServer() as server:
        settings = settings.model_copy(update={"redis_url": server.url})
        with closing(RedisIndex.connect(settings)) as index:
            client = index.store.client
            empty = _used(client)
            outside = watch(index, settings, options.windows, lambda: _used(client) - empty)
    found = {"memory": inside, "Redis": outside}
    if options.plot:
        draw(found, window, options.plot)
    return Report("An index with a window", [_table(found, window)])


def _used(client: Client) -> int:
    info: dict[str, int] = client.info("memory")
    return int(info["used_memory"])


def _table(found: dict[str, list[Point]], window: float) -> Table:
    rows: list[Row] = [
        [
            f"{where}, {point.windows:.0f} windows",
            point.originals,
            point.bytes / 1e6,
            point.bytes / max(point.originals, 1),
            sum(one.swept.expired for one in points[: at + 1]),
            sum(one.swept.entries for one in points[: at + 1]),
        ]
        for where, points in found.items()
        for at, point in enumerate(points)
        if point.windows in _SHOWN
    ]
    note = (
        f"Originals only, one a second, a window of {window:,.0f} s, lateness a tenth of it, "
        f"{SWEEPS} sweeps in each window. Memory of the process (for the index in memory), or of "
        "the server, without what it took at the beginning; what all sweeps together removed."
    )
    header = columns("index, after", "originals|,", "MB|.1f", "bytes each|.0f")
    removed = columns("expired|,", "entries removed|,")
    return Table("Memory while windows go by", note, [*header, *removed], rows)


def draw(found: dict[str, list[Point]], window: float, path: Path) -> None:
    """Draw memory and originals over time."""
    # Imported here because the figures can be had without it.
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(10, 3.8), layout="constrained")
    count, memory = figure.subplots(1, 2)
    for (where, points), color in zip(found.items(), (BLUE, ORANGE), strict=True):
        windows = [point.windows for point in points]
        count.plot(windows, [point.originals for point in points], color=color, label=where)
        memory.plot(windows, [point.bytes / 1e6 for point in points], color=color, label=where)
    seen = [point.windows * window for point in points]
    count.plot(windows, seen, color=GREY, linestyle=":", label="without a window")
    count.set(title="Originals", xlabel="windows gone by", ylim=(0, 3 * window))
    memory.set(title="Memory, MB", xlabel="windows gone by", ylim=(0, None))
    for one in (count, memory):
        one.grid(alpha=0.25)
        one.spines[["top", "right"]].set_visible(False)
        one.legend(frameon=False)
    figure.savefig(path, dpi=144)


def main() -> None:
    """Run."""
    parser = arguments(__doc__)
    parser.add_argument("--window", type=int, default=5_000, help="originals in one window")
    parser.add_argument("--windows", type=int, default=12, help="windows to go by")
    parser.add_argument("--plot", type=Path, help="picture to write")
    run(parser, measure)


if __name__ == "__main__":
    main()
