"""Runs the real pipeline over documents in the order in which they arrive."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from stream_dedup.deduplicator import Deduplicator
from stream_dedup.evaluate.sets import Rows
from stream_dedup.settings import Settings
from stream_dedup.types import Document

#: Documents decided together, as in a run over files.
_BATCH = 1024


def decide_all(settings: Settings, documents: Sequence[Document]) -> Rows:
    """Return, for each document, the position of its original: its own where it is one.

    The index is in memory. The pipeline sees each document under its position instead of its id,
    because ids need not be unique; an id is never compared.

    Raises:
        InputError: a window is set and a document has no time.
        SettingsError: no table design fits the settings.
    """
    originals: list[int] = []
    with Deduplicator(settings) as deduplicator:
        for first in range(0, len(documents), _BATCH):
            batch = [
                msgspec.structs.replace(document, id=position)
                for position, document in enumerate(documents[first : first + _BATCH], first)
            ]
            originals += [int(decision.original_id) for decision in deduplicator.decide(batch)]
    return np.array(originals, np.int64)
