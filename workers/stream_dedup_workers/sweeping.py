"""Sweeps of the index beside the stream: a thread of each worker process, of which one has a turn.

A thread will do: it waits for Redis or pauses most of its time, and what it does in between takes
milliseconds. Were two to sweep at a time, nothing but work would be lost.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

from stream_dedup import metrics
from stream_dedup.errors import StreamDedupError
from stream_dedup.index.expiry import Swept
from stream_dedup.index.redis import RedisIndex
from stream_dedup.settings import Settings

log = logging.getLogger(__name__)

#: Times as long as a round of calls took that the sweep then pauses: it takes a tenth of the server
#: and of the process at most.
_PAUSES = 9.0
#: Longest time that the end of the process waits for the end of a sweep.
_END_SECONDS = 5.0
#: Seconds between two questions whose turn it is, at most.
_ASK = 30.0
#: Seconds after which an index without a window is swept though nothing was forgotten: only crashed
#: workers have left anything.
_PATIENCE = 86_400.0


@contextmanager
def sweeping(settings: Settings, *, shadow: bool = False) -> Iterator[None]:
    """Sweep from time to time while the block runs, unless ``sweep_interval`` is 0.

    Args:
        settings: which index, and how often.
        shadow: whether it is a shadow's index; metrics are those of the live one.
    """
    if not settings.sweep_interval:
        yield
        return
    sweeps = Sweeps(settings, shadow=shadow)
    thread = threading.Thread(target=sweeps.run, name="sweep", daemon=True)
    thread.start()
    try:
        yield
    finally:
        sweeps.stop()
        # A sweep may be killed at any moment, and whoever waits for a dead Redis must be.
        thread.join(_END_SECONDS)


class Sweeps:
    """Sweeps the index whenever it is this process's turn."""

    def __init__(self, settings: Settings, *, shadow: bool = False) -> None:
        self._settings = settings
        self._name = "the shadow's index" if shadow else "the index"
        self._counted = not shadow
        self._stopped = threading.Event()

    def run(self) -> None:
        """Go on until stopped; what goes wrong is tried again."""
        interval = self._settings.sweep_interval
        while not self._stopped.wait(min(_ASK, interval / 4)):
            try:
                with closing(RedisIndex.connect(self._settings)) as index:
                    self._sweep(index)
            except StreamDedupError as error:
                log.warning("a sweep of %s failed, trying again later: %s", self._name, error)

    def stop(self) -> None:
        """End, also in the middle of a sweep."""
        self._stopped.set()

    def _sweep(self, index: RedisIndex) -> None:
        """Sweep, each time that it is this process's turn, until stopped."""
        interval = self._settings.sweep_interval
        patience = interval if self._settings.window is not None else max(interval, _PATIENCE)
        while not self._stopped.is_set():
            if index.store.turn(interval, patience):
                began = time.monotonic()
                try:
                    swept = index.sweep(self._pause)
                except _StoppedError:
                    return
                self._count(swept, time.monotonic() - began)
            self._stopped.wait(min(_ASK, interval / 4))

    def _pause(self, seconds: float) -> None:
        if self._stopped.wait(_PAUSES * seconds):
            raise _StoppedError

    def _count(self, swept: Swept, seconds: float) -> None:
        if self._counted:
            metrics.sweeps_total.inc()
            metrics.sweep_seconds_total.inc(seconds)
            metrics.swept_originals_total.inc(swept.expired)
            metrics.swept_claims_total.inc(swept.claims)
            metrics.swept_entries_total.inc(swept.entries)
            metrics.index_originals.set(swept.originals)
        log.info(
            "swept %s in %.0f s: %d originals expired, %d claims, %d entries; %d stay",
            self._name,
            seconds,
            *swept,
        )


class _StoppedError(Exception):
    """The worker is to end."""
