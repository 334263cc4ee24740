"""A Kafka in one piece: logs, and transactions with their coordinator.

What a worker's promises rest on is here as brokers do it: a transaction is decided at its
coordinator and becomes visible one partition at a time; a new producer with its id ends it and
fences the old one; offsets travel in it, and are refused when the group has moved on (KIP-447); who
reads committed offsets waits for those that are still undecided.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from kafka.errors import (  # type: ignore[import-untyped]
    CommitFailedError,
    InvalidTxnStateError,
    KafkaConnectionError,
    ProducerFencedError,
)
from kafka.structs import TopicPartition  # type: ignore[import-untyped]

from tests.simulation.faults import Faults
from tests.simulation.scheduler import Scheduler

#: Where the offsets of a transaction go, beside partitions of topics.
_OFFSETS = TopicPartition("__consumer_offsets", 0)


class Members(Protocol):
    """What is asked of a consumer group."""

    name: str

    def is_current(self, member: str, generation: int) -> bool:
        """Whether a member may commit what it polled in a generation."""


class Transaction:
    """One transaction.

    Attributes:
        committed: what was decided; None while it is open.
        partitions: where it has written.
        marked: where its end has arrived.
        offsets: what it will commit, by group: offset and metadata.
    """

    def __init__(self) -> None:
        self.committed: bool | None = None
        self.partitions: set[TopicPartition] = set()
        self.marked: set[TopicPartition] = set()
        self.offsets: dict[str, dict[TopicPartition, Any]] = {}

    @property
    def is_over(self) -> bool:
        """Whether its end has arrived everywhere."""
        return self.committed is not None and self.marked >= self.partitions


class Entry(NamedTuple):
    """A record in a log; without a transaction it is visible at once."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]]
    timestamp: int
    transaction: Transaction | None = None


class Producer:
    """What the coordinator knows of a transactional id."""

    def __init__(self) -> None:
        self.epoch = 0
        self.transaction: Transaction | None = None


