"""Whom the documents of a batch came upon under their keys, as arrays."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stream_dedup.index.gathered import Seen
from stream_dedup.runs import begins_of_runs

Rows = npt.NDArray[np.int64]
Claims = npt.NDArray[np.uint64]

#: Pairs after which ``Met`` drops repeats.
_MERGED = 1 << 18


class Pairs(NamedTuple):
    """Rows and claims that they saw, each pair once, by row."""

    rows: Rows
    claims: Claims

    @classmethod
    def of(cls, rows: Rows, claims: Claims) -> Pairs:
        """Sort pairs, and drop repeats."""
        order = np.lexsort((claims, rows))
        rows, claims = rows[order], claims[order]
        first = begins_of_runs(rows, claims)
        return cls(rows[first], claims[first])

    def plus(self, others: Pairs) -> Pairs:
        """Return these and others."""
        rows = np.concatenate([self.rows, others.rows])
        return Pairs.of(rows, np.concatenate([self.claims, others.claims]))

    def parts(self, size: int) -> Iterator[Pairs]:
        """Split into parts of about so many pairs, all those of a row in one."""
        for part in parts_of(self.rows, size):
            yield Pairs(self.rows[part], self.claims[part])


class Sightings(NamedTuple):
    """Claims that documents came upon: a row, a table and a claim each, by row."""

    rows: Rows
    tables: Rows
    claims: Claims

    def of(self, rows: Collection[int] | Rows) -> Sightings:
        """Return those of some rows."""
        return self.where(np.isin(self.rows, np.fromiter(rows, np.int64, len(rows))))

    def without(self, rows: Collection[int]) -> Sightings:
        """Leave some rows out."""
        if not rows:
            return self
        return self.where(~np.isin(self.rows, np.fromiter(rows, np.int64, len(rows))))

    def where(self, kept: npt.NDArray[np.bool_]) -> Sightings:
        """Return those for which this holds."""
        return Sightings(self.rows[kept], self.tables[kept], self.claims[kept])

    def parts(self, size: int) -> Iterator[Sightings]:
        """Split into parts of about so many, all those of a row in one."""
        for part in parts_of(self.rows, size):
            yield Sightings(self.rows[part], self.tables[part], self.claims[part])

    def pairs(self) -> Pairs:
        """Return each row and claim once."""
        return Pairs.of(self.rows, self.claims)

    def places(self) -> tuple[Rows, Rows]:
        """Return each row and table once: the keys where rows saw somebody."""
        rows, tables = Pairs.of(self.rows, self.tables.astype(np.uint64))
        return rows, tables.astype(np.int64)

    def beyond(self, before: Sightings) -> Sightings:
        """Return those of claims that their rows had not seen before."""
        rows = np.concatenate([before.rows, self.rows])
        claims = np.concatenate([before.claims, self.claims])
        is_new = np.arange(len(rows)) >= len(before.rows)
        order = np.lexsort((is_new, claims, rows))
        begins = begins_of_runs(rows[order], claims[order])
        fresh = np.empty(len(rows), np.bool_)
        fresh[order] = is_new[order[begins]][np.cumsum(begins) - 1]
        return self.where(fresh[len(before.rows) :])

    def by_row(self, tables: int) -> dict[int, Seen]:
        """Return, for each row, what it saw under each of its keys."""
        seen: dict[int, Seen] = {}
        for row, table, claim in zip(*(column.tolist() for column in self), strict=True):
            if row not in seen:
                seen[row] = [[] for _ in range(tables)]
            seen[row][table].append(claim)
        return seen


def parts_of(rows: Rows, size: int) -> Iterator[slice]:
    """Split sorted rows into parts of about ``size``, equal ones in one part."""
    start = 0
    while start < len(rows):
        end = start + size
        if end < len(rows):
            # Back to where a row begins; one row alone may be larger.
            first = int(np.searchsorted(rows, rows[end]))
            end = first if first > start else int(np.searchsorted(rows, rows[start], side="right"))
        yield slice(start, end)
        start = end


class Met:
    """Pairs of a row and a claim that it came upon, and what comparing them said.

    Who is met again, as on the contended path, counts once.
    """

    def __init__(self) -> None:
        self._parts: list[tuple[npt.NDArray[np.int32], Claims, npt.NDArray[np.int8]]] = []
        self._size, self._most = 0, _MERGED

    def add(self, pairs: Pairs, compared: Rows, near: npt.NDArray[np.bool_]) -> None:
        """Add pairs, of which some were compared, and were near or not."""
        verdicts = np.full(len(pairs.rows), -1, np.int8)
        verdicts[compared] = near
        self._parts.append((pairs.rows.astype(np.int32), pairs.claims, verdicts))
        self._size += len(verdicts)
        if self._size > self._most:
            self._merge()
            self._most = max(_MERGED, 2 * self._size)

    def totals(self) -> tuple[int, int, int]:
        """Return how many pairs there are, how many of them are near, and how many are not."""
        verdicts = self._merge()
        return len(verdicts), int((verdicts == 1).sum()), int((verdicts == 0).sum())

    def _merge(self) -> npt.NDArray[np.int8]:
        if not self._parts:
            return np.zeros(0, np.int8)
        rows, claims, verdicts = (np.concatenate(one) for one in zip(*self._parts, strict=True))
        order = np.lexsort((verdicts, claims, rows))
        rows, claims, verdicts = rows[order], claims[order], verdicts[order]
        last = np.append(begins_of_runs(rows, claims)[1:], np.True_)[: len(rows)]
        self._parts = [(rows[last], claims[last], verdicts[last])]
        self._size = len(self._parts[0][0])
        return self._parts[0][2]
