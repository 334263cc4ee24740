"""A client of the simulated Redis, with the names that redis-py gives to what is called.

A call may be lost, carried out in part, carried out without a reply, or come late: after the client
gave it up and sent it again. The client tries again by itself, as the real one is set up to do.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

from redis.exceptions import ConnectionError as ConnectionLostError
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as NoReplyError

from tests.simulation.faults import Faults, Rates
from tests.simulation.functions import Functions
from tests.simulation.scheduler import EPOCH, Scheduler

#: What the worker's own clock and time of day are among the arguments of a function.
_TIMES = {"enter": 3, "advance": 2}

#: How often the client tries again; see ``connection``.
_RETRIES = 3

#: A function, its key and its arguments.
Command = tuple[str, bytes, tuple[Any, ...]]


class Server:
    """Redis as the processes of a simulation share it.

    Attributes:
        functions: its state.
        down_until: moment at which a failover ends.
    """

    def __init__(self, scheduler: Scheduler, faults: Faults) -> None:
        self.functions = Functions()
        self.scheduler = scheduler
        self.faults = faults
        self.down_until = 0.0
        #: Seconds by which its time of day is wrong.
        self.skew = 0.0
        #: Moment at which it went back in time last.
        self.rolled_back = -1.0
        self._snapshot = self.functions.snapshot()

    def fail_over(self) -> None:
        """Be away for some seconds; where writes may be lost, lose the latest."""
        rng = self.scheduler.rng
        self.down_until = self.scheduler.now + rng.choice((0.2, 3.0, 12.0))
        self.scheduler.note("redis failover")
        if self.faults.strikes(self.faults.rates.rollback):
            self.functions.restore(self._snapshot)
            self.scheduler.note("redis restored from a snapshot")
            self.rolled_back = self.scheduler.now
        if self.faults.strikes(self.faults.rates.loss):
            writes = rng.randrange(1, 40)
            self.functions.lose(writes)
            self.scheduler.note("redis writes lost", writes)

    def write_down(self) -> None:
        """Write a snapshot, which a failover may bring back."""
        self._snapshot = self.functions.snapshot()

    def time(self) -> float:
        """Return what its clock shows, in milliseconds."""
        return (EPOCH + self.scheduler.now + self.skew) * 1000

    def carry_out(self, command: Command) -> Any:
        """Carry out one command."""
        function, key, arguments = command
        if function in _TIMES:
            at = _TIMES[function]
            earlier = min(float(arguments[at]), self.time())
            arguments = (*arguments[:at], earlier, *arguments[at + 1 :])
        if self.scheduler.trace is not None:
            self.scheduler.trace.append(f"{self.scheduler.now:.6f}   redis {function} {key!r}")
        return self.functions.call(function, key, *arguments)


class Client:
    """One process's connection."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def pipeline(self, *, transaction: bool) -> Pipeline:
        """Collect commands."""
        assert not transaction, "the commands of a round go to several nodes"
        return Pipeline(self.server)

    def function_load(self, _code: str, *, replace: bool) -> None:
        """Load the library; it is always there."""
        assert replace, "workers of a new version bring their library"

    def fcall(self, name: str, _keys: int, key: str, *arguments: Any) -> Any:
        """Call one function."""
        pipeline = Pipeline(self.server)
        pipeline.execute_command("FCALL", name, 1, key, *arguments)
        (reply,) = pipeline.execute()
        return reply

    def hsetnx(self, _key: str, field: str, value: str) -> None:
        """Describe the index."""
        self.server.functions.index.setdefault(field, value)

    def close(self) -> None:
        """Close the connection."""


class Pipeline:
    """Commands that are sent together."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._commands: list[Command] = []

    def execute_command(self, _command: str, name: str, keys: int, key: str, *rest: Any) -> None:
        """Add a command."""
        function = name.removeprefix("stream_dedup_2_")
        self._commands.append((function, key.encode(), rest[keys - 1 :]))

    def execute(self) -> list[Any]:
        """Carry all out, and try again when that fails.

        Raises:
            RedisError: it failed every time.
        """
        scheduler = self._server.scheduler
        for left in reversed(range(1 + _RETRIES)):
            try:
                return self._try()
            except (ConnectionLostError, NoReplyError):
                if not left:
                    scheduler.note("redis given up")
                    raise
                scheduler.note("redis retry")
                scheduler.sleep(scheduler.rng.random())
        raise AssertionError

    def _try(self) -> list[Any]:
        server, commands = self._server, self._commands
        faults, scheduler = server.faults, server.scheduler
        faults.pass_time("decide")
        if server.down_until > scheduler.now:
            msg = "connection refused"
            raise ConnectionLostError(msg)
        if not faults.strikes(faults.rates.redis):
            return self._carry_out(commands, 0.15 if faults.rates != Rates() else 0.0)
        kind = scheduler.rng.randrange(5)
        if kind == 0:
            server.fail_over()
        elif kind == 1:
            scheduler.note("redis call in part")
            self._carry_out(commands[: scheduler.rng.randrange(len(commands) + 1)], 0.1)
        elif kind == 2:
            scheduler.note("redis reply lost")
            self._carry_out(commands, 0.1)
        else:
            scheduler.note("redis call late")
            self._delay(commands)
        scheduler.sleep(scheduler.rng.choice((0.01, 5.0)))
        msg = "no reply"
        raise NoReplyError(msg)

    def _carry_out(self, commands: list[Command], interrupted: float) -> list[Any]:
        """Carry out commands, those of one partition in order, while others do theirs."""
        scheduler = self._server.scheduler
        numbers = list(range(len(commands)))
        if interrupted and len({key for _, key, _ in commands}) > 1:
            # Each partition is on a node of its own, and these are not waited for in turn.
            scheduler.rng.shuffle(numbers)
            for key in dict.fromkeys(key for _, key, _ in commands):
                places = [at for at, one in enumerate(numbers) if commands[one][1] == key]
                for at, one in zip(places, sorted(numbers[at] for at in places), strict=True):
                    numbers[at] = one
        replies: list[Any] = [None] * len(commands)
        refused = None
        for number in numbers:
            if interrupted and scheduler.chance(interrupted):
                self._server.faults.pass_time("decide")
            try:
                replies[number] = self._server.carry_out(commands[number])
            except ResponseError as error:
                refused = error
        if refused is not None:
            raise refused
        return replies

    def _delay(self, commands: list[Command]) -> None:
        """Let commands arrive when nobody waits for them any more."""
        scheduler = self._server.scheduler
        for command in commands:
            delay = scheduler.rng.choice((0.01, 0.5, 8.0, 60.0)) * (0.5 + scheduler.rng.random())
            scheduler.after(delay, partial(self._come_late, command))

    def _come_late(self, command: Command) -> None:
        self._server.scheduler.note("late repeated call", command[0])
        with suppress(ResponseError):
            self._server.carry_out(command)
