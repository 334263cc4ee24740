"""Originals of the memory index, as columns that grow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from stream_dedup.fingerprint.fingerprinter import Fingerprints
from stream_dedup.index.base import Attachment, IndexBatch, Registered
from stream_dedup.index.candidates import Candidates
from stream_dedup.types import DocumentId, Score
from stream_dedup.verify.evidence import Evidence

_MIN_ROWS = 1024


class Originals:
    """One row for each original, numbered from 0 in order of registration.

    A forgotten one keeps its row until ``keep`` is called, so that the others keep their numbers.
    """

    def __init__(
        self, sketch_bytes: int, *, keeps_ranks: bool = False, renews: bool = False
    ) -> None:
        self.ids: list[DocumentId] = []
        self._identities = _Column(np.uint64)
        self._times = _Column(np.float64)
        self._digests = _Column(np.uint64, 2)
        self._sketches = _Column(np.uint8, sketch_bytes)
        self._payloads: list[bytes] = []
        self._ranks = _Column(np.float64) if keeps_ranks else None
        self._renewed = _Column(np.float64) if renews else None
        self._alive = _Column(np.bool_)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.ids)

    @property
    def alive(self) -> npt.NDArray[np.bool_]:
        """(originals,) bool, which are not forgotten."""
        return self._alive.values

    @property
    def identities(self) -> npt.NDArray[np.uint64]:
        """(originals,) uint64, see ``IndexBatch``."""
        return self._identities.values

    @property
    def times(self) -> npt.NDArray[np.float64]:
        """(originals,) float64 event times, seconds since the epoch."""
        return self._times.values

    @property
    def renewed(self) -> npt.NDArray[np.float64]:
        """(originals,) float64 times to which they were renewed; without that, the event times."""
        return self.times if self._renewed is None else self._renewed.values

    @property
    def digests(self) -> npt.NDArray[np.uint64]:
        """(originals, 2) uint64 digests of the normalised texts."""
        return self._digests.values

    @property
    def evidence(self) -> Evidence:
        """What verification compares."""
        return Evidence(self._sketches.values, self._payloads)

    def ranks(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Return the ranks of some originals; infinite where ranks are not kept."""
        if self._ranks is None:
            return np.full(len(numbers), np.inf)
        kept: npt.NDArray[np.float64] = self._ranks.values[numbers]
        return kept

    def append(self, batch: IndexBatch) -> npt.NDArray[np.int64]:
        """Add originals; return their numbers."""
        first = len(self.ids)
        self.ids += batch.ids
        self._identities.append(batch.identities)
        self._times.append(batch.times)
        self._digests.append(batch.digest_words())
        self._sketches.append(batch.prints.sketches)
        self._payloads += batch.prints.payloads
        if self._ranks is not None:
            self._ranks.append(batch.ranks)
        if self._renewed is not None:
            self._renewed.append(batch.times)
        self._alive.append(np.ones(len(batch), np.bool_))
        return np.arange(first, len(self.ids))

    def candidates(
        self,
        rows: npt.NDArray[np.int64],
        tables: npt.NDArray[np.int64],
        numbers: npt.NDArray[np.int64],
    ) -> Candidates:
        """Describe some originals that share a key, in so many tables, with some documents."""
        return Candidates(
            rows,
            tables,
            [self.ids[number] for number in numbers.tolist()],
            self.identities[numbers],
            self.times[numbers],
            self.digests[numbers],
            self.evidence.rows(numbers),
            self.ranks(numbers),
            self.renewed[numbers],
        )

    def renew(self, numbers: npt.NDArray[np.int64], times: npt.NDArray[np.float64]) -> None:
        """Let the time of some originals go on to these times; it never goes back."""
        np.maximum.at(self.renewed, numbers, times)

    def forget(self, numbers: npt.NDArray[np.int64]) -> None:
        """Say that some originals are none any more."""
        self.alive[numbers] = False

    def keep(self, kept: npt.NDArray[np.bool_]) -> None:
        """Drop all rows but some, which are numbered anew in order, and give their room back."""
        numbers = np.flatnonzero(kept).tolist()
        self.ids = [self.ids[number] for number in numbers]
        if self._payloads:
            self._payloads = [self._payloads[number] for number in numbers]
        for column in vars(self).values():
            if isinstance(column, _Column):
                column.keep(kept)

    def registered(self, number: int) -> Registered:
        """Describe one original by its id and text."""
        return Registered(
            self.ids[number],
            self.digests[number].tobytes(),
            int(self.identities[number]),
            float(self.times[number]),
        )

    def rows(self, start: int, end: int, keys: npt.NDArray[np.uint64]) -> IndexBatch:
        """Return some neighbouring originals with their table keys, (originals, tables)."""
        numbers = np.arange(start, min(end, len(self)))
        digests = self.digests[numbers].tobytes()
        prints = Fingerprints(
            np.zeros(len(numbers), np.bool_),
            [digests[at : at + 16] for at in range(0, len(digests), 16)],
            keys,
            self._sketches.values[numbers],
            self._payloads[start:end],
        )
        ids, times = self.ids[start:end], self.times[numbers]
        return IndexBatch(ids, self.identities[numbers], times, prints, self.ranks(numbers))

    def attachments(
        self, numbers: npt.NDArray[np.int64], scores: Sequence[Score], exact: npt.NDArray[np.bool_]
    ) -> list[Attachment]:
        """Describe originals for the duplicates that are attached to them.

        Args:
            numbers: (duplicates,) the originals.
            scores: how near each is.
            exact: (duplicates,) whether the texts are equal.
        """
        digests = self.digests[numbers].tobytes()
        rows = zip(numbers.tolist(), scores, exact.tolist(), strict=True)
        return [
            Attachment(self.ids[number], digests[16 * at : 16 * at + 16], score, is_exact)
            for at, (number, score, is_exact) in enumerate(rows)
        ]


class _Column:
    """A numpy array that grows by doubling."""

    def __init__(self, dtype: Any, *shape: int) -> None:
        self._array = np.empty((_MIN_ROWS, *shape), dtype)
        self._used = 0

    @property
    def values(self) -> npt.NDArray[Any]:
        return self._array[: self._used]

    def append(self, rows: npt.NDArray[Any]) -> None:
        end = self._used + len(rows)
        if end > len(self._array):
            self._allocate(self.values, end)
        self._array[self._used : end] = rows
        self._used = end

    def keep(self, kept: npt.NDArray[np.bool_]) -> None:
        rows = self.values[kept]
        self._used = len(rows)
        self._allocate(rows, max(_MIN_ROWS, len(rows)))

    def _allocate(self, rows: npt.NDArray[Any], needed: int) -> None:
        size = 1 << (needed - 1).bit_length()
        array = np.empty((size, *self._array.shape[1:]), self._array.dtype)
        array[: len(rows)] = rows
        self._array = array
