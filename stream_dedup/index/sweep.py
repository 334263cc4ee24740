"""The sweep of an index in Redis: removes what is of no more use.

    clear     read the records, bucket by bucket. Each partition's *fence* is moved to the claims
              that are older than the longest attempt: behind it, an original whose time is over is
              removed, and so is every claim that is no original. Before the fence, an original
              whose time is over becomes void.
    withdraw  read all sorted sets, page by page, and remove the entries of void claims: those
              behind the fence that are no originals, and those before it that were seen void

Why it is right: a claim behind the fence that has no record is void, and the Functions give it none
any more (lua/claims.lua). So to remove a void claim changes nothing that anybody can see, and an
open one becomes void, as by any other worker. A claim that was no original behind the fence never
will be one, so its entries are of no use to anyone. What is removed is therefore final at each
step: a sweep may end at any moment, and any number may go side by side. The fence goes by the clock
of the index, as claim ids do (see ``clock``), but only to be polite: were it wrong, claims would be
made again, and none be decided wrongly.

Each call reads few keys, so that it holds up the server for a millisecond or two. In memory stand 8
bytes for each original.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stream_dedup.index import upkeep
from stream_dedup.index.expiry import Horizon, Swept
from stream_dedup.index.keys import ClaimIds, Places
from stream_dedup.index.progress import Progress
from stream_dedup.index.records import RecordFormat
from stream_dedup.index.store import Claims, Numbers, RedisStore
from stream_dedup.index.upkeep import Cleared, Upkeep
from stream_dedup.settings import Settings

#: Buckets in one call; they are laid out for 64 records each.
_BUCKETS = 8
#: Sorted sets in one round, at most; they are laid out for 16 members each.
_SETS = 512

#: Called after each round of calls with the seconds that it took.
Pause = Callable[[float], None]


def at_full_speed(_seconds: float) -> None:
    """Make no pause."""


class Sweeper:
    """One sweep."""

    def __init__(
        self,
        store: RedisStore,
        settings: Settings,
        records: RecordFormat,
        pause: Pause = at_full_speed,
    ) -> None:
        self._store = store
        self._horizon = Horizon.of(settings)
        self._longest_attempt = settings.longest_attempt
        self._time_at = records.time_at
        self._pause = pause

    def sweep(self) -> Swept:
        """Sweep the whole index.

        Raises:
            ServiceError: Redis is out of reach; what has been removed until then is. Or the index
                is being rebuilt: that registers under claim ids of the past, behind the fence.
        """
        Progress(self._store).refuse_unfinished()
        watermark, now = self._store.advance()
        fence = ClaimIds.first_at(now - self._longest_attempt)
        cutoff = self._horizon.expires_before(watermark)
        cleared = list(self._clear(fence, cutoff))
        fates = _Fates(
            np.uint64(fence),
            np.sort(np.concatenate([claims for one in cleared for claims in one.stay])),
            np.sort(np.concatenate([claims for one in cleared for claims in one.void])),
        )
        originals: dict[int, int] = {}
        for one in cleared:
            originals |= one.originals
        self._store.originals |= originals
        entries = sum(self._withdraw(fates))
        return Swept(
            expired=sum(one.expired for one in cleared),
            claims=sum(one.removed for one in cleared),
            entries=entries,
            originals=sum(originals.values()),
        )

    def _clear(self, fence: int, cutoff: float) -> Iterator[Cleared]:
        """Go through all records."""
        layout = self._store.layout
        for start in range(0, layout.buckets, _BUCKETS):
            buckets = range(start, min(layout.buckets, start + _BUCKETS))
            for partition in range(layout.partitions):
                began = time.monotonic()
                round_ = Upkeep(self._store)
                cleared = round_.clear(partition, buckets, fence, cutoff, self._time_at)
                round_.run()
                yield cleared
                self._pause(time.monotonic() - began)

    def _withdraw(self, fates: _Fates) -> Iterator[int]:
        """Go through all sorted sets; yield how many entries were removed."""
        withdrawal = _Withdrawal(self._store, fates)
        for suffixes, partitions in self._store.layout.sets():
            # Those of one partition together, so that few calls carry many.
            order = np.argsort(partitions, kind="stable")
            for rows in np.array_split(order, -(-len(order) // _SETS)):
                left, firsts = rows, np.zeros(len(rows), np.int64)
                while len(left):
                    began = time.monotonic()
                    removed = withdrawal.run(suffixes[left], partitions[left], firsts)
                    yield int(removed.counts.sum())
                    firsts = (firsts + upkeep.MEMBERS - removed.counts)[removed.full]
                    left = left[removed.full]
                    self._pause(time.monotonic() - began)


class _Removed(NamedTuple):
    """What was removed from some sorted sets.

    Attributes:
        counts: (sets,) int64 entries.
        full: the sets that may have more members.
    """

    counts: Numbers
    full: Numbers


class _Fates(NamedTuple):
    """Which claims are void, as far as a sweep can tell.

    Attributes:
        fence: of the claims before this one, all are void but for those that stay.
        stay: these, sorted.
        void: later claims that are void, sorted.
    """

    fence: np.uint64
    stay: Claims
    void: Claims

    def are_void(self, claims: Claims) -> npt.NDArray[np.bool_]:
        """Say which claims are void."""
        behind = claims < self.fence
        return (behind & ~_among(claims, self.stay)) | (~behind & _among(claims, self.void))


class _Withdrawal:
    """Removes the entries of all void claims."""

    def __init__(self, store: RedisStore, fates: _Fates) -> None:
        self._store = store
        self._fates = fates

    def run(
        self, suffixes: npt.NDArray[np.bytes_], partitions: Numbers, firsts: Numbers
    ) -> _Removed:
        """Go through one page of some sorted sets, from these ranks on."""
        round_ = Upkeep(self._store)
        listed = round_.members(suffixes, partitions, firsts)
        round_.run()
        sets, claims = listed.pairs
        over = self._fates.are_void(claims)
        sets, claims = sets[over], claims[over]
        if len(sets):
            round_ = Upkeep(self._store)
            scores = np.zeros(len(sets), "S16")  # to withdraw needs none
            round_.withdraw(Places(suffixes[sets], scores, partitions[sets]), claims)
            round_.run()
        return _Removed(np.bincount(sets, minlength=len(suffixes)), listed.full)


def _among(claims: Claims, chosen: Claims) -> npt.NDArray[np.bool_]:
    """Say which claims are among some others, which are sorted."""
    if not len(chosen):
        return np.zeros(len(claims), np.bool_)
    at = np.minimum(np.searchsorted(chosen, claims), len(chosen) - 1)
    found: npt.NDArray[np.bool_] = chosen[at] == claims
    return found
