"""When originals expire, and which documents are late."""

from __future__ import annotations

import numpy as np

from stream_dedup import Settings
from stream_dedup.index.expiry import NEVER, Horizon

HORIZON = Horizon(window=100.0, lateness=20.0, max_future=5.0)


def test_the_watermark_is_the_largest_time_but_never_far_ahead_of_the_clock() -> None:
    times = np.array([3.0, 12.0, 7.0])

    assert HORIZON.watermark(times, now=1_000.0) == 12.0
    assert HORIZON.watermark(times, now=4.0) == 9.0
    assert HORIZON.watermark(np.zeros(0), now=4.0) == NEVER


def test_an_original_expires_a_window_and_the_lateness_after_its_time() -> None:
    assert HORIZON.expires_before(500.0) == 380.0
    assert HORIZON.expires_before(NEVER) == NEVER
    assert Horizon.of(Settings()).expires_before(500.0) == NEVER


def test_late_documents_and_those_from_the_future_are_counted() -> None:
    times = np.array([10.0, 79.0, 80.0, 100.0, 106.0])

    assert HORIZON.late(times, watermark=100.0) == 2
    assert HORIZON.late(times, watermark=NEVER) == 0
    assert HORIZON.ahead(times, now=100.0) == 1
    assert Horizon.of(Settings()).late(times, 1e9) == Horizon.of(Settings()).ahead(times, 0.0) == 0
