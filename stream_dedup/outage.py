"""Log lines of something that is away for a while: few, however often it is tried."""

from __future__ import annotations

import logging
import time
from typing import Protocol

#: Time after the first line until the next, and the longest between two: each is twice the last.
TELL_AGAIN = (10.0, 600.0)


class Ticks(Protocol):
    """A clock that never goes back."""

    def monotonic(self) -> float:
        """Return seconds."""


class Outage:
    """Tells when something goes away, now and then that it still is, and when it is back.

    Args:
        log: takes the lines.
        what: its name as the beginning of a sentence, such as ``the index``.
        state: what is said of it while it is away.
        clock: the time; the ``time`` module is one.
    """

    def __init__(
        self,
        log: logging.Logger,
        what: str,
        clock: Ticks = time,
        *,
        state: str = "is out of reach",
    ) -> None:
        self._log = log
        self._what = what
        self._state = state
        self._clock = clock
        self._began: float | None = None
        self._due = 0.0
        self._pause = TELL_AGAIN[0]
        self._tries = 0

    def failed(self, cause: object) -> None:
        """Take note of a try that failed."""
        now = self._clock.monotonic()
        self._tries += 1
        if self._began is None:
            self._began, self._pause = now, TELL_AGAIN[0]
            self._due = now + self._pause
            self._log.warning(
                f"%(what)s {self._state}, trying again: %(cause)s", self._fields(now, cause)
            )
        elif now >= self._due:
            self._pause = min(2 * self._pause, TELL_AGAIN[1])
            self._due = now + self._pause
            self._log.warning(
                f"%(what)s {self._state} for %(seconds).0f s now, trying again: %(cause)s",
                self._fields(now, cause),
            )

    def ended(self) -> None:
        """Take note that it works."""
        if self._began is None:
            return
        fields = self._fields(self._clock.monotonic(), None)
        self._began, self._tries = None, 0
        self._log.info("%(what)s is back after %(seconds).1f s", fields)

    def _fields(self, now: float, cause: object) -> dict[str, object]:
        began = now if self._began is None else self._began
        fields = {"what": self._what, "seconds": round(now - began, 3), "tries": self._tries}
        return fields if cause is None else fields | {"cause": str(cause)}
