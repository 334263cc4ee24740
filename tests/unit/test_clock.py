"""The clock of an index as a worker has it, the ids minted by it, and marks."""

from __future__ import annotations

import struct
import time
from itertools import pairwise

import pytest

from stream_dedup import ServiceError
from stream_dedup.index.clock import HybridClock, Incarnation
from stream_dedup.index.keys import ClaimIds

NOW = 1_800_000_000.0
DAY = 86_400.0


class Machine:
    """The clocks of a machine."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steady, self.of_day = 1000.0, NOW
        monkeypatch.setattr(time, "monotonic", lambda: self.steady)
        monkeypatch.setattr(time, "time", lambda: self.of_day)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_it_runs_by_the_monotonic_clock_alone(machine: Machine) -> None:
    clock = HybridClock()
    clock.see(NOW)
    shown = []
    for step in (0.0, DAY, -DAY, -10 * DAY):
        machine.of_day += step
        machine.steady += 1.5
        shown.append(clock.now())

    assert shown == pytest.approx([NOW + 1.5, NOW + 3, NOW + 4.5, NOW + 6])


def test_it_moves_forward_to_what_it_sees_and_never_back(machine: Machine) -> None:
    clock = HybridClock()
    for moment, expected in ((NOW, NOW), (NOW - DAY, NOW), (NOW + DAY, NOW + DAY), (0, NOW + DAY)):
        clock.see(moment)
        assert clock.now() == expected
    machine.of_day = NOW - 5
    assert clock.brought() == (str(int((NOW + DAY) * 1000)), str(int((NOW - 5) * 1000)))


def test_the_index_is_asked_once_a_second(machine: Machine) -> None:
    clock, asked = HybridClock(), 0
    for _ in range(100):
        asked += clock.is_due()
        machine.steady += 0.1

    assert asked == pytest.approx(10, abs=1)


def test_ids_have_the_time_at_which_they_were_minted() -> None:
    ids = ClaimIds(5)
    for moment in (NOW, NOW + 0.5, NOW + DAY):
        (claim,) = ids.mint(moment).tolist()
        assert ClaimIds.first_at(moment) <= claim < ClaimIds.first_at(moment + 0.001)
        assert ClaimIds.time_of(claim) == pytest.approx(moment, abs=0.0011)


def test_a_clock_beyond_the_ids_is_reported_and_mints_nothing() -> None:
    ids = ClaimIds(5)
    end = (2**41 + 1_577_836_800_000) / 1000
    last = ids.mint(end - 1, 10)

    with pytest.raises(ServiceError, match="beyond 2089"):
        ids.mint(end)
    assert int(last[-1]) < 2**63 * 2


def known(incarnation: Incarnation, partition: int) -> int:
    """Return which mark the next call to a partition counts on."""
    return int(struct.unpack("<8sIQQ", incarnation.carried(partition, 0))[2])


def test_marks_grow_and_count_on_what_was_acknowledged(machine: Machine) -> None:
    clock = HybridClock()
    clock.see(NOW)
    one = Incarnation(clock)
    marks = [one.begin() for _ in range(3)]
    assert all(before < after for before, after in pairwise(marks))
    assert (known(one, 0), known(one, 1)) == (0, 0)

    one.written([0], marks[-1])
    assert (known(one, 0), known(one, 1)) == (marks[-1], 0)
    # A sweep has dropped it meanwhile, maybe; that Redis lost it could not be said.
    machine.steady += DAY
    one.begin()
    assert known(one, 0) == 0


def test_incarnations_differ() -> None:
    clock = HybridClock()

    assert len({Incarnation(clock).token for _ in range(100)}) == 100
