"""The garbage collector as a process wants it that handles one batch after the other."""

from __future__ import annotations

import ctypes
import gc
import sys
import time

#: Objects with references of their own that a document is made of on its way, generously.
_OBJECTS_PER_DOCUMENT = 50
_FEWEST_OBJECTS = 10_000


def calm(batch_documents: int) -> None:
    """Keep the collector from looking through every batch, and through all of the program with it.

    What a batch is made of refers to nothing in a circle, so it goes without the collector as soon
    as the next batch takes its place. By the settings that Python comes with, the collector still
    runs dozens of times in a batch, and now and then over everything that was ever imported: a
    tenth of a worker's CPU time. Circles that the clients make are still found, only later; where
    they may hold much, see ``Circles``.

    Args:
        batch_documents: size of a batch, at most.
    """
    gc.collect()
    gc.freeze()
    objects = max(_FEWEST_OBJECTS, _OBJECTS_PER_DOCUMENT * batch_documents)
    gc.set_threshold(objects, 20, 50)


#: Seconds after which circles are looked for, however little went by.
CIRCLE_SECONDS = 60.0


class Circles:
    """Has the collector find what refers to itself in a circle, after so many bytes or a minute.

    A client may leave behind an error that holds the frames of whoever called it, and with them a
    batch, or the socket of a connection that failed. Counted in objects that is next to nothing, so
    that dozens of them would pile up until the collector runs by itself. What a client that was
    replaced has freed goes back to the system too.

    Args:
        most: bytes that may have gone by since.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._gone_by = 0
        self._last = time.monotonic()

    def soon(self) -> None:
        """Collect at the next batch: something failed, which is what leaves circles."""
        self._gone_by = self._most

    def note(self, size: int) -> None:
        """Count a batch of so many bytes, or of none, when all that came before can go."""
        now = time.monotonic()
        due = now - self._last >= CIRCLE_SECONDS
        if due or self._gone_by >= self._most:
            gc.collect()
            self._gone_by = 0
        if due:
            give_back()
            self._last = now
        self._gone_by += size


def give_back() -> None:
    """Return free memory to the system, where the C library can.

    It keeps a heap for each thread, and threads of native clients come and go with every outage:
    after eight of them a quarter of a worker's memory was free, and still its own.
    """
    if _trim is not None:
        _trim(0)


_trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
