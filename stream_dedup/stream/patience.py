"""Growing pauses while a service is out of reach, up to a point."""

from __future__ import annotations

from typing import Protocol

from stream_dedup.errors import RefusedCallError, ServiceError

#: Time for which a batch is tried again before the process gives up. Far below the three
#: minutes after which Kafka takes a member that does not poll for dead.
GIVE_UP_SECONDS = 60.0
#: The same where a service works, but not for this batch: to wait for it is in vain.
REFUSED_SECONDS = 5.0
#: First and longest pause between two tries.
BACKOFF = (0.1, 5.0)


class Clock(Protocol):
    """The time, and waiting; the ``time`` module is one."""

    def monotonic(self) -> float:
        """Return seconds that never go back."""

    def time(self) -> float:
        """Return seconds since the epoch."""

    def sleep(self, seconds: float, /) -> None:
        """Wait."""


class Patience:
    """Waits between tries, and gives up when they have gone on for ``limit`` seconds."""

    def __init__(self, clock: Clock, limit: float = GIVE_UP_SECONDS) -> None:
        self._clock = clock
        self._limit = limit
        self.reset()

    def reset(self) -> None:
        """Begin anew: it works again."""
        self._began: float | None = None
        self._pause = BACKOFF[0]

    def wait(self, error: Exception) -> None:
        """Wait a little.

        Raises:
            RefusedCallError: it has been too long, and the last error was one.
            ServiceError: it has been too long; caused by ``error``.
        """
        refused = isinstance(error, RefusedCallError)
        limit = min(self._limit, REFUSED_SECONDS) if refused else self._limit
        now = self._clock.monotonic()
        if self._began is None:
            self._began = now
        if now - self._began >= limit:
            msg = f"No batch could be finished for {limit:.0f} s: {error}"
            failure = RefusedCallError if refused else ServiceError
            raise failure(msg) from error
        self._clock.sleep(self._pause)
        self._pause = min(2 * self._pause, BACKOFF[1])
