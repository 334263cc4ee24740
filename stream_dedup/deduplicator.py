"""The corridor: a batch of documents in, a decision for each out."""

from __future__ import annotations

from collections.abc import Sequence

from stream_dedup.settings import Settings
from stream_dedup.types import Decision, Document


class Deduplicator:
    """Decides, for each document of a stream, whether it is an original or a duplicate."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()

    def decide(self, documents: Sequence[Document]) -> list[Decision]:
        """Decide a batch, in order."""
        raise NotImplementedError
