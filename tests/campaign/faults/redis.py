"""What happens to Redis: primaries killed, frozen, replaced, moved, full, out of time."""

from __future__ import annotations

import time
from contextlib import suppress

import redis

from tests.campaign.faults.base import Fault, Lane, Span
from tests.campaign.fleet import NODE_TIMEOUT, Fleet
from tests.services.redis import RedisServer
from tests.services.slots import move_slot, owner_of, slot_of_partition

#: Bytes beyond which the files of a node cannot grow. Its list of nodes is smaller, its AOF larger.
_FULL = 64 * 1024
#: Bytes of memory that a node has when it has too few.
_TOO_FEW = 1024 * 1024
#: Partitions of the index whose slots move.
_MOVED = 4
#: Hours by which a clock is off at most.
_MOST_HOURS = 12
#: Time that slots have to arrive.
_PATIENCE = 60.0


class _OnPrimary(Fault):
    lane = Lane.REDIS

    def __init__(self, fleet: Fleet, share: float) -> None:
        super().__init__(fleet, share)
        self.node: RedisServer | None = None

    def choose(self) -> RedisServer:
        """Choose one of those that are primaries now."""
        primaries = self.fleet.redis.primaries()
        self.node = primaries[int(self.share * len(primaries))]
        self.hits = f"node {self.fleet.redis.nodes.index(self.node) + 1}"
        return self.node

    @property
    def hit(self) -> RedisServer:
        """The one that was chosen."""
        assert self.node is not None
        return self.node

    def configure(self, name: str, value: str) -> None:
        with self.hit.client() as client:
            client.config_set(name, value)


class PrimaryKill(_OnPrimary):
    """SIGKILL to a primary; its replica takes over, and it comes back as a replica."""

    name = "Redis primary kill"
    lasts = Span(2 * NODE_TIMEOUT, 3 * NODE_TIMEOUT)

    def begin(self) -> None:
        self.choose().kill()

    def end(self) -> None:
        self.hit.launch()


class PrimaryPause(_OnPrimary):
    """SIGSTOP to a primary past the timeout; it wakes up believing that it still is one."""

    name = "Redis primary SIGSTOP"
    lasts = Span(2 * NODE_TIMEOUT, 3 * NODE_TIMEOUT)
    lasts_long = Span(2 * NODE_TIMEOUT, 30)

    def begin(self) -> None:
        self.choose().pause()

    def end(self) -> None:
        self.hit.resume()


class AofRestart(_OnPrimary):
    """SIGKILL to a primary that is back, with its append-only file, before anybody takes over."""

    name = "Redis restart with AOF"

    def begin(self) -> None:
        self.choose().kill()
        self.hit.launch()


class Failover(_OnPrimary):
    """A replica is asked to take over from a primary that is well."""

    name = "Redis failover"

    def begin(self) -> None:
        self.choose()
        replica = self.fleet.replica_of(self.hit)
        if replica is None:
            self.hits += " (has no replica)"
            return
        with replica.client() as client:
            client.cluster("FAILOVER")


class Reshard(_OnPrimary):
    """Slots of the index move to another primary, key by key."""

    name = "Redis resharding"
    lasts = Span(0.1, 0.1)

    def begin(self) -> None:
        index = self.fleet.settings
        first = int(self.share * index.partitions)
        self.hits = f"{_MOVED} slots from partition {first} on"
        self._left = [
            slot_of_partition(index.redis_namespace, number % index.partitions)
            for number in range(first, first + _MOVED)
        ]
        self._moving: tuple[RedisServer, RedisServer] | None = None

    def is_done(self) -> bool:
        with suppress(redis.RedisError):
            if self._move(self._left[0]):
                self._left.pop(0)
                self._moving = None
        return not self._left

    def _move(self, slot: int) -> bool:
        # What broke off goes on between the same two.
        if self._moving is None:
            primaries = self.fleet.redis.primaries()
            source = owner_of(slot, primaries)
            others = [node for node in primaries if node is not source]
            if source is None or not others:
                return False
            self._moving = (source, others[slot % len(others)])
        move_slot(slot, *self._moving)
        return True


class RedisDiskFull(_OnPrimary):
    """The append-only file of a primary cannot grow: it refuses writes until it can.

    With ``appendfsync always`` Redis ends itself instead, which is a kill; so it is at every second
    for this while.
    """

    name = "Redis disk full"
    lasts = Span(2, 6)

    def begin(self) -> None:
        self.choose()
        self.configure("appendfsync", "everysec")
        self.hit.limit_files(_FULL)

    def end(self) -> None:
        self.hit.limit_files(None)
        # Refused only while its last write has failed.
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            with suppress(redis.RedisError):
                self.configure("appendfsync", "always")
                return
            time.sleep(0.2)


class OutOfMemory(_OnPrimary):
    """A primary has less memory than it holds, and refuses what needs more."""

    name = "Redis out of memory"
    lasts = Span(2, 6)

    def begin(self) -> None:
        self.choose()
        self.configure("maxmemory", str(_TOO_FEW))

    def end(self) -> None:
        self.configure("maxmemory", "0")


class ClockStep(_OnPrimary):
    """The clock of a primary steps by hours, on or back, and stays so until the next step.

    Where it goes back, the primary is restarted with it, as one whose machine was: a node of a
    Redis Cluster whose clock goes back while it runs does not leave the state ``fail``, nor votes,
    until its clock is where it was.
    """

    name = "Redis clock step"

    def begin(self) -> None:
        self.choose()
        clock = self.fleet.clocks[self.fleet.redis.nodes.index(self.hit)]
        hours = 1 + int(self.share * 997) % _MOST_HOURS
        offset = 3600 * (hours if int(self.share * 1000) % 2 else -hours)
        self.hits += f" {offset:+} s"
        goes_back = offset < clock.offset
        if goes_back:
            self.hit.kill()
        clock.set(offset)
        if goes_back:
            self.hit.launch()


KINDS = (
    PrimaryKill,
    PrimaryPause,
    AofRestart,
    Failover,
    Reshard,
    RedisDiskFull,
    OutOfMemory,
    ClockStep,
)
