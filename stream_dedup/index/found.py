"""What probes came upon, page by page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stream_dedup.index.keys import Places
from stream_dedup.index.row_claims import RowClaims, unpacked
from stream_dedup.index.store import Claims, Numbers

#: Candidates in one reply for one row; a probe that has more goes on in further calls, so that a
#: template's table key neither blocks the server for long nor fills a reply.
PAGE = 128

_MORE = np.dtype("<u4")


def page_rows(limit: int) -> int:
    """Return how many candidates to ask for where ``limit`` are wanted."""
    return min(PAGE, limit)


class Found:
    """Claims that probes came upon, filled when the round is carried out.

    Attributes:
        places: what was probed, a row each.
        claims: the rows' own claims.
        limit: candidates of a row at most.
    """

    def __init__(self, places: Places, claims: Claims, limit: int) -> None:
        self.places = places
        self.claims = claims
        self.limit = limit
        self._met = RowClaims()
        self._unfinished: list[Numbers] = []
        self._full: list[Numbers] = []

    @property
    def pairs(self) -> tuple[Numbers, Claims]:
        """Rows of the probe and the claims found there, oldest first within a row."""
        return self._met.pairs

    @property
    def full(self) -> Numbers:
        """Rows that have more candidates than their limit, once all pages have been read."""
        return np.concatenate([np.zeros(0, np.int64), *self._full])

    def go_on(self, rows: Numbers, limit: int) -> None:
        """Read further pages of some rows that are full, up to a higher limit."""
        self._full = [np.setdiff1d(self.full, rows)]
        self._unfinished = [rows]
        self.limit = limit

    def take_unfinished(self) -> Numbers:
        """Return the rows that have more candidates, but for those that have reached the limit."""
        if not self._unfinished:
            return np.zeros(0, np.int64)
        rows = np.concatenate(self._unfinished)
        self._unfinished = []
        below = self._counts()[rows] < self.limit
        self._full.append(rows[~below])
        return rows[below]

    def next_page(self, rows: Numbers) -> tuple[Claims, int]:
        """Return the last claim of each row, and how many may follow.

        All of them have had the same number of full pages.
        """
        found, claims = self.pairs
        last = np.zeros(len(self.claims), np.uint64)
        np.maximum.at(last, found, claims)
        return last[rows], page_rows(self.limit - int(self._counts()[rows[0]]))

    def taker(self, index: Numbers) -> Callable[[Any], None]:
        """Return what takes the reply to the probes in ``index``."""

        def take(reply: Any) -> None:
            packed, more = reply
            if packed:
                rows, claims = unpacked(packed)
                self._met.add(index[rows], claims)
            if more:
                self._unfinished.append(index[np.frombuffer(more, _MORE).astype(np.int64)])

        return take

    def _counts(self) -> Numbers:
        return np.bincount(self.pairs[0], minlength=len(self.claims))
