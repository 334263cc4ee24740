"""Is this text known? Asked of the window's own originals where there is no index to ask.

The originals are fingerprinted in a thread beside the page, from the first question on, and kept in
an index in memory; how far that has come is said with each answer.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import NamedTuple

from stream_dedup.deduplicator import Deduplicator
from stream_dedup.query import Answer, Query, Question
from stream_dedup.review import queries
from stream_dedup.review.window import Window, unpacked
from stream_dedup.settings import Settings
from stream_dedup.types import Choice, Document

log = logging.getLogger(__name__)

#: Originals that are asked, at most: about 650 bytes of memory each.
MOST = 200_000
#: Documents read at a time; a question waits for no more than their originals.
_STEP = 128
#: Seconds between two looks for originals that have come since.
_PAUSE = 2.0


class Reach(NamedTuple):
    """What a text was compared with.

    Attributes:
        originals: originals of the window that were compared.
        complete: whether these are all that were there.
        bounded: whether there are more than may be.
    """

    originals: int
    complete: bool
    bounded: bool


class KnownOriginals:
    """An index of the window's originals, kept up in a thread of its own."""

    def __init__(self, settings: Settings, window: Window, most: int = MOST) -> None:
        """Set up; ``begin`` starts the thread."""
        # Whatever the stream's window: a text that is pasted here has no time.
        plain = settings.model_copy(update={"window": None, "choice": Choice.FIRST})
        self._settings = plain
        self._window = window
        self._most = most
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._index: tuple[Deduplicator, Query] | None = None
        self._last = 0
        self._count = 0
        self._complete = False

    def begin(self) -> None:
        """Start to fingerprint the originals, unless that has begun."""
        with self._lock:
            if self._thread is None and not self._stopped.is_set():
                self._thread = threading.Thread(target=self._run, name="known", daemon=True)
                self._thread.start()

    def ask(self, questions: Sequence[Question]) -> tuple[list[Answer], Reach]:
        """Answer questions as far as the originals have been fingerprinted."""
        self.begin()
        with self._lock:
            answers = self._opened()[1].ask(questions)
            reach = Reach(self._count, self._complete, self._count >= self._most)
        return answers, reach

    def step(self) -> bool:
        """Fingerprint some more originals; return whether there may be further ones."""
        with self._window.reader() as database:
            found = queries.texts_after(database, self._last, _STEP)
        documents = [
            Document(queries.read_id(one["id"]), unpacked(one["text"]))
            for one in found
            if one["status"] == 0 and one["text"] is not None
        ]
        with self._lock:
            deduplicator, _ = self._opened()
            if documents:
                deduplicator.index.register(deduplicator.prepare(documents))
            self._count += len(documents)
            self._last = found[-1]["row"] if found else self._last
            self._complete = len(found) < _STEP
        return not self._complete

    def close(self) -> None:
        """End the thread."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.is_set() and self._count < self._most:
            try:
                if not self.step():
                    self._stopped.wait(_PAUSE)
            except Exception:
                log.exception("the originals of the window cannot be fingerprinted")
                return

    def _opened(self) -> tuple[Deduplicator, Query]:
        if self._index is None:
            deduplicator = Deduplicator(self._settings)
            self._index = deduplicator, Query(self._settings, deduplicator.index)
        return self._index