class Broker:
    """The brokers, as one.

    Attributes:
        scheduler: when things come about.
        faults: what goes wrong.
        partitions: number of partitions of every topic.
        logs: entries of each partition; None where an offset holds no record.
        offsets: committed offsets by group.
        metadata: what stands beside them.
        down_until: moment at which brokers are back.
    """

    def __init__(
        self, scheduler: Scheduler, faults: Faults, partitions: int, timeout: float
    ) -> None:
        self.scheduler = scheduler
        self.faults = faults
        self.partitions = partitions
        self.logs: dict[TopicPartition, list[Entry | None]] = defaultdict(list)
        self.offsets: dict[str, dict[TopicPartition, int]] = defaultdict(dict)
        self.metadata: dict[str, dict[TopicPartition, str]] = defaultdict(dict)
        self.down_until = 0.0
        self._timeout = timeout
        self._producers: dict[str, Producer] = {}
        self._open: list[Transaction] = []

    def check_up(self) -> None:
        """See whether a broker answers.

        Raises:
            KafkaConnectionError: none does.
        """
        if self.down_until > self.scheduler.now:
            msg = "no broker answers"
            raise KafkaConnectionError(msg)

    def fail_over(self) -> None:
        """Be away for some seconds. What was acknowledged stays."""
        self.down_until = self.scheduler.now + self.scheduler.rng.choice((0.5, 5.0, 20.0))
        self.scheduler.note("kafka failover")

    def is_unfinished(self, transactional_id: str) -> bool:
        """Whether the end of the last transaction has not arrived everywhere."""
        transaction = self._producer(transactional_id).transaction
        return (
            transaction is not None
            and transaction.committed is not None
            and not transaction.is_over
        )

    def is_open(self, transactional_id: str) -> bool:
        """Whether a transaction is open."""
        transaction = self._producer(transactional_id).transaction
        return transaction is not None and transaction.committed is None

    def init(self, transactional_id: str) -> int:
        """Begin a producer's life: end what the last one left open; return the epoch."""
        producer = self._producer(transactional_id)
        if producer.transaction is not None and self.is_open(transactional_id):
            self.scheduler.note("transaction aborted by successor")
            self._end(producer.transaction, commit=False)
        producer.epoch += 1
        return producer.epoch

    def append(
        self, partition: TopicPartition, entry: Entry, transactional_id: str | None, epoch: int
    ) -> None:
        """Write a record, within the transaction of a producer if it has one.

        Raises:
            ProducerFencedError: there is a later producer.
        """
        if transactional_id is not None:
            transaction = self._opened(transactional_id, epoch)
            transaction.partitions.add(partition)
            entry = entry._replace(transaction=transaction)
        self.logs[partition].append(entry)

    def add_offsets(  # noqa: PLR0917 - as a request has them
        self,
        transactional_id: str,
        epoch: int,
        group: Members,
        offsets: dict[TopicPartition, Any],
        member: str,
        generation: int,
    ) -> None:
        """Let a transaction carry offsets.

        Raises:
            ProducerFencedError: there is a later producer.
            CommitFailedError: the group has moved on.
        """
        transaction = self._opened(transactional_id, epoch)
        if member and not group.is_current(member, generation):
            self.scheduler.note("stale generation refused")
            msg = "group metadata mismatch"
            raise CommitFailedError(msg)
        transaction.partitions.add(_OFFSETS)
        transaction.offsets.setdefault(group.name, {}).update(offsets)

    def end(self, transactional_id: str, epoch: int, *, commit: bool) -> None:
        """Decide a transaction.

        Raises:
            ProducerFencedError: there is a later producer.
            InvalidTxnStateError: none is open.
        """
        producer = self._checked(transactional_id, epoch)
        if producer.transaction is None or producer.transaction.committed is not None:
            msg = "no transaction is open"
            raise InvalidTxnStateError(msg)
        self._end(producer.transaction, commit=commit)

    def committed(self, group: str, partition: TopicPartition) -> int | None:
        """Return the committed offset of a group; None where there is none."""
        return self.offsets[group].get(partition)

    def is_stable(self, group: str, partition: TopicPartition) -> bool:
        """Whether no unfinished transaction carries an offset of a partition."""
        return not any(partition in one.offsets.get(group, ()) for one in self._open)

    def visible(self, topic: str) -> list[Entry]:
        """Return what a reader of committed records gets."""
        found = []
        for number in range(self.partitions):
            partition = TopicPartition(topic, number)
            for entry in self.logs[partition]:
                if entry is None:
                    continue
                transaction = entry.transaction
                if transaction is not None and partition not in transaction.marked:
                    break
                if transaction is None or transaction.committed:
                    found.append(entry)
        return found

    def has_open(self) -> bool:
        """Whether a transaction is not over."""
        return bool(self._open)

    def _producer(self, transactional_id: str) -> Producer:
        return self._producers.setdefault(transactional_id, Producer())

    def _checked(self, transactional_id: str, epoch: int) -> Producer:
        producer = self._producer(transactional_id)
        if producer.epoch != epoch:
            self.scheduler.note("fenced")
            msg = f"epoch {epoch} is not {producer.epoch}"
            raise ProducerFencedError(msg)
        return producer

    def _opened(self, transactional_id: str, epoch: int) -> Transaction:
        producer = self._checked(transactional_id, epoch)
        if producer.transaction is None or producer.transaction.committed is not None:
            transaction = Transaction()
            producer.transaction = transaction
            self._open.append(transaction)
            self.scheduler.after(self._timeout, lambda: self._expire(producer, transaction))
        return producer.transaction

    def _expire(self, producer: Producer, transaction: Transaction) -> None:
        if transaction.committed is None:
            self.scheduler.note("transaction timed out")
            producer.epoch += 1
            self._end(transaction, commit=False)

    def _end(self, transaction: Transaction, *, commit: bool) -> None:
        transaction.committed = commit
        self.scheduler.note("transaction committed" if commit else "transaction aborted")
        for partition in sorted(transaction.partitions):
            delay = self.scheduler.rng.random() * 0.02
            if self.faults.strikes(min(0.3, 4 * self.faults.rates.kafka)):
                delay += self.scheduler.rng.choice((0.5, 6.0))
            self.scheduler.after(delay, partial(self._mark, transaction, partition))
        if not transaction.partitions:
            self._open.remove(transaction)

    def _mark(self, transaction: Transaction, partition: TopicPartition) -> None:
        """Let the end of a transaction arrive at one place."""
        transaction.marked.add(partition)
        if partition != _OFFSETS:
            self.logs[partition].append(None)
        elif transaction.committed:
            for group, offsets in transaction.offsets.items():
                for place, one in offsets.items():
                    self.offsets[group][place] = one.offset
                    self.metadata[group][place] = one.metadata
        if partition == _OFFSETS:
            transaction.offsets = {}
        if transaction.is_over:
            self._open.remove(transaction)
