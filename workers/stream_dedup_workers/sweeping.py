"""Sweeps of the index beside the stream: a thread of each worker process, of which one has a turn.

Were two to sweep at a time, nothing but work would be lost.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

from stream_dedup import metrics
from stream_dedup.errors import StreamDedupError
from stream_dedup.index.expiry import Swept
from stream_dedup.index.redis import RedisIndex
from stream_dedup.outage import Outage
from stream_dedup.settings import Settings
from stream_dedup_workers.aside import Aside, StoppedError, aside

log = logging.getLogger(__name__)

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
    with aside("sweep", Sweeps(settings, shadow=shadow)):
        yield


class Sweeps(Aside):
    """Sweeps the index whenever it is this process's turn."""

    def __init__(self, settings: Settings, *, shadow: bool = False) -> None:
        super().__init__()
        self._settings = settings
        self._name = "the shadow's index" if shadow else "the index"
        self._counted = not shadow
        self._outage = Outage(log, f"{self._name}, which is to be swept,")

    def run(self) -> None:
        """Go on until stopped; what goes wrong is tried again."""
        interval = self._settings.sweep_interval
        while not self._stopped.wait(min(_ASK, interval / 4)):
            try:
                with closing(RedisIndex.connect(self._settings)) as index:
                    self._sweep(index)
            except StreamDedupError as error:
                self._outage.failed(error)

    def _sweep(self, index: RedisIndex) -> None:
        """Sweep, each time that it is this process's turn, until stopped."""
        interval = self._settings.sweep_interval
        patience = interval if self._settings.window is not None else max(interval, _PATIENCE)
        while not self._stopped.is_set():
            self._outage.ended()
            if index.store.turn(interval, patience):
                began = time.monotonic()
                log.info("sweeping %(what)s", {"what": self._name})
                try:
                    swept = index.sweep(self._pause)
                except StoppedError:
                    log.info("stopped sweeping %(what)s", {"what": self._name})
                    return
                self._count(swept, time.monotonic() - began)
            self._stopped.wait(min(_ASK, interval / 4))

    def _count(self, swept: Swept, seconds: float) -> None:
        if self._counted:
            metrics.sweeps_total.inc()
            metrics.sweep_seconds_total.inc(seconds)
            metrics.swept_originals_total.inc(swept.expired)
            metrics.swept_claims_total.inc(swept.claims)
            metrics.swept_entries_total.inc(swept.entries)
            metrics.index_originals.set(swept.originals)
        log.info(
            "swept %(what)s in %(seconds).0f s: %(expired)d originals expired, %(claims)d claims, "
            "%(entries)d entries; %(originals)d stay",
            {"what": self._name, "seconds": round(seconds, 3), **swept._asdict()},
        )
