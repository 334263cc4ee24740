"""Fills the window in a thread of its own, beside the page."""

from __future__ import annotations

import gc
import logging
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from stream_dedup.errors import ServiceError, StateError, StreamDedupError
from stream_dedup.outage import Outage
from stream_dedup.review.reading.source import Part, Source
from stream_dedup.review.window import Window
from stream_dedup.stream.patience import BACKOFF

log = logging.getLogger(__name__)

#: Seconds that the part at hand may take when reading is stopped.
_STOPPING = 10.0
#: Documents that go into the window together, and seconds for which they wait for others.
_TOGETHER, _WAITING = 8000, 0.5
#: Seconds over which the rate is told.
_RATE_SECONDS = 5.0


class Phase(StrEnum):
    """How far reading has come."""

    READING = "reading"
    FOLLOWING = "following"
    AWAY = "away"
    DONE = "done"
    FAILED = "failed"


class Progress(NamedTuple):
    """What the pages say of reading.

    Attributes:
        name: what is read.
        phase: how far it has come.
        documents: documents read, of which the window may have dropped some.
        passed_over: what was read and is not shown, by reason.
        rate: documents a second.
        trouble: what is wrong, in a sentence; empty if nothing is.
    """

    name: str
    phase: Phase
    documents: int
    passed_over: dict[str, int]
    rate: float
    trouble: str = ""


class Ingestion:
    """Reads a source into the window until it is stopped."""

    def __init__(self, window: Window, source: Source) -> None:
        """Set up; ``start`` begins.

        Raises:
            StateError: the window was filled from another source.
        """
        self._window = window
        self._source = source
        facts = window.facts()
        if facts.get("identity", source.identity) != source.identity:
            msg = (
                f"{window.path} holds what was read from {facts.get('from')}. Remove it, or name "
                "another file with --review-file."
            )
            raise StateError(msg)
        if not source.begin(facts):
            window.clear()
            facts = {}
        window.add([], {"from": source.name, "identity": source.identity})
        self._documents = int(facts.get("read", 0))
        self._passed_over = Counter[str](facts.get("passed_over", {}))
        self._phase = Phase.READING
        self._trouble = ""
        self._rate = 0.0
        self._sampled = (time.monotonic(), self._documents)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ingestion", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Stop reading, and wait for the part at hand; not for a source that is away."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_STOPPING)

    def progress(self) -> Progress:
        """Return how far it has come."""
        return Progress(
            self._source.name,
            self._phase,
            self._documents,
            dict(self._passed_over),
            self._rate,
            self._trouble,
        )

    def _run(self) -> None:
        try:
            self._read()
        except StreamDedupError as error:
            self._fail(str(error))
        except sqlite3.Error as error:
            self._fail(f"The window cannot be written: {error}. Make room for it, or set another.")
        except Exception:
            self._fail("Reading has ended with an error of the program. See its log.")
            raise

    def _fail(self, trouble: str) -> None:
        log.error("reading has ended: %(cause)s", {"cause": trouble})
        self._phase, self._trouble, self._rate = Phase.FAILED, trouble, 0.0

    def _read(self) -> None:
        outage = Outage(log, self._source.name)
        pause = BACKOFF[0]
        while not self._stop.is_set():
            try:
                for part in gathered(self._source.read()):
                    if self._stop.is_set():
                        return
                    outage.ended()
                    pause, self._trouble = BACKOFF[0], ""
                    self._take(part)
                break
            except ServiceError as error:
                outage.failed(error)
                gc.collect()  # kafka-python leaves sockets that did not connect to the collector
                self._phase, self._trouble, self._rate = Phase.AWAY, str(error), 0.0
                self._stop.wait(pause)
                pause = min(2 * pause, BACKOFF[1])
        self._phase, self._rate = Phase.DONE, 0.0

    def _take(self, part: Part) -> None:
        if part.tells:
            self._documents += len(part.seen)
            self._passed_over += part.passed_over
            told = {"read": self._documents, "passed_over": self._passed_over}
            self._window.add(part.seen, {**told, **part.facts}, part.forgotten)
        self._phase = Phase.FOLLOWING if part.caught_up else Phase.READING
        self._measure()

    def _measure(self) -> None:
        now = time.monotonic()
        then, documents = self._sampled
        if now - then >= _RATE_SECONDS:
            self._rate = (self._documents - documents) / (now - then)
            self._sampled = (now, self._documents)


def gathered(parts: Iterator[Part]) -> Iterator[Part]:
    """Put parts together up to ``_TOGETHER`` documents: what they change is then written once."""
    held = Part([], Counter(), [])
    began = time.monotonic()
    try:
        for part in parts:
            held = _joined(held, part)
            late = time.monotonic() - began > _WAITING
            if late or part.caught_up or len(held.seen) >= _TOGETHER:
                yield held
                held, began = Part([], Counter(), []), time.monotonic()
    except StreamDedupError:
        if held.tells:
            yield held  # the source goes on behind it
        raise
    if held.tells:
        yield held


def _joined(first: Part, second: Part) -> Part:
    before = len(first.seen)
    return Part(
        first.seen + second.seen,
        first.passed_over + second.passed_over,
        first.forgotten + [(before + after, identity) for after, identity in second.forgotten],
        {**first.facts, **second.facts},
        caught_up=second.caught_up,
    )
