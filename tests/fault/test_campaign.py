"""A small campaign of faults, so that the large ones (``make fault``) work when they are wanted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaign.campaign import Order, campaign
from tests.campaign.fleet import Size
from tests.campaign.plan import draw
from tests.campaign.recovery import tally
from tests.campaign.report import report

#: Quick ones, of each lane.
KINDS = (
    "worker SIGKILL",
    "Kafka connections reset",
    "Redis latency",
    "Redis failover",
    "Redis out of memory",
)


@pytest.mark.timeout(900)
def test_a_small_campaign_breaks_no_promise(tmp_path: Path) -> None:
    size = Size(brokers=1, primaries=3, workers=2, partitions=4)
    order = Order(size, 1_500, 150.0, 5, draw(5, len(KINDS), KINDS))
    lines: list[str] = []

    outcome = campaign(order, tmp_path, lines.append)

    assert outcome.violations == [], lines
    assert sorted(one.kind for one in outcome.happened) == sorted(KINDS)
    assert all(row.longest < 120 for row in tally(outcome.happened, outcome.seen))
    found = outcome.verdict
    assert found.sent >= 1_500
    assert found.answered == found.documents > found.originals == found.audit.originals > 500
    assert sum(found.dead.values()) == found.sent - found.documents > 5
    assert found.again > 25
    assert "| Redis failover | 1 |" in report(order, outcome, "test").markdown()
