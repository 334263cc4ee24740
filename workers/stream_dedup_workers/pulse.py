"""What a worker process tells its supervisor: that it is alive, and how far it is.

Both values lie in shared memory without a lock: each is written by one process and is a single
aligned word, and a process that is killed while it holds a lock would block the others.
"""

from __future__ import annotations

import time
from enum import IntEnum
from multiprocessing.context import SpawnContext


class Stage(IntEnum):
    """How far a worker process is."""

    STARTING = 0
    #: It polls, but the group has not settled.
    POLLING = 1
    #: It is a member of the settled group, with partitions or idle.
    JOINED = 2


class Pulse:
    """The heartbeat of one worker process; also readable by every other process.

    The clock is ``CLOCK_MONOTONIC``, which is the same for all processes of a machine.
    """

    def __init__(self, context: SpawnContext) -> None:
        self._time = context.RawValue("d", time.monotonic())
        self._stage = context.RawValue("i", Stage.STARTING)

    def beat(self, stage: Stage | None = None) -> None:
        """Say "alive", and maybe a new stage."""
        self._time.value = time.monotonic()
        if stage is not None:
            self._stage.value = stage

    @property
    def stage(self) -> Stage:
        """The stage that was told last."""
        return Stage(self._stage.value)

    @property
    def silence(self) -> float:
        """Seconds since the last beat."""
        return max(0.0, time.monotonic() - float(self._time.value))
