"""Who goes on, and when it is: a queue of moments, drawn from one seed.

A process of the simulation is a greenlet. It runs until it waits; whatever it does to the world
takes a drawn time, so what processes do falls in any order, the same for the same seed.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable

from greenlet import getcurrent, greenlet  # type: ignore[import-untyped]

#: Unix time at which every simulation begins.
EPOCH = 1_700_000_000.0


class Killed(BaseException):
    """Ends a process as SIGKILL would: nothing that it still does has an effect."""


class Process:
    """One life of a program.

    Attributes:
        name: for the trace.
        skew: seconds by which its clock is wrong.
        dead: whether it was killed; set before it learns of it.
        paused_until: moment at which it goes on, if it was stopped.
        told: called when it is stopped, with the seconds.
    """

    def __init__(self, name: str, skew: float) -> None:
        self.name = name
        self.skew = skew
        self.dead = False
        self.paused_until = 0.0
        self.told: list[Callable[[float], None]] = []


class Scheduler:
    """Runs processes and events in the order of their moments.

    Attributes:
        rng: everything that is drawn comes from it.
        now: seconds since the beginning.
        steps: events so far.
        events: how often each kind of event came about.
        trace: one line for each, where it is kept.
    """

    def __init__(self, seed: int, *, trace: bool = False) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.steps = 0
        self.events: Counter[str] = Counter()
        self.trace: list[str] | None = [] if trace else None
        self._queue: list[tuple[float, int, Callable[[], object]]] = []
        self._added = 0
        self._hub = getcurrent()
        self._processes: dict[greenlet, Process] = {}

    @property
    def current(self) -> Process | None:
        """The process that runs; None within an event."""
        return self._processes.get(getcurrent())

    def note(self, event: str, detail: object = "") -> None:
        """Count an event, and write it down."""
        self.events[event] += 1
        if self.trace is not None:
            process = self.current
            self.trace.append(f"{self.now:.6f} {process.name if process else '-'} {event} {detail}")

    def chance(self, probability: float) -> bool:
        """Draw whether something comes about."""
        return self.rng.random() < probability

    def after(self, delay: float, act: Callable[[], object]) -> None:
        """Let something come about in so many seconds."""
        self._added += 1
        heapq.heappush(self._queue, (self.now + delay, self._added, act))

    def start(
        self,
        process: Process,
        run: Callable[[], None],
        ended: Callable[[], None],
        delay: float = 0.0,
    ) -> None:
        """Let a process begin in so many seconds; ``ended`` is called when it is over."""

        def main() -> None:
            try:
                run()
            except Killed:
                pass
            finally:
                del self._processes[thread]
                ended()

        thread = greenlet(main, self._hub)
        self._processes[thread] = process
        self.after(delay, thread.switch)

    def sleep(self, seconds: float) -> None:
        """Let the current process wait.

        Raises:
            Killed: it was killed before, or meanwhile.
        """
        thread = getcurrent()
        process = self._processes[thread]
        if process.dead:
            raise Killed
        self.after(seconds, thread.switch)
        self._hub.switch()
        while process.paused_until > self.now and not process.dead:
            self.after(process.paused_until - self.now, thread.switch)
            self._hub.switch()
        if process.dead:
            raise Killed

    def run(self, limit: int) -> bool:
        """Go on until nothing is left to do; return whether that took at most ``limit`` steps."""
        while self._queue:
            if self.steps >= limit:
                self._end_all()
                return False
            self.steps += 1
            moment, _, act = heapq.heappop(self._queue)
            self.now = max(self.now, moment)
            act()
        return True

    def _end_all(self) -> None:
        for thread, process in list(self._processes.items()):
            process.dead = True
            if thread:
                thread.throw(Killed)
            else:
                del self._processes[thread]


class Clock:
    """Stands in for the ``time`` module in what is simulated."""

    def __init__(self) -> None:
        self.scheduler: Scheduler | None = None

    def monotonic(self) -> float:
        """Return the seconds since the beginning."""
        return self._running.now

    def time(self) -> float:
        """Return what the clock of the current process shows."""
        process = self._running.current
        return EPOCH + self._running.now + (process.skew if process else 0.0)

    def time_ns(self) -> int:
        """Return the same in nanoseconds."""
        return int(self.time() * 1e9)

    def sleep(self, seconds: float, /) -> None:
        """Let the current process wait."""
        self._running.sleep(max(0.0, seconds))

    @property
    def _running(self) -> Scheduler:
        assert self.scheduler is not None, "no simulation is running"
        return self.scheduler


#: The clock of whatever simulation runs.
CLOCK = Clock()
