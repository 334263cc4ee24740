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
    tenth of a worker's CPU time. Circles that the clients make are still found, only later.

    Args:
        batch_documents: size of a batch, at most.
    """
    gc.collect()
    gc.freeze()
    objects = max(_FEWEST_OBJECTS, _OBJECTS_PER_DOCUMENT * batch_documents)
    gc.set_threshold(objects, 20, 50)
