"""A multimap from 64-bit keys to numbers, probed and filled a whole batch at a time.

Entries with the same hash slot form a ring, oldest first: ``_lasts[slot]`` is the newest entry, -1
where there is none, and its ``after`` the oldest. So a search that wants the oldest entries of a
key need not go through all of them. 20 bytes for an entry (key 8, value 4, ring 4, slot 4) when the
arrays are full, twice that just after they have grown.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from stream_dedup.runs import begins_of_runs

Numbers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]

_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_MAX_ENTRIES = (1 << 31) - 1
_MIN_ENTRIES = 1 << 12
_LINK_STEP = 1 << 18
_END = -1
#: What belongs to an entry lies together: in a large table each look at one is a cache miss.
_ENTRY = np.dtype([("key", np.uint64), ("value", np.int32), ("after", np.int32)])


class PrefixTable:
    """Maps keys to values; a key may have any number of them."""

    def __init__(self, capacity: int = _MIN_ENTRIES) -> None:
        """Make room for ``capacity`` entries, a power of two; it grows by itself."""
        self._entries = np.empty(capacity, _ENTRY)
        self._lasts = np.full(capacity, _END, np.int32)
        self._used = 0
        #: For each value up to the largest that is hidden, whether it is.
        self._hidden = np.zeros(0, np.bool_)

    def __len__(self) -> int:
        """Return the number of entries."""
        return self._used

    @property
    def keys(self) -> Keys:
        """(entries,) uint64, the key of each entry in the order in which they were added."""
        return self._entries["key"][: self._used]

    def add(self, keys: Keys, values: Numbers) -> None:
        """Add an entry for each key.

        Raises:
            MemoryError: the table would hold more than 2^31 entries.
        """
        start, end = self._used, self._used + len(keys)
        if end > len(self._entries):
            self._grow(end)
        self._entries["key"][start:end] = keys
        self._entries["value"][start:end] = values
        self._used = end
        self._link(start, end)

    def find(self, keys: Keys, limit: int | None = None) -> tuple[Numbers, Numbers]:
        """Return pairs (position in ``keys``, value) of the entries that have each key.

        Args:
            keys: what to look for.
            limit: entries of a key at most, the oldest; all if left out. Those of a key come in the
                order in which they were added.
        """
        lasts = self._lasts[self._slots(keys)]
        positions = np.flatnonzero(lasts != _END)
        lasts = lasts[positions]
        entries = self._entries.take(lasts)["after"]
        found: list[tuple[Numbers, Numbers]] = []
        steps, counts = 0, np.zeros(0, np.int64)
        before = lasts
        while len(positions):
            met = self._entries.take(entries)
            is_found = met["key"] == keys[positions]
            if len(self._hidden):
                is_shown = self._is_shown(met["value"])
                is_found &= is_shown
                # What is hidden leaves its ring when it is met, so nobody meets it again.
                is_linked = is_shown | (entries == lasts)
                self._entries["after"][before[is_linked]] = entries[is_linked]
                before = np.where(is_linked, entries, before)
            equal = np.flatnonzero(is_found)
            if len(equal):
                found.append((positions[equal], met["value"][equal].astype(np.int64)))
            going = entries != lasts
            steps += 1
            # No key has more entries than steps were gone, so before that nothing need be counted.
            if limit is not None and steps >= limit:
                if steps == limit:
                    met_so_far = [positions[:0], *(some for some, _ in found)]
                    counts = np.bincount(np.concatenate(met_so_far), minlength=len(keys))
                else:
                    counts[positions[equal]] += 1
                going &= counts[positions] < limit
            alive = np.flatnonzero(going)
            positions, lasts, entries = positions[alive], lasts[alive], met["after"][alive]
            before = before[alive]
        if not found:
            return positions[:0], positions[:0]
        where, values = (np.concatenate(column) for column in zip(*found, strict=True))
        return where, values

    def hide(self, values: Numbers) -> None:
        """Find entries with these values no more; they keep their room until ``keep`` is called.

        They leave their rings when they are met, so that a key whose entries come and go again and
        again is searched no longer than one that has as many.
        """
        # One more than needed, so that every value beyond the largest stands for "not hidden".
        size = int(values.max(initial=-1)) + 2
        if size > len(self._hidden):
            longer = np.zeros(1 << (size - 1).bit_length(), np.bool_)
            longer[: len(self._hidden)] = self._hidden
            longer[-1] = False
            self._hidden = longer
        self._hidden[values] = True

    def keep(self, kept: npt.NDArray[np.bool_]) -> None:
        """Drop the entries of some values and give their room back.

        Args:
            kept: (values,) bool, which values stay; these are numbered anew, from 0 in order.
        """
        entries = self._entries[: self._used]
        entries = entries[kept[entries["value"]]]
        numbers = (np.cumsum(kept) - 1).astype(np.int32)
        entries["value"] = numbers[entries["value"]]
        self._used = len(entries)
        self._hidden = np.zeros(0, np.bool_)
        self._allocate(max(_MIN_ENTRIES, _power_of_two(self._used)), entries)

    def _is_shown(self, values: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
        shown: npt.NDArray[np.bool_] = ~self._hidden[np.minimum(values, len(self._hidden) - 1)]
        return shown

    def _slots(self, keys: Keys) -> Numbers:
        bits = len(self._lasts).bit_length() - 1
        return ((keys * _SPREAD) >> np.uint64(64 - bits)).astype(np.int64)

    def _link(self, start: int, end: int) -> None:
        """Put entries ``start`` to ``end`` at the ends of their rings."""
        # Both numbers are below 2^31, and to sort one array is far faster than to order another.
        packed = self._slots(self._entries["key"][start:end]) << 32
        packed |= np.arange(start, end)
        packed.sort()
        slots, entries = packed >> 32, packed.astype(np.int32)
        # Entries of one batch in the same slot point to one another, the last to the oldest of all.
        first = begins_of_runs(slots)
        last = np.append(first[1:], np.True_)[: len(slots)]
        after = np.empty(len(slots), np.int32)
        after[:-1] = entries[1:]
        slots, firsts, newest = slots[last], entries[first], entries[last]
        lasts = self._lasts[slots]
        oldest = firsts.copy()
        joined = np.flatnonzero(lasts != _END)
        if len(joined):
            oldest[joined] = self._entries["after"][lasts[joined]]
            self._entries["after"][lasts[joined]] = firsts[joined]
        after[last] = oldest
        self._entries["after"][entries] = after
        self._lasts[slots] = newest

    def _grow(self, needed: int) -> None:
        if needed > _MAX_ENTRIES:
            msg = "the memory index is full: it holds at most 2^31 table entries; use Redis"
            raise MemoryError(msg)
        self._allocate(_power_of_two(needed), self._entries[: self._used])

    def _allocate(self, capacity: int, entries: npt.NDArray[Any]) -> None:
        """Make room for ``capacity`` entries, of which these are all that there are."""
        self._entries = np.empty(capacity, _ENTRY)
        self._entries[: self._used] = entries
        self._lasts = np.full(capacity, _END, np.int32)
        for start in range(0, self._used, _LINK_STEP):
            self._link(start, min(start + _LINK_STEP, self._used))


def _power_of_two(count: int) -> int:
    """Return the smallest one that is at least ``count``."""
    return 1 << max(0, count - 1).bit_length()
