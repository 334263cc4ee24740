"""Carries out a plan: each lane has one fault at a time, lanes go side by side."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

from tests.campaign.faults import KINDS
from tests.campaign.faults.base import Fault, Lane
from tests.campaign.fleet import Fleet
from tests.campaign.plan import Planned
from tests.campaign.recovery import Happened
from tests.campaign.watch import Watch

#: Time that what was hit has to be as it was before, s.
_HEALING_SECONDS = 180.0
#: Time after which a lane waits no longer for workers to go on: another may hold them up, s.
_PATIENCE = 60.0
#: Pause between two looks at the lanes, and between two looks whether one is well again, s.
_TICK, _LOOK = 0.05, 0.5


class NotHealedError(RuntimeError):
    """Brokers, Redis or workers did not come back to what they were."""


class _Run:
    """A lane: rest, a fault, then the healing until the stream goes on; until there are no more."""

    def __init__(self, fleet: Fleet, watch: Watch, lane: Lane, plan: Sequence[Planned]) -> None:
        self.happened: list[Happened] = []
        self._watch, self._before = watch, watch.answers()
        self._fleet, self._lane, self._plan = fleet, lane, deque(plan)
        self._fault: Fault | None = None
        self._began = self._ended = self._looked = 0.0
        self._due = time.monotonic()
        self._wake()

    @property
    def is_over(self) -> bool:
        """Whether all of its faults have come and gone, and everything is well."""
        return self._fault is None and not self._plan

    def step(self) -> str:
        """Go on if it is time; return what there is to tell."""
        now = time.monotonic()
        if self._fault is None:
            return self._begin() if self._plan and now >= self._due else ""
        if not self._ended:
            return self._end(self._fault) if now >= self._due and self._fault.is_done() else ""
        if now < self._looked + _LOOK:
            return ""
        self._looked = now
        goes_on = self._watch.goes_on(self._before) or now > self._ended + _PATIENCE
        if goes_on and self._fault.is_healed():
            self._fault = None
            self._wake()
        elif now > self._ended + _HEALING_SECONDS:
            msg = f"{self._lane} were not well {_HEALING_SECONDS:.0f} s after {self._fault.name}"
            raise NotHealedError(msg)
        return ""

    def _wake(self) -> None:
        if self._plan:
            self._due = time.monotonic() + self._plan[0].rest

    def _begin(self) -> str:
        planned = self._plan.popleft()
        self._fault = KINDS[planned.kind](self._fleet, planned.share)
        self._began, self._ended = time.monotonic(), 0.0
        self._fault.begin()
        self._due = time.monotonic() + planned.seconds
        if not self._fault.lasts.longest:
            # It has no duration: what it takes counts from its begin.
            self._end(self._fault)
            self.happened[-1] = self.happened[-1]._replace(ended=self._began)
        return f"{planned.kind}: {self._fault.hits}, {planned.seconds} s"

    def _end(self, fault: Fault) -> str:
        fault.end()
        self._ended = time.monotonic()
        self._before = self._watch.answers()
        self.happened.append(Happened(fault.name, fault.hits, self._began, self._ended))
        return ""


def carry_out(
    fleet: Fleet, watch: Watch, plan: Sequence[Planned], tell: Callable[[str], None]
) -> list[Happened]:
    """Let everything planned happen; return what did, by its begin.

    Args:
        fleet: what is broken.
        watch: what comes of it.
        plan: what is to happen; those of a lane in this order.
        tell: called with a line for each fault.

    Raises:
        NotHealedError: something did not come back to what it was.
    """
    runs = [_Run(fleet, watch, lane, [one for one in plan if one.lane == lane]) for lane in Lane]
    while not all(run.is_over for run in runs):
        for run in runs:
            if told := run.step():
                tell(told)
        fleet.tend()
        time.sleep(_TICK)
    return sorted((one for run in runs for one in run.happened), key=lambda one: one.began)
