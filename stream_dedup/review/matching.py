"""Why two documents of the window match, by the settings in force."""

from __future__ import annotations

import threading
from functools import cached_property

from stream_dedup.deduplicator import Stages
from stream_dedup.explain import Comparison, compare
from stream_dedup.settings import Settings
from stream_dedup.types import Choice, Document


class Matching:
    """Compares documents, one pair at a time."""

    def __init__(self, settings: Settings) -> None:
        """Set up; what fingerprints is made when it is first asked."""
        self._settings = settings
        self._lock = threading.Lock()

    def prepare(self) -> None:
        """Make what fingerprints in a thread, so that the first page need not wait for it."""
        threading.Thread(target=lambda: self.configuration, name="prepare", daemon=True).start()

    @property
    def configuration(self) -> str:
        """Version of the fingerprint configuration in force."""
        with self._lock:
            return self._stages.configuration

    def explain(self, original: str, duplicate: str) -> Comparison:
        """Say why two texts match, or do not."""
        left, right = Document("original", original), Document("duplicate", duplicate)
        with self._lock:
            return compare(self._stages, left, right, differences=False)

    @cached_property
    def _stages(self) -> Stages:
        # A pair is compared whenever its documents came, and whichever would be preferred.
        return Stages(self._settings.model_copy(update={"window": None, "choice": Choice.FIRST}))
