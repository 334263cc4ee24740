"""The consumer lag as a metric, read now and then."""

from __future__ import annotations

from stream_dedup import metrics
from stream_dedup.stream.patience import Clock
from stream_dedup.stream.transport import Partition, Transport

#: Time between two readings of the consumer lag.
LAG_INTERVAL = 1.0


class LagReport:
    """Reports how many records of each input partition have not been polled yet."""

    def __init__(self, transport: Transport, clock: Clock) -> None:
        self._transport = transport
        self._clock = clock
        self._read_at = float("-inf")
        self._known: set[Partition] = set()

    def read(self) -> None:
        """Read it, if it was not just read."""
        now = self._clock.monotonic()
        if now - self._read_at < LAG_INTERVAL:
            return
        self._read_at = now
        lags = self._transport.lag()
        # A partition that went to another worker is no longer this one's to report.
        for partition in self._known - lags.keys():
            metrics.consumer_lag_records.labels(*map(str, partition)).set(0)
        for partition, lag in lags.items():
            metrics.consumer_lag_records.labels(*map(str, partition)).set(lag)
        self._known = set(lags)
