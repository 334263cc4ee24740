"""The consumer group's coordinator: who is in the group, and who reads which partition."""

from __future__ import annotations

from kafka.structs import TopicPartition  # type: ignore[import-untyped]

from tests.simulation.broker import Broker

#: Seconds without a heartbeat after which a member is taken for dead.
SESSION = 10.0
#: Seconds for which the first rebalance of an empty group waits for further members.
_INITIAL_DELAY = 3.0


class Group:
    """A group: members, generations, and who has which partition."""

    def __init__(self, broker: Broker, name: str, topic: str) -> None:
        self.name = name
        self.generation = 0
        self._broker = broker
        self._topic = topic
        self._assigned: dict[str, list[TopicPartition]] = {}
        self._members: list[str] = []
        #: Members that have joined the generation to come; None while the group is settled.
        self._joined: set[str] | None = None
        self._named = 0
        self._not_before = 0.0

    def join(self) -> str:
        """Take in a new member; return its name."""
        self._named += 1
        member = f"member-{self._named}"
        scheduler = self._broker.scheduler
        if not self._members:
            self._not_before = scheduler.now + _INITIAL_DELAY
            scheduler.after(_INITIAL_DELAY, self._complete)
        self._members.append(member)
        self._prepare()
        return member

    def rejoin(self, member: str) -> bool:
        """Say that a member takes part in the generation to come; return whether it has come."""
        if self._joined is not None:
            self._joined.add(member)
            self._complete()
        return self._joined is None

    def is_member(self, member: str) -> bool:
        """Whether a member was not given up."""
        return member in self._members

    def is_current(self, member: str, generation: int) -> bool:
        """Whether a member may commit what it polled in a generation."""
        return member in self._members and generation == self.generation

    def is_settled(self) -> bool:
        """Whether there is no rebalance under way."""
        return self._joined is None

    def assigned(self, member: str) -> list[TopicPartition]:
        """Return the partitions of a member."""
        return self._assigned.get(member, [])

    def remove(self, member: str, why: str) -> None:
        """Let a member go."""
        if member not in self._members:
            return
        self._broker.scheduler.note(why, member)
        self._members.remove(member)
        self._prepare()
        self._complete()

    def _prepare(self) -> None:
        if self._joined is None:
            self._joined = set()
            self._broker.scheduler.note("rebalance")

    def _complete(self) -> None:
        if self._joined is None or self._joined < set(self._members):
            return
        if self._broker.scheduler.now < self._not_before:
            return
        self.generation += 1
        self._joined = None
        self._assigned = {member: [] for member in self._members}
        for number in range(self._broker.partitions if self._members else 0):
            member = self._members[number % len(self._members)]
            self._assigned[member].append(TopicPartition(self._topic, number))
