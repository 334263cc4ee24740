"""The clock that claim ids and fences go by, and one worker's entry into an index.

A hybrid logical clock (Kulkarni, Demirbas and others, *Logical physical clocks*, 2014). One number
in the index never goes back; each worker has a clock of its own that starts there, runs by the
monotonic clock of its machine, and is moved forward by whatever of the index it sees: the clock,
and fences, which are never more than ``longest_attempt`` behind it. No clock of the day is ever
believed alone, so one that is wrong, of a worker or of Redis, costs at most one more attempt.
"""

from __future__ import annotations

import secrets
import struct
import time
from collections.abc import Iterable

from stream_dedup.index.keys import ClaimIds

#: Seconds after which the clock of the index is asked for again.
_INTERVAL = 1.0
#: Milliseconds after which a worker does not count on its mark; a sweep drops it after a day.
_HALF_DAY = 43_200_000
_INCARNATION = struct.Struct("<8sIQQ")


class HybridClock:
    """Unix time as the index has it; never goes back."""

    def __init__(self) -> None:
        self._base = 0.0
        self._since = time.monotonic()
        self._next = 0.0

    def now(self) -> float:
        """Return seconds since the epoch."""
        return self._base + time.monotonic() - self._since

    def see(self, moment: float) -> None:
        """Move forward to what somebody else's clock has shown."""
        if moment > self.now():
            self._base, self._since = moment, time.monotonic()

    def is_due(self) -> bool:
        """Whether to ask the index for its clock; not again for a moment."""
        steady = time.monotonic()
        if steady < self._next:
            return False
        self._next = steady + _INTERVAL
        return True

    def brought(self) -> tuple[str, str]:
        """Return what a call brings: this clock and the time of day, in milliseconds."""
        return str(int(self.now() * 1000)), str(int(time.time() * 1000))


class Incarnation:
    """One entry of a worker into an index: its number, its token, and what it wrote where.

    Redis keeps the mark of the worker's latest call in each partition. One that is behind a mark
    which this worker knows to have been written shows that Redis has lost writes.

    Attributes:
        number: the worker's, part of its claim ids.
        token: distinguishes this entry from every other that gets the number.
    """

    def __init__(self, clock: HybridClock) -> None:
        self.number = 0
        self.token = secrets.token_bytes(8)
        self._clock = clock
        self._last = 0
        self._known: dict[int, int] = {}

    def keep_time(self) -> None:
        """Let marks go on from the present: a sweep sees by them who is idle."""
        self._last = max(self._last, ClaimIds.milliseconds(self._clock.now()))

    def begin(self) -> int:
        """Return the mark of the next round: it grows, and a sweep sees by it who is idle."""
        self._last = max(self._last + 1, ClaimIds.milliseconds(self._clock.now()))
        return self._last

    def carried(self, partition: int, mark: int) -> bytes:
        """Return what a call to a partition carries, given the mark of its round."""
        known = self._known.get(partition, 0)
        if known < self._last - _HALF_DAY:
            known = 0
        return _INCARNATION.pack(self.token, self.number, known, mark)

    def written(self, partitions: Iterable[int], mark: int) -> None:
        """Take note that some partitions have acknowledged the mark of a round."""
        self._known.update(dict.fromkeys(partitions, mark))
