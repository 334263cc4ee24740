"""Many seeds, on all cores."""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

from tests.simulation.simulation import simulate_all

#: Seeds that a process takes at a time.
_TAKEN = 250


class Totals(NamedTuple):
    """What became of many seeds.

    Attributes:
        seeds: how many.
        records: input records of all.
        steps: events of the scheduler.
        events: how often what came about.
        violations: what did not hold, by seed.
    """

    seeds: int
    records: int
    steps: int
    events: Counter[str]
    violations: dict[int, list[str]]

    @classmethod
    def none(cls) -> Totals:
        """Return what became of no seed at all."""
        return cls(0, 0, 0, Counter(), {})

    def plus(self, other: Totals) -> Totals:
        """Add two."""
        return Totals(
            self.seeds + other.seeds,
            self.records + other.records,
            self.steps + other.steps,
            self.events + other.events,
            self.violations | other.violations,
        )


def run_some(seeds: range) -> Totals:
    """Run some seeds in this process."""
    totals = Totals.none()
    for seed, result in simulate_all(seeds):
        found = {seed: result.violations} if result.violations else {}
        one = Totals(1, result.records, result.steps, result.events, found)
        totals = totals.plus(one)
    return totals


def run_many(seeds: range, processes: int | None = None) -> Iterator[Totals]:
    """Run many seeds; yield what became of them so far, now and then."""
    parts = [seeds[start : start + _TAKEN] for start in range(0, len(seeds), _TAKEN)]
    processes = processes or os.cpu_count() or 1
    totals = Totals.none()
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=spawn) as pool:
        for one in pool.map(run_some, parts):
            totals = totals.plus(one)
            yield totals


def replay_command(seed: int) -> str:
    """Say how a seed is looked at."""
    return f"python -m tests.simulation {seed} --trace"
