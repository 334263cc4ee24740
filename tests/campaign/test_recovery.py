"""What counts as recovered, on timelines made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tests.campaign.recovery import Happened, recovery, summed, tally
from tests.campaign.watch import Timeline

#: Two partitions, a look every second; from second 10 to 18 nothing is answered in one of them.
CAME = [[10 * n, 10 * n] for n in range(30)]
WENT = [[10 * n, 10 * n if n < 10 else 100 if n < 18 else 10 * n] for n in range(30)]


def seen(went: list[list[int]]) -> Timeline:
    return Timeline(np.arange(30.0), np.array(CAME), np.array(went))


def happened(began: float, ended: float) -> Happened:
    return Happened("some", "", began, ended)


def test_all_partitions_must_go_on() -> None:
    found = recovery(happened(9.5, 12.5), seen(WENT))

    assert found.seconds == pytest.approx(5.5)
    assert found.standstill == pytest.approx(8.0)


def test_what_stood_still_by_its_end_only_shows_as_a_standstill() -> None:
    found = recovery(happened(9.5, 18.5), seen(WENT))

    assert found.seconds == pytest.approx(0.5)
    assert found.standstill == pytest.approx(8.0)


def test_what_does_not_come_back_is_told() -> None:
    never = [[10 * min(n, 10)] * 2 for n in range(30)]

    assert recovery(happened(9.5, 12.5), seen(never)).seconds is None
    assert summed([happened(9.5, 12.5)], seen(never)).longest == np.inf


def test_faults_are_summed_up_by_kind() -> None:
    faults = [happened(9.5, 12.5), happened(20.5, 20.5)._replace(kind="other")]

    rows = tally([*faults, faults[0]._replace(ended=15.5)], seen(WENT))

    assert [(row.kind, row.faults) for row in rows] == [("other", 1), ("some", 2)]
    assert rows[1].median == pytest.approx(2.5)
    assert rows[1].p99 == rows[1].longest == pytest.approx(5.5)
    assert rows[0].longest == pytest.approx(0.5)
