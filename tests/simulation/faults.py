"""What goes wrong: how often, in one simulation, and for how long."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from tests.simulation.scheduler import Killed, Process, Scheduler

#: Seconds for which a process is stopped: a moment, past the session, past the transaction.
_PAUSES = (0.5, 3.0, 12.0, 40.0, 90.0)
#: Seconds by which a clock steps.
_STEPS = (-86_400.0, -3600.0, -30.0, 30.0, 3600.0, 86_400.0)


class Rates(NamedTuple):
    """Probabilities, for each call that a process makes.

    Attributes:
        crash: it is killed.
        pause: it is stopped for a while.
        slow: the call takes seconds.
        kafka: a call to Kafka fails, with or without effect.
        redis: a call to Redis fails, is repeated, or comes late.
        loss: a failover of Redis loses its latest writes.
        rollback: a failover of Redis brings back its latest snapshot.
        clock: the clock of the worker, or of Redis, steps and stays so.
    """

    crash: float = 0.0
    pause: float = 0.0
    slow: float = 0.0
    kafka: float = 0.0
    redis: float = 0.0
    loss: float = 0.0
    rollback: float = 0.0
    clock: float = 0.0

    @classmethod
    def draw(cls, rng: random.Random) -> Rates:
        """Draw how bad it gets: one kind of fault alone, or everything."""
        alone = (
            cls(crash=0.03),
            cls(pause=0.03, slow=0.05),
            cls(kafka=0.12),
            cls(redis=0.15, crash=0.005),
            cls(clock=0.05, crash=0.005, redis=0.02),
            cls(redis=0.1, rollback=0.8),
        )
        kind = rng.randrange(8)
        if kind < len(alone):
            return alone[kind]
        if rng.random() < 0.15:
            return cls(crash=0.01, pause=0.01, kafka=0.03, redis=0.1, loss=0.7)
        return cls(crash=0.01, pause=0.01, slow=0.03, kafka=0.05, redis=0.06)


class Faults:
    """Breaks things while it may; after so many calls the world is kind, so that it can end.

    Attributes:
        rates: how often what goes wrong.
    """

    def __init__(self, scheduler: Scheduler, rates: Rates, calls: int) -> None:
        self.rates = rates
        self._scheduler = scheduler
        self._left = calls
        self._quiet = Rates()
        #: Lets the clock of Redis step.
        self.step_redis: Callable[[float], None] | None = None

    def calm(self) -> None:
        """Break nothing from here on."""
        self._left = 0
        self.rates = self._quiet

    def strikes(self, rate: float) -> bool:
        """Draw whether something goes wrong."""
        return rate > 0 and self._scheduler.rng.random() < rate

    def pass_time(self, stage: str) -> None:
        """Let a call of the current process take its time, which it may not survive.

        Raises:
            Killed: it did not.
        """
        scheduler = self._scheduler
        process = scheduler.current
        assert process is not None
        if process.dead:
            raise Killed
        delay = scheduler.rng.random() * 0.01
        if self._left > 0:
            self._left -= 1
            if not self._left:
                self.calm()
            rates = self.rates
            if self.strikes(rates.crash):
                scheduler.note("crash", stage)
                scheduler.events[f"crash in {stage}"] += 1
                process.dead = True
                raise Killed
            if self.strikes(rates.clock):
                self.step_clock(process)
            if self.strikes(rates.pause):
                self.pause(process, stage)
            elif self.strikes(rates.slow):
                delay += scheduler.rng.choice((0.2, 2.0, 8.0))
        scheduler.sleep(delay)

    def step_clock(self, process: Process) -> None:
        """Let a clock of the day step, of Redis or of a process; it stays so."""
        rng = self._scheduler.rng
        seconds = rng.choice(_STEPS)
        if self.step_redis is not None and rng.random() < 0.5:
            self._scheduler.note("redis clock step", seconds)
            self.step_redis(seconds)
        else:
            self._scheduler.note("worker clock step", seconds)
            process.skew += seconds

    def pause(self, process: Process, stage: str) -> None:
        """Stop a process for a while."""
        seconds = self._scheduler.rng.choice(_PAUSES)
        process.paused_until = self._scheduler.now + seconds
        self._scheduler.note("pause", f"{stage} {seconds}")
        for told in process.told:
            told(seconds)
