"""Calls to Redis that keep an index tidy: forgetting and sweeping."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from stream_dedup.index.rounds import Round, grouped
from stream_dedup.index.row_claims import RowClaims
from stream_dedup.index.store import Bytes, Claims, Numbers, RedisStore

#: Members of one sorted set in one reply.
MEMBERS = 1000


class Cleared:
    """What the records of some buckets came to, filled when the round is carried out.

    Attributes:
        stay: claims of the originals behind the fence that stay.
        void: void claims before the fence.
        expired: originals that were removed.
        removed: other claims that were removed.
        originals: originals in each partition.
    """

    def __init__(self) -> None:
        self.stay: list[Claims] = []
        self.void: list[Claims] = []
        self.expired = self.removed = 0
        self.originals: dict[int, int] = {}

    def taker(self, partition: int) -> Callable[[Any], None]:
        """Return what takes the reply of a partition."""

        def take(reply: Any) -> None:
            stay, void, expired, removed, self.originals[partition] = reply
            self.stay.append(np.frombuffer(stay, ">u8").astype(np.uint64))
            self.void.append(np.frombuffer(void, ">u8").astype(np.uint64))
            self.expired += expired
            self.removed += removed

        return take


class Listed:
    """Members of sorted sets, filled when the round is carried out."""

    def __init__(self) -> None:
        self._standing = RowClaims()
        self._full: list[Numbers] = []

    @property
    def pairs(self) -> tuple[Numbers, Claims]:
        """Rows of what was asked for, and the claims that stand there."""
        return self._standing.pairs

    @property
    def full(self) -> Numbers:
        """Rows that may have more members."""
        return np.concatenate(self._full) if self._full else np.zeros(0, np.int64)

    def taker(self, index: Numbers) -> Callable[[Any], None]:
        """Return what takes the reply to the rows in ``index``."""

        def take(reply: Any) -> None:
            counts = np.frombuffer(reply[0], "<u4").astype(np.int64)
            claims = np.frombuffer(reply[1], ">u8").astype(np.uint64)
            self._standing.add(np.repeat(index, counts), claims)
            self._full.append(index[counts == MEMBERS])

        return take


class Upkeep(Round):
    """A round of such calls."""

    def __init__(self, store: RedisStore) -> None:
        """Start a round of calls."""
        super().__init__(store)
        width = f"S{store.layout.suffix_width}"
        self._list_row = np.dtype([("suffix", width), ("first", "<u4")])

    def retire(self, claims: Claims) -> Bytes:
        """Make originals void; the array holds the fates before when the round is carried out."""
        partitions, rows = self._record_rows(claims)
        fates = np.zeros(len(claims), np.uint8)

        def taker(index: Numbers) -> Callable[[Any], None]:
            def take(reply: Any) -> None:
                fates[index] = np.frombuffer(reply, np.uint8)

            return take

        for partition, index in grouped(partitions):
            self._send("retire", partition, rows[index].tobytes(), then=taker(index))
        return fates

    def clear(
        self, partition: int, buckets: range, fence: int, cutoff: float, time_at: int
    ) -> Cleared:
        """Remove from buckets what is over; see the Function.

        Args:
            partition: where they are.
            buckets: their numbers.
            fence: claims before it that are no originals can never become any.
            cutoff: event time before which originals go.
            time_at: where in a record it stands.
        """
        cleared = Cleared()
        self._send(
            "clear",
            partition,
            np.arange(buckets.start, buckets.stop, dtype="<u4").tobytes(),
            fence.to_bytes(8, "big"),
            np.array(cutoff, "<f8").tobytes(),
            time_at + 2,  # after the fate, and the server counts from 1
            then=cleared.taker(partition),
        )
        return cleared

    def members(
        self, suffixes: npt.NDArray[np.bytes_], partitions: Numbers, firsts: Numbers
    ) -> Listed:
        """List sorted sets, one row each, from the member of this rank on."""
        listed = Listed()
        rows = np.zeros(len(suffixes), self._list_row)
        rows["suffix"], rows["first"] = suffixes, firsts
        for partition, index in grouped(partitions):
            arguments = (self._layout.suffix_width, MEMBERS)
            then = listed.taker(index)
            self._send("list", partition, rows[index].tobytes(), *arguments, then=then)
        return listed
