"""The estimate, the bands and SimHash keep to their theory; ``benchmarks.theory`` draws it."""

from __future__ import annotations

import pytest

from benchmarks.theory import measure_point

PAIRS = 3_000


@pytest.mark.parametrize("resemblance", [0.3, 0.6, 0.8, 0.9])
def test_errors_collisions_and_distances_are_those_of_theory(resemblance: float) -> None:
    point = measure_point(resemblance, PAIRS, seed=1)

    ours, classic = point.expected
    assert point.ours.error == pytest.approx(ours, rel=0.1)
    assert point.classic.error == pytest.approx(classic, rel=0.1)
    # Four standard errors of a share of so many pairs.
    tolerance = 4 * (point.found * (1 - point.found) / PAIRS) ** 0.5
    assert point.ours.recall == pytest.approx(point.found, abs=tolerance)
    assert point.classic.recall == pytest.approx(point.found, abs=tolerance)
    assert point.distance == pytest.approx(point.angle, rel=0.05)
