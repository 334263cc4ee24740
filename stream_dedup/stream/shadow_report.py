"""What becomes of a shadow's decisions in a worker: metrics, and a sample of the differences."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Protocol

import msgspec
from prometheus_client import Counter

from stream_dedup import metrics
from stream_dedup.shadow import KINDS, Comparison, Kind
from stream_dedup.stream.patience import Clock
from stream_dedup.types import Decision, Document

log = logging.getLogger(__name__)

#: Time over which a sample is drawn; its size is for each such window.
WINDOW_SECONDS = 60.0


class Sink(Protocol):
    """Takes lines of a sample, as well as it can."""

    def send(self, lines: Sequence[bytes]) -> int:
        """Send lines; return how many of them arrived."""

    def close(self) -> None:
        """Release everything."""


class MetricsReport:
    """Counts every decision, and sends a sample of the differences of each window.

    A sample is sent when its window has passed, because only then each of its differences had the
    same chance. The strata of a window are its own, so ``stratum_pairs`` is what a pair stands for.

    Args:
        begin: begins a comparison, for one window.
        process: name of this process among all that send samples.
        sink: takes samples; None when nobody wants them.
        clock: the time.
    """

    def __init__(
        self, begin: Callable[[], Comparison], process: str, sink: Sink | None, clock: Clock
    ) -> None:
        self._begin = begin
        self._process = process
        self._sink = sink
        self._clock = clock
        self._open_window()
        for kind in KINDS:  # a series that is there from the beginning can be alerted on
            _counter(kind)

    def add(
        self, documents: Sequence[Document], live: Sequence[Decision], shadow: Sequence[Decision]
    ) -> None:
        """Take what both decided on published documents."""
        found = self._begin()
        found.add(documents, live, shadow)
        for kind, count in found.counts.items():
            _counter(kind).inc(count)
        self._window.merge(found)

    def tick(self) -> None:
        """Send the sample of a window that has passed."""
        if self._clock.monotonic() - self._began >= WINDOW_SECONDS:
            self._send()

    def close(self) -> None:
        """Send the sample of the last window."""
        self._send()
        if self._sink is not None:
            self._sink.close()

    def _open_window(self) -> None:
        self._window = self._begin()
        self._began = self._clock.monotonic()
        self._started = self._clock.time()

    def _send(self) -> None:
        started = datetime.fromtimestamp(self._started, UTC).isoformat(timespec="seconds")
        samples = self._window.samples(f"{self._process}/{started}/")
        lines = [msgspec.json.encode(sample) for sample in samples]
        self._open_window()
        if self._sink is None or not lines:
            return
        sent = self._sink.send(lines)
        if sent < len(lines):
            log.warning(
                "%(lost)d of %(samples)d sampled differences were not sent",
                {"lost": len(lines) - sent, "samples": len(lines)},
            )


def _counter(kind: Kind) -> Counter:
    original = "same" if kind.same else "other"
    labels = {"live": str(kind.live), "shadow": str(kind.shadow), "original": original}
    return metrics.shadow_documents_total.labels(**labels)
