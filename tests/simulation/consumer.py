"""A consumer of the simulated Kafka, with the names that kafka-python gives it.

It has that client's trap: when the heartbeat thread has lost the membership, what it leaves behind
names no member.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kafka.errors import KafkaTimeoutError  # type: ignore[import-untyped]
from kafka.structs import (  # type: ignore[import-untyped]
    OffsetAndMetadata,
    TopicPartition,
)

from tests.simulation.clients import Client
from tests.simulation.group import SESSION


class Message(NamedTuple):
    """A record that was read."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]]


class Membership(NamedTuple):
    """What a consumer knows of its group."""

    group_id: str
    generation_id: int
    member_id: str
    state: str


class Consumer(Client):
    """Stands in for ``KafkaConsumer``."""

    def __init__(self, **options: Any) -> None:
        self._group = self.cluster.group(options["group_id"])
        self._topic = ""
        self._member = ""
        self._generation = -1
        self._settled = False
        self._listener: Any = None
        self._positions: dict[TopicPartition, int | None] = {}
        process = self.cluster.broker.scheduler.current
        assert process is not None
        process.told.append(self._on_pause)

    def subscribe(self, *, topics: list[str], listener: Any) -> None:
        """Name what to read."""
        (self._topic,) = topics
        self._listener = listener

    def poll(self, *, timeout_ms: int, max_records: int) -> dict[TopicPartition, list[Message]]:
        """Return the next records of some of the partitions."""
        scheduler = self.cluster.broker.scheduler
        self._call("poll")
        if not self._take_part():
            scheduler.sleep(3.0)
            return {}
        polled = self._fetch(max_records)
        if not polled:
            scheduler.sleep(timeout_ms / 1000)
        self._lose_heartbeats()
        return polled

    def group_metadata(self) -> Membership:
        """Return the membership as it is known, which the heartbeat thread may have lost."""
        if self._member and not self._group.is_member(self._member):
            scheduler = self.cluster.broker.scheduler
            if scheduler.chance(0.5):
                scheduler.note("membership lost behind the back")
                self._member, self._generation, self._settled = "", -1, False
        state = "<stable>" if self._settled else "<joining>"
        return Membership(self._group.name, self._generation, self._member, state)

    def assignment(self) -> list[TopicPartition]:
        """Return the partitions held."""
        return sorted(self._positions)

    def end_offsets(
        self, partitions: Sequence[TopicPartition], *, timeout_ms: int
    ) -> dict[TopicPartition, int]:
        """Return where partitions end."""
        self._call("lag")
        assert timeout_ms > 0
        return {partition: len(self.cluster.broker.logs[partition]) for partition in partitions}

    def position(self, partition: TopicPartition, **_: int) -> int | None:
        """Return where reading goes on."""
        return self._positions[partition]

    def partitions_for_topic(self, _topic: str) -> set[int]:
        """Return the numbers of a topic's partitions."""
        return set(range(self.cluster.broker.partitions))

    def committed(
        self, partition: TopicPartition, *, timeout_ms: int, metadata: bool = False
    ) -> Any:
        """Return the committed offset, when it is decided."""
        scheduler = self.cluster.broker.scheduler
        self._call("rewind")
        deadline = scheduler.now + timeout_ms / 1000
        while not self.cluster.broker.is_stable(self._group.name, partition):
            if scheduler.now > deadline:
                msg = "the committed offset is not stable"
                raise KafkaTimeoutError(msg)
            scheduler.sleep(0.1)
        offset = self.cluster.broker.committed(self._group.name, partition)
        if not metadata or offset is None:
            return offset
        beside = self.cluster.broker.metadata[self._group.name][partition]
        return OffsetAndMetadata(offset, beside, -1)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on from an offset."""
        self._positions[partition] = offset

    def seek_to_beginning(self, partition: TopicPartition) -> None:
        """Go on from the first record."""
        self._positions[partition] = 0

    def close(self, **_: Any) -> None:
        """Leave the group."""
        self.cluster.broker.faults.pass_time("close")
        self._group.remove(self._member, "member left")

    def end_session(self) -> None:
        """Be taken for dead, if nothing was heard for long enough."""
        member = self._member
        scheduler = self.cluster.broker.scheduler
        scheduler.after(SESSION, lambda: self._group.remove(member, "session expired"))

    def _on_pause(self, seconds: float) -> None:
        if seconds > SESSION and self._member:
            self.end_session()

    def _lose_heartbeats(self) -> None:
        faults = self.cluster.broker.faults
        if self._member and faults.strikes(0.6 * faults.rates.pause):
            self._group.remove(self._member, "heartbeats lost")

    def _take_part(self) -> bool:
        """Join, rejoin, and find out where to begin; return whether all that is done."""
        group, scheduler = self._group, self.cluster.broker.scheduler
        self._lose_heartbeats()
        if not group.is_member(self._member):
            self._member, self._settled = group.join(), False
        if not (self._settled and group.is_settled() and self._generation == group.generation):
            self._positions, self._settled = {}, False
            if not group.rejoin(self._member):
                return False
            self._generation, self._settled = group.generation, True
            scheduler.note("assigned", group.assigned(self._member))
            self._positions = dict.fromkeys(group.assigned(self._member))
            self._listener.on_partitions_assigned(self.assignment())
        for partition, position in self._positions.items():
            if position is None:
                if not self.cluster.broker.is_stable(group.name, partition):
                    scheduler.note("waits for a stable offset")
                    return False
                self._positions[partition] = (
                    self.cluster.broker.committed(group.name, partition) or 0
                )
        return True

    def _fetch(self, max_records: int) -> dict[TopicPartition, list[Message]]:
        polled: dict[TopicPartition, list[Message]] = {}
        partitions = self.assignment()
        self.cluster.broker.scheduler.rng.shuffle(partitions)
        for partition in partitions:
            log, found = self.cluster.broker.logs[partition], []
            offset = self._positions[partition] or 0
            while offset < len(log) and max_records:
                entry = log[offset]
                if entry is not None:
                    place = (partition.topic, partition.partition, offset)
                    found.append(Message(*place, entry.timestamp, entry.key, entry.value, []))
                    max_records -= 1
                offset += 1
            self._positions[partition] = offset
            if found:
                polled[partition] = found
        return polled
