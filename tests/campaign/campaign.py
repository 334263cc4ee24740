"""One campaign from its beginning to its end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.campaign.check import Violation
from tests.campaign.driver import NotHealedError, carry_out
from tests.campaign.fleet import Fleet, Size
from tests.campaign.plan import Planned
from tests.campaign.reading import Topics
from tests.campaign.recovery import Happened
from tests.campaign.verdict import Verdict, verdict
from tests.campaign.watch import Timeline, Watch
from tests.services.process import Process

#: Time without any answer after which those that wait are taken for lost, s.
_PATIENCE = 180.0
#: Time that the load has for what is left, s.
_LOAD_SECONDS = 1800.0


class Order(NamedTuple):
    """What a campaign is to be.

    Attributes:
        size: of the fleet.
        documents: least number of messages.
        rate: messages a second.
        seed: of the documents.
        plan: what goes wrong.
    """

    size: Size
    documents: int
    rate: float
    seed: int
    plan: Sequence[Planned]


class Outcome(NamedTuple):
    """What came of it.

    Attributes:
        happened: faults.
        seen: what came and went, and when.
        verdict: what was checked.
        violations: what is wrong.
        early: how often a worker ended before it had joined, because what it needs was broken.
        seconds: that all of it took.
    """

    happened: list[Happened]
    seen: Timeline
    verdict: Verdict
    violations: list[Violation]
    early: int
    seconds: float


def campaign(order: Order, folder: Path, tell: Callable[[str], None]) -> Outcome:
    """Run it.

    Args:
        order: what it is to be.
        folder: for the logs of workers.
        tell: called with a line for whatever happens.
    """
    began = time.monotonic()
    tell("starting brokers, Redis and workers")
    with Fleet(order.size, folder, order.documents) as fleet:
        names = fleet.settings
        sinks = (names.output_topic, names.dead_letter_topic)
        watch = Watch(fleet.kafka.inside, names.input_topic, sinks, order.size.partitions)
        with watch:
            happened, violations = _trouble(fleet, order, folder, watch, tell)
            seen = watch.timeline()
        violations += [
            Violation("unasked end", f"{worker.name} ended {worker.fell} times by itself")
            for worker in fleet.workers
            if worker.fell
        ]
        tell("stopping the workers")
        violations += [Violation("exit code", name) for name in fleet.stop_workers()]
        topics = Topics(fleet.kafka.inside, names, order.size.partitions)
        found = verdict(topics, names, tell)
        early = sum(worker.early for worker in fleet.workers)
    violations += found.violations
    seconds = time.monotonic() - began
    return Outcome(happened, seen, found, violations, early, seconds)


def _trouble(
    fleet: Fleet, order: Order, folder: Path, watch: Watch, tell: Callable[[str], None]
) -> tuple[list[Happened], list[Violation]]:
    """Let documents come, let everything go wrong, and wait until all is answered."""
    violations = []
    load = Process(_load_command(fleet, order), folder / "load.log")
    load.start()
    began = time.monotonic()
    tell("documents come")

    def timed(line: str) -> None:
        tell(f"{time.monotonic() - began:6.1f} s  {watch.went:>9,} of {watch.came:,}  {line}")

    try:
        _warm_up(fleet, watch)
        happened = carry_out(fleet, watch, order.plan, timed)
    except NotHealedError as error:
        happened = []
        violations.append(Violation("not healed", str(error)))
    timed("no more faults")
    load.terminate()
    code = load.wait(_LOAD_SECONDS)
    if code != 0:
        violations.append(Violation("load", f"ended with {code}: {load.log()}"))
    load.close()
    timed("no more documents")
    if not _drained(fleet, watch):
        violations.append(Violation("stuck", f"{watch.came - watch.went} wait for an answer"))
    timed("all answered")
    return happened, violations


def _warm_up(fleet: Fleet, watch: Watch) -> None:
    """Wait until all partitions have been answered for the first time."""
    deadline = time.monotonic() + _PATIENCE
    while not (watch.came and watch.answers().all()) and time.monotonic() < deadline:
        fleet.tend()
        time.sleep(0.1)


def _load_command(fleet: Fleet, order: Order) -> list[str]:
    flags = {
        "bootstrap": fleet.kafka.inside,
        "topic": fleet.settings.input_topic,
        "partitions": order.size.partitions,
        "documents": order.documents,
        "rate": order.rate,
        "seed": order.seed,
    }
    return [
        sys.executable,
        "-m",
        "tests.campaign.load",
        *(f"--{name}={value}" for name, value in flags.items()),
    ]


def _drained(fleet: Fleet, watch: Watch) -> bool:
    """Wait until there are as many answers as records; tell whether it came to that."""
    went, moved = watch.went, time.monotonic()
    while watch.went < watch.came:
        if watch.went != went:
            went, moved = watch.went, time.monotonic()
        if time.monotonic() > moved + _PATIENCE:
            return False
        fleet.tend()
        time.sleep(0.1)
    return True
