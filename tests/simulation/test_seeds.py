"""8,000 seeds of the simulation, on two processes; and that a seed is the same every time.

``make simulate`` runs any number.
"""

from __future__ import annotations

import pytest

from tests.simulation.many import replay_command, run_many
from tests.simulation.simulation import simulate

SEEDS = 8_000

#: How often each of these must have come about in 20,000 seeds, or nothing much was tested.
WANTED = {
    "crash in poll": 500,
    "crash in decide": 500,
    "crash in publish": 500,
    "crash in send offsets": 500,
    "crash in commit": 500,
    "crash in open": 500,
    "crash in rewind": 50,
    "crash in close": 100,
    "pause": 3000,
    "second life beside the first": 300,
    "session expired": 3000,
    "heartbeats lost": 100,
    "rebalance": 20_000,
    "stale generation refused": 500,
    "membership lost behind the back": 20,
    "waits for a stable offset": 500,
    "fenced": 500,
    "transaction aborted by successor": 3000,
    "transaction timed out": 100,
    "kafka call lost": 3000,
    "kafka answer lost": 2000,
    "late kafka call": 500,
    "kafka failover": 500,
    "record refused": 2000,
    "culprit met": 3000,
    "culprit given up": 500,
    "redis failover": 500,
    "redis writes lost": 100,
    "redis call in part": 500,
    "redis reply lost": 500,
    "redis retry": 3000,
    "redis given up": 1000,
    "late repeated call": 3000,
    "claim voided": 500,
    "claim found void at its commit": 60,
    "claim behind the fence": 100,
    "lost writes noticed": 500,
    "redis clock step": 2000,
    "redis restored from a snapshot": 300,
    "sweep": 100_000,
    "worker clock step": 2000,
    "gave up": 1000,
    "stream came again": 3000,
}


@pytest.mark.timeout(1200)
def test_no_promise_is_broken() -> None:
    *_, totals = run_many(range(SEEDS), processes=2)
    wrong = [f"{replay_command(seed)}: {text[0]}" for seed, text in totals.violations.items()]
    assert not wrong, wrong[:5]
    assert totals.seeds == SEEDS
    assert not totals.events["died"], "a worker ended by an error that it should have handled"
    rare = {event: totals.events[event] for event in WANTED}
    assert not {event: n for event, n in rare.items() if n < WANTED[event] * SEEDS / 20_000}


@pytest.mark.parametrize("first", [0, 3_000, 7_000])
def test_a_seed_is_the_same_every_time(first: int) -> None:
    for seed in range(first, first + 20):
        once, again = simulate(seed, trace=True), simulate(seed, trace=True)
        assert once.trace == again.trace
        assert once.events == again.events
        assert len(once.trace) > 10


def test_a_trace_changes_nothing() -> None:
    for seed in range(50, 60):
        assert simulate(seed).events == simulate(seed, trace=True).events
