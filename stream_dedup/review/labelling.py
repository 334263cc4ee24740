"""The labels, and a thread that draws pairs to label beside the pages."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from typing import Any

from stream_dedup.errors import StreamDedupError
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.review.label_types import LastDraw
from stream_dedup.review.labels import Labels
from stream_dedup.review.pairs import draw
from stream_dedup.review.strata import Scale
from stream_dedup.review.window import Window
from stream_dedup.settings import Settings

_log = logging.getLogger(__name__)

#: Seconds between two looks at whether pairs are wanted.
_PAUSE = 1.0
#: Seconds that must have passed since the last draw, and how many times as long as it took.
_LEAST_APART, _TIMES_AS_LONG = 60.0, 10.0
#: The window is drawn from again when it has grown by this share, or fewer pairs are left.
_GROWN, _FEW_LEFT = 0.2, 20


class Labelling:
    """Keeps labels, and pairs to label at hand.

    Attributes:
        scale: how pairs are cut into strata.
        trouble: why no pairs can be drawn; empty where they can.
        drawing: whether a draw is being made.
        differs: whether the window was decided under another configuration than is set here.
    """

    def __init__(self, settings: Settings, window: Window) -> None:
        """Set up; the file of the labels is made when somebody wants pairs.

        Args:
            settings: the settings.
            window: what pairs are drawn from.
        """
        self.scale = Scale(settings)
        self.trouble = ""
        self.drawing = self.differs = False
        self._settings = settings
        self._window = window
        self._labels: Labels | None = None
        self._opening = threading.Lock()
        self._wanted = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="draw", daemon=True)
        self._seen_documents = self._drawn_documents = 0
        self._not_before = 0.0

    @property
    def labels(self) -> Labels:
        """The labels.

        Raises:
            StateError: their file cannot be used.
        """
        with self._opening:
            if self._labels is None:
                self._labels = Labels(self._settings.review_labels)
            return self._labels

    @property
    def described(self) -> dict[str, Any]:
        """What a draw is told to have been made under; one of other values is of no use."""
        return {
            "near_from": self.scale.near_from,
            "by_hamming": self.scale.by_hamming,
            "edges": list(self.scale.edges),
        }

    def start(self) -> None:
        """Begin to draw, once somebody wants pairs."""
        self._thread.start()

    def want(self) -> LastDraw | None:
        """Say that somebody wants pairs; return the newest draw, if it is of use."""
        self._wanted.set()
        last = self.labels.last_draw()
        return last if last is not None and last.settings == self.described else None

    def close(self) -> None:
        """Stop."""
        self._ended.set()
        self._wanted.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._labels is not None:
            self._labels.close()

    def draw_once(self) -> bool:
        """Draw now; return whether there were pairs.

        Raises:
            StreamDedupError: the settings cannot be used.
        """
        last = self.labels.last_draw()
        seed = 0 if last is None else last.seed + 1
        drawn = draw(self._window, self._settings, seed, lambda: not self._ended.is_set())
        if drawn is not None:
            self.differs = drawn.configuration != Fingerprinter(self._settings).configuration
            self.labels.add(drawn, self.scale, self.described)
        return drawn is not None and bool(drawn.pairs)

    def _run(self) -> None:
        while not self._ended.is_set():
            self._wanted.wait()
            self._wanted.clear()
            while not self._ended.is_set() and not self._is_due():
                self._ended.wait(_PAUSE)
            if not self._ended.is_set():
                self._draw()

    def _draw(self) -> None:
        began, documents = time.monotonic(), self._documents()
        self.drawing = True
        try:
            self.draw_once()
            self.trouble = ""
        except (StreamDedupError, sqlite3.Error) as error:
            self.trouble = str(error)
            _log.warning("No pairs to label can be drawn: %s", error)
        finally:
            self.drawing = False
        took = time.monotonic() - began
        self._drawn_documents = documents
        self._not_before = time.monotonic() + max(_LEAST_APART, _TIMES_AS_LONG * took)

    def _is_due(self) -> bool:
        """Return whether a draw would bring something new."""
        documents, before = self._documents(), self._seen_documents
        self._seen_documents = documents
        if not documents or documents > (1 + _GROWN) * before:
            return False  # it is still being read
        last = self.labels.last_draw()
        if last is None or not self._drawn_documents or last.settings != self.described:
            return True
        if time.monotonic() < self._not_before:
            return False
        few = self.labels.unlabelled(last.configuration) < _FEW_LEFT
        return few or documents > (1 + _GROWN) * self._drawn_documents

    def _documents(self) -> int:
        """Return how many documents the window has ever held, about."""
        with self._window.reader() as reader:
            return int(reader.execute("SELECT ifnull(max(row), 0) FROM documents").fetchone()[0])
