"""The table keys of a whole index, checked as they pass through an audit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from stream_dedup.index.audit_reading import (
    PENDING,
    UNKNOWN,
    VOID,
    Claims,
    Known,
    Rows,
    set_number,
)
from stream_dedup.index.base import Matcher
from stream_dedup.index.candidates import Bound
from stream_dedup.index.keys import Layout
from stream_dedup.index.pairs import entry_keys
from stream_dedup.runs import begins_of_runs
from stream_dedup.text.shingles import finalize

#: Table entries that are worked on at a time.
_BLOCK = 1 << 16
_SPREAD = np.uint64(0x2545F4914F6CDD1D)


class TableCounts(msgspec.Struct, frozen=True):
    """What stands in one table.

    Attributes:
        entries: claims entered.
        keys: different table keys.
        mean: entries of a key.
        fullest: entries of the fullest key.
    """

    entries: int
    keys: int
    mean: float
    fullest: int


class Entries:
    """The entries of all table keys, checked as they pass through.

    Attributes:
        kinds: entries of originals (0) and of other claims, by what they are.
        unknown: key and claim id of each entry of an unknown claim.
        seen: (originals, tables), whether the original stands in the table.
        times: how many entries each original has.
        sums: for each original a sum over its table keys, the same as ``spread`` gives.
        near: pairs of rows of originals that are near.
        pairs: pairs compared.
    """

    def __init__(self, known: Known, layout: Layout, matcher: Matcher, most: int) -> None:
        self._known = known
        self._matcher = matcher
        self._bits = [max(0, bits - layout.set_bits) for bits in layout.prefix_bits]
        tables, count = len(layout.prefix_bits), len(known.ids)
        self._share = Bound(most, tables).share
        self.kinds: Counter[int] = Counter()
        self.unknown: list[tuple[bytes, bytes]] = []
        self.seen = np.zeros((count, tables), np.bool_)
        self.times = np.zeros(count, np.int64)
        self.sums = np.zeros(count, np.uint64)
        self.near: set[tuple[int, int]] = set()
        self.pairs = 0
        self._counts = np.zeros((tables, 3), np.int64)

    def read(self, sets: Iterable[tuple[bytes, dict[bytes, float]]]) -> None:
        """Take in all sorted sets."""
        block: list[tuple[bytes, dict[bytes, float]]] = []
        size = 0
        for one in sets:
            block.append(one)
            size += len(one[1])
            if size >= _BLOCK:
                self._take(block)
                block, size = [], 0
        if size:
            self._take(block)

    def counts(self) -> list[TableCounts]:
        """Return what stands in each table."""
        return [
            TableCounts(entries, keys, round(entries / max(keys, 1), 4), fullest)
            for entries, keys, fullest in self._counts.tolist()
        ]

    def _take(self, block: Sequence[tuple[bytes, dict[bytes, float]]]) -> None:
        members = [claim for _, found in block for claim in found]
        scores = np.array([score for _, found in block for score in found.values()], np.uint64)
        numbers = [(*set_number(key), len(found)) for key, found in block]
        tables, names, sizes = np.array(numbers, np.int64).T
        tables = np.repeat(tables, sizes)
        shifts = np.array(self._bits, np.uint64)[tables]
        keys = (np.repeat(names, sizes).astype(np.uint64) << shifts) | scores
        rows = self._known.find(np.frombuffer(b"".join(members), ">u8").astype(np.uint64))
        self._note_unknown(rows, np.repeat(np.arange(len(block)), sizes), block, members)
        mine = rows >= 0
        for kind in (PENDING, VOID):
            self.kinds[kind] += int(np.count_nonzero(rows == kind))
        self.kinds[0] += int(np.count_nonzero(mine))
        self.seen[rows[mine], tables[mine]] = True
        np.add.at(self.times, rows[mine], 1)
        np.add.at(self.sums, rows[mine], spread(keys[mine], tables[mine]))
        groups, tables_of = _groups(keys, tables)
        self._count(groups, tables_of)
        self._compare(groups[mine], rows[mine])

    def _note_unknown(
        self,
        rows: Rows,
        sets: Rows,
        block: Sequence[tuple[bytes, dict[bytes, float]]],
        members: Sequence[bytes],
    ) -> None:
        for at in np.flatnonzero(rows == UNKNOWN).tolist():
            self.unknown.append((block[sets[at]][0], members[at]))

    def _count(self, groups: Rows, tables_of: Rows) -> None:
        """Count the entries of each key; all entries of a key are in one block."""
        sizes = np.bincount(groups, minlength=len(tables_of))
        np.add.at(self._counts[:, 0], tables_of, sizes)
        np.add.at(self._counts[:, 1], tables_of, 1)
        np.maximum.at(self._counts[:, 2], tables_of, sizes)

    def _compare(self, groups: Rows, rows: Rows) -> None:
        """Compare all originals of the same key with the oldest of them (see ``Bound``)."""
        order = np.lexsort((self._known.owners[rows], groups))
        groups, rows = groups[order], rows[order]
        begins = begins_of_runs(groups)
        firsts = np.flatnonzero(begins)[np.cumsum(begins) - 1]
        later = np.arange(len(rows))
        for place in range(self._share):
            later = later[later > firsts[later] + place]
            if not len(later):
                return
            self.pairs += len(later)
            self._compare_rows(rows[firsts[later] + place], rows[later])

    def _compare_rows(self, left: Rows, right: Rows) -> None:
        known, matcher = self._known, self._matcher
        _, near = matcher.compare_rows(known.evidence, left, known.evidence, right)
        near &= matcher.within_window(known.times[left], known.times[right]) & (left != right)
        found = np.sort(np.stack([left[near], right[near]], axis=1), axis=1)
        self.near.update(map(tuple, found.tolist()))


def spread(keys: Claims, tables: Rows) -> Claims:
    """Mix table keys, so that a sum of them tells which they are."""
    width = int(tables.max(initial=0)) + 1
    factors = entry_keys(np.zeros((1, width), np.uint64))[0]
    return finalize(keys ^ factors[tables], _SPREAD)


def _groups(keys: Claims, tables: Rows) -> tuple[Rows, Rows]:
    """Number the different table keys: the number of each entry, the table of each number."""
    order = np.lexsort((keys, tables))
    ordered, ordered_tables = keys[order], tables[order]
    first = begins_of_runs(ordered, ordered_tables)
    groups = np.empty(len(keys), np.int64)
    groups[order] = np.cumsum(first) - 1
    return groups, ordered_tables[first]
