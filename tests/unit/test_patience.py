"""Pauses between tries: how long, and when it is enough."""

from __future__ import annotations

import pytest

from stream_dedup.errors import ServiceError
from stream_dedup.stream.patience import BACKOFF, GIVE_UP_SECONDS, Patience


class FakeClock:
    """Time passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 7.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float, /) -> None:
        self.slept.append(seconds)
        self.now += seconds


def test_pauses_double_up_to_a_bound() -> None:
    clock = FakeClock()
    patience = Patience(clock)
    for _ in range(9):
        patience.wait(ValueError("gone"))

    assert clock.slept == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5, 5])


def test_the_bounds_are_those_that_kafka_can_bear() -> None:
    assert BACKOFF == (0.1, 5.0)
    assert GIVE_UP_SECONDS == 60


def test_it_ends_when_the_time_is_up() -> None:
    clock, cause = FakeClock(), ValueError("gone")
    patience = Patience(clock, 20.0)
    patience.wait(cause)
    clock.now = 27.0 - 1e-9
    patience.wait(cause)
    clock.now = 27.0

    with pytest.raises(ServiceError, match="for 20 s: gone") as caught:
        patience.wait(cause)

    assert caught.value.__cause__ is cause


def test_it_begins_anew_when_it_worked() -> None:
    clock = FakeClock()
    patience = Patience(clock, 20.0)
    for _ in range(3):
        patience.wait(ValueError("gone"))
    patience.reset()
    clock.now += 100

    patience.wait(ValueError("gone again"))

    assert clock.slept[-1] == 0.1
