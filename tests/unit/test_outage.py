"""Something that is away is told of when it goes, now and then, and when it is back."""

from __future__ import annotations

import logging

import pytest

from stream_dedup.outage import Outage

log = logging.getLogger("stream_dedup.test")


class Clock:
    """The time, to be set."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def outage(clock: Clock, caplog: pytest.LogCaptureFixture) -> Outage:
    caplog.set_level("INFO")
    return Outage(log, "the index", clock)


def test_an_hour_of_tries_makes_a_few_lines(
    outage: Outage, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    told = []
    for second in range(3600):
        clock.now = float(second)
        before = len(caplog.records)
        outage.failed(f"try {second}")
        told += [second] * (len(caplog.records) - before)
    clock.now = 3600.5
    outage.ended()

    messages = [record.getMessage() for record in caplog.records]
    assert told == [0, 10, 30, 70, 150, 310, 630, 1230, 1830, 2430, 3030]
    assert messages[0] == "the index is out of reach, trying again: try 0"
    assert messages[1] == "the index is out of reach for 10 s now, trying again: try 10"
    assert messages[-1] == "the index is back after 3600.5 s"
    assert caplog.records[-1].args == {"what": "the index", "seconds": 3600.5, "tries": 3600}


def test_what_was_not_away_is_not_back(outage: Outage, caplog: pytest.LogCaptureFixture) -> None:
    outage.ended()
    outage.failed("gone")
    outage.ended()
    outage.ended()

    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_the_next_outage_begins_anew(
    outage: Outage, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    outage.failed("gone")
    clock.now = 5.0
    outage.ended()
    clock.now = 6.0
    outage.failed("gone again")
    clock.now = 7.0
    outage.ended()

    messages = [record.getMessage() for record in caplog.records]
    assert messages[2:] == [
        "the index is out of reach, trying again: gone again",
        "the index is back after 1.0 s",
    ]
