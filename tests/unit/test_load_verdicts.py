"""Overload and soak fail when a promise is not kept."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

import pytest

from benchmarks.endurance import Point, verdicts
from benchmarks.overload import Drained, Found, broken

LIMITS = Namespace(limit=512.0, by_cpu=False)
GOOD = Found(
    "confluent",
    capacity=Drained(5000, 9000),
    offered=50_000,
    backlog=200_000,
    drain=Drained(4900, 8000),
    small=(130 << 20, 85 << 20),
    templates=(150 << 20, 85 << 20),
    large=(350 << 20, 85 << 20),
    rebalances=0,
    left=0,
)


def grown(what: str, value_at: Callable[[float], float], whose: str = "worker") -> bool:
    """Tell whether a series over an hour is found to grow."""
    points = [Point(at, whose, what, value_at(at)) for at in range(0, 3600, 5)]
    (verdict,) = verdicts(points, 3600)
    return not verdict.kept


def test_what_stays_has_not_grown() -> None:
    assert not grown("memory, MiB", lambda _: 130)
    assert not grown("threads", lambda at: 12 + (at % 10 == 0))


def test_growth_at_the_beginning_is_warming_up() -> None:
    assert not grown("memory, MiB", lambda at: min(150, 100 + at / 20))


def test_a_slow_leak_is_growth() -> None:
    assert grown("memory, MiB", lambda at: 130 + at / 120)
    assert grown("descriptors", lambda at: 40 + at // 600)


def test_the_index_may_grow() -> None:
    assert not grown("memory, MiB", lambda at: at, whose="Redis")


def test_a_burst_that_keeps_every_promise() -> None:
    assert not list(broken(GOOD, LIMITS))


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (GOOD._replace(large=(513 << 20, 0)), "more than 512 MiB"),
        (GOOD._replace(small=(0, 513 << 20)), "more than 512 MiB"),
        (GOOD._replace(rebalances=1), "1 rebalances"),
        (GOOD._replace(left=3), "3 records"),
        (GOOD._replace(drain=Drained(4400, 9000)), "88%"),
    ],
)
def test_a_broken_promise_is_told(found: Found, said: str) -> None:
    (told,) = broken(found, LIMITS)

    assert said in told
    assert told.startswith("confluent: ")
