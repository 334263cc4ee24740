"""Counts in how many documents a key occurs, of more keys than memory holds, exactly.

Keys are collected up to a limit, sorted and summed, and written to a run on disk; at the end the
runs are merged, one range of keys after the other (external sorting, Knuth 1998, volume 3, section
5.4). Memory is bound by the limit, whatever the number of documents; a run takes 16 bytes on disk
for each key that differs from all others in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.uint32]

#: Keys that are collected before they go to disk; with all that sorting takes some 400 MB.
RUN_KEYS = 1 << 21


class Counts(NamedTuple):
    """Keys, ascending, with what is known of each.

    Attributes:
        keys: (keys,) uint64, each once.
        groups: (keys,) uint32, the group that the key came with.
        counts: (keys,) uint32, how often it was added.
    """

    keys: Keys
    groups: Numbers
    counts: Numbers


class _Run:
    """Counts in a file, of which some can be read at a time."""

    def __init__(self, path: Path, counts: Counts) -> None:
        self._path = path
        self.length = len(counts.keys)
        with path.open("wb") as file:
            for column in counts:
                file.write(column.tobytes())

    def cuts(self, bounds: Keys) -> list[int]:
        """Return where the keys from each bound on begin, and before them 0, after them the end."""
        # Mapped for this search only: what is mapped and read counts as memory of the process.
        keys = np.memmap(self._path, np.uint64, "r", shape=(self.length,))
        return [0, *np.searchsorted(keys, bounds).tolist(), self.length]

    def read(self, start: int, stop: int) -> Counts:
        """Return some of the counts."""
        size = stop - start
        with self._path.open("rb") as file:
            file.seek(8 * start)
            keys = np.fromfile(file, np.uint64, size)
            file.seek(8 * self.length + 4 * start)
            groups = np.fromfile(file, np.uint32, size)
            file.seek(12 * self.length + 4 * start)
            return Counts(keys, groups, np.fromfile(file, np.uint32, size))


class KeyCounter:
    """Counts keys.

    Args:
        folder: an empty folder for runs; the caller removes it.
        run_keys: keys that are held in memory at most.
    """

    def __init__(self, folder: Path, run_keys: int = RUN_KEYS) -> None:
        self._folder = folder
        self._run_keys = run_keys
        self._collected: list[Counts] = []
        self._size = 0
        self._runs: list[_Run] = []

    def add(self, keys: Keys, groups: Numbers) -> None:
        """Count each key once; a key always comes with the same group."""
        self._collected.append(Counts(keys, groups, np.ones(len(keys), np.uint32)))
        self._size += len(keys)
        if self._size >= self._run_keys:
            self._write_run()

    def counts(self) -> Iterator[Counts]:
        """Yield all keys in order, some at a time; nothing can be added any more."""
        self._write_run()
        parts = -(-sum(run.length for run in self._runs) // self._run_keys)
        bounds = np.array([(part << 64) // parts for part in range(1, parts)], np.uint64)
        cuts = [run.cuts(bounds) for run in self._runs]
        for part in range(parts):
            yield _summed(
                [
                    run.read(cut[part], cut[part + 1])
                    for run, cut in zip(self._runs, cuts, strict=True)
                ]
            )

    def _write_run(self) -> None:
        if not self._size:
            return
        summed = _summed(self._collected)
        self._runs.append(_Run(self._folder / f"{len(self._runs)}.run", summed))
        self._collected, self._size = [], 0


def _summed(parts: list[Counts]) -> Counts:
    """Put parts together: each key once, with its counts added up."""
    keys, groups, counts = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    firsts = np.flatnonzero(np.diff(keys, prepend=keys[:1] + np.uint64(1)))
    return Counts(
        keys[firsts], groups[order][firsts], np.add.reduceat(counts[order], firsts, dtype=np.uint32)
    )
