"""The watermark of an index in Redis: the largest event time that any worker has seen."""

from __future__ import annotations

import time

from stream_dedup.index.expiry import NEVER, Horizon, Times
from stream_dedup.index.store import RedisStore

#: Seconds between two writes of one worker.
_INTERVAL = 1.0


class Watermark:
    """One worker's part in it.

    What is known here may be behind what others have written, so fewer documents than are may count
    as late; a sweep asks the index.
    """

    def __init__(self, store: RedisStore, horizon: Horizon) -> None:
        self._store = store
        self._horizon = horizon
        self._seen = NEVER
        self._written = NEVER
        self._next = 0.0

    def see(self, times: Times) -> tuple[int, int]:
        """Take in the event times of a batch; return how many are late, and how many ahead.

        Raises:
            ServiceError: the index is out of reach; the batch can be seen again.
        """
        horizon, now = self._horizon, time.time()
        if horizon.window is None:
            return 0, 0
        counts = horizon.late(times, max(self._seen, self._written)), horizon.ahead(times, now)
        self._seen = max(self._seen, horizon.watermark(times, now))
        if time.monotonic() >= self._next:
            self.flush()
        return counts

    def lost(self) -> None:
        """Write it again: the index may have lost it."""
        self._seen, self._written = max(self._seen, self._written), NEVER

    def flush(self) -> None:
        """Write what has been seen.

        Raises:
            ServiceError: the index is out of reach.
        """
        if self._seen > self._written:
            self._written, _ = self._store.advance(self._seen)
            self._next = time.monotonic() + _INTERVAL
