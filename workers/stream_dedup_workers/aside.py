"""Work on the index beside the stream: a thread that takes little of the server and ends at once.

A thread will do: it waits for Redis or pauses most of its time, and what it does in between takes
milliseconds.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

#: Times as long as a round of calls took that the work then pauses: it takes a tenth of the server
#: and of the process at most.
_PAUSES = 9.0
#: Longest time that the end of the process waits for the end of the work.
_END_SECONDS = 5.0


class StoppedError(Exception):
    """The worker is to end."""


class Aside(ABC):
    """Work that goes on until it is stopped."""

    def __init__(self) -> None:
        self._stopped = threading.Event()

    @abstractmethod
    def run(self) -> None:
        """Go on until stopped; what goes wrong is tried again."""

    def stop(self) -> None:
        """End, also in the middle of a piece of work."""
        self._stopped.set()

    def _pause(self, seconds: float) -> None:
        """Pause after a round of calls that took some seconds.

        Raises:
            StoppedError: it is to end.
        """
        if self._stopped.wait(_PAUSES * seconds):
            raise StoppedError


@contextmanager
def aside(name: str, work: Aside) -> Iterator[None]:
    """Have work done in a thread of this name while the block runs."""
    thread = threading.Thread(target=work.run, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        work.stop()
        # It may be killed at any moment, and when it waits for a dead Redis it must be.
        thread.join(_END_SECONDS)
