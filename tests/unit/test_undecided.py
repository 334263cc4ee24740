"""A batch whose claims are voided again and again is no progress, and fails after a while."""

from __future__ import annotations

import time
from typing import Any

import pytest

from stream_dedup import ServiceError
from stream_dedup.index import driver
from stream_dedup.index.claims import Fate, Outcome, Settle, Steps
from stream_dedup.index.driver import UNDECIDED_SECONDS, Driver


class Machine:
    """A clock that goes on by a second with each round."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, seconds: float = 1.0) -> None:
        self.now, self._seconds = 0.0, seconds
        monkeypatch.setattr(time, "monotonic", lambda: self.now)

    def carry_out(self, wanted: dict[int, Any]) -> dict[int, list[Any]]:
        self.now += self._seconds
        return {row: [Fate.VOID for _ in calls] for row, calls in wanted.items()}


class Store:
    """Counts what is noted as progress."""

    def __init__(self) -> None:
        self.noted = 0

    def progress(self) -> None:
        self.noted += 1


def voided(times: int | None) -> Steps:
    """Be voided so many times, or for ever, and then be decided."""
    while times is None or times:
        yield [Settle(1, Fate.ORIGINAL)]
        times = times and times - 1
    return Outcome(1, is_original=True)


def finishing(monkeypatch: pytest.MonkeyPatch, machine: Machine) -> tuple[Driver, Store]:
    made, store = object.__new__(Driver), Store()
    made.store = store  # type: ignore[assignment]
    monkeypatch.setattr(driver.Driver, "_carry_out", lambda _, wanted: machine.carry_out(wanted))
    return made, store


def test_it_fails_with_what_to_check(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    made, store = finishing(monkeypatch, machine)

    with pytest.raises(ServiceError, match=r"2 documents were not decided .* Check the clocks"):
        made.finish({0: voided(None), 1: voided(None)})
    assert store.noted == 0
    assert UNDECIDED_SECONDS < machine.now <= UNDECIDED_SECONDS + 2


def test_what_is_decided_is_progress_and_begins_the_time_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, store = finishing(monkeypatch, Machine(monkeypatch))
    rounds = int(UNDECIDED_SECONDS) - 5

    outcomes = made.finish({row: voided(rounds * (1 + row)) for row in range(3)})

    assert len(outcomes) == 3
    assert store.noted == 3


def test_a_process_that_was_stopped_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = finishing(monkeypatch, Machine(monkeypatch, seconds=UNDECIDED_SECONDS))

    assert len(made.finish({0: voided(12)})) == 1
