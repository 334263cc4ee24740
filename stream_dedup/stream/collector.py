"""The garbage collector as a process wants it that handles one batch after the other."""

from __future__ import annotations

import gc

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


class Circles:
    """Has the collector find what refers to itself in a circle, after every so many bytes.

    A client may leave behind an error that holds the frames of whoever called it, and with them a
    batch. Counted in objects a batch of large documents is next to nothing, so that dozens of them
    would pile up until the collector runs by itself.

    Args:
        most: bytes that may have gone by since.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._gone_by = 0

    def soon(self) -> None:
        """Collect at the next batch: something failed, which is what leaves circles."""
        self._gone_by = self._most

    def note(self, size: int) -> None:
        """Count a batch of so many bytes, when all that came before can go."""
        if self._gone_by >= self._most:
            gc.collect()
            self._gone_by = 0
        self._gone_by += size
