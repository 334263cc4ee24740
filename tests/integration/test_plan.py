"""What the planner predicts is what a real Redis takes."""

from __future__ import annotations

import pytest

from benchmarks.plan_check import LOOKING, checked_designs, measure, predicted
from stream_dedup.settings import Settings
from stream_dedup.tables.plan import Design
from tests.services.redis import RedisServer

ORIGINALS = 100_000
CHECKED = [
    pair for pair in checked_designs() if pair[1].name in ("4 blocks", "5 blocks", "16 bands of 6")
]


@pytest.mark.usefixtures("redis_url")
@pytest.mark.parametrize(("settings", "design"), CHECKED, ids=lambda it: getattr(it, "name", "to"))
def test_memory_and_candidates_are_as_planned(
    redis_server: RedisServer, settings: Settings, design: Design
) -> None:
    plan = predicted(settings, design, ORIGINALS)

    measured = measure(redis_server, settings, design, ORIGINALS)

    assert measured.bytes_per_original == pytest.approx(plan.bytes_per_original, rel=0.2)
    expected = plan.candidates_per_probe
    tolerance = 0.2 * expected if expected * LOOKING * design.tables > 100 else 1e-6
    assert measured.candidates_per_probe == pytest.approx(expected, abs=tolerance)
