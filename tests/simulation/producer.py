"""A producer of the simulated Kafka, with the names that kafka-python gives it.

It has that client's traps, so that a worker which falls into one is seen to: offsets that a failed
transaction leaves behind go with the next one of the same producer; and a commit after a batch that
was fenced returns as if it had worked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from kafka.errors import (  # type: ignore[import-untyped]
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    NodeNotReadyError,
    ProducerFencedError,
)
from kafka.structs import TopicPartition  # type: ignore[import-untyped]

from tests.simulation.broker import Entry
from tests.simulation.clients import Client
from tests.simulation.consumer import Membership

#: What the broker refuses to store in an output topic.
REFUSED = b"refuse-me"


class _Future:
    """What became of a record that was sent."""

    def __init__(self) -> None:
        self.exception: KafkaError | None = None
        self.done = False

    def succeeded(self) -> bool:
        """Whether it arrived."""
        return self.done and self.exception is None

    def get(self, timeout: float) -> None:
        """Say whether it arrived.

        Raises:
            KafkaError: it did not, or nobody knows.
        """
        if self.exception is not None:
            raise self.exception
        if not self.done:
            msg = f"nothing was heard for {timeout} s"
            raise KafkaTimeoutError(msg)


class _Sender:
    def force_close(self) -> None:
        """Stop sending."""


class Producer(Client):
    """Stands in for ``KafkaProducer``; without a transactional id it has no transactions."""

    def __init__(self, **options: Any) -> None:
        self._id: str | None = options.get("transactional_id")
        self._epoch = 0
        self._sender = _Sender()
        self._sent: list[tuple[TopicPartition, Entry, _Future]] = []
        #: Offsets that no broker has acknowledged; they outlive their transaction, as with the
        #: real client.
        self._pending: dict[TopicPartition, Any] = {}
        self._begun = False
        self._fenced_batch = False

    def init_transactions(self) -> None:
        """Finish what the last producer with this id left open, and fence it."""
        assert self._id is not None
        self._call("open")
        self._await_end()
        self._epoch = self.cluster.broker.init(self._id)
        self._await_end()
        self._answer("open")

    def begin_transaction(self) -> None:
        """Begin; no broker is asked."""
        assert not self._begun, "a transaction is open"
        self._begun = True
        self._fenced_batch = False

    def partitions_for(self, _topic: str) -> set[int]:
        """Return the numbers of a topic's partitions."""
        return set(range(self.cluster.broker.partitions))

    def send(  # noqa: PLR0917 - as the real one is called
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Sequence[tuple[str, bytes]],
        partition: int,
        timestamp: int | None,
    ) -> _Future:
        """Take a record to be sent."""
        future = _Future()
        entry = Entry(key, value, headers, timestamp or 0)
        self._sent.append((TopicPartition(topic, partition), entry, future))
        return future

    def flush(self, timeout: float | None = None) -> None:
        """Send what was taken, a batch for each partition; one error goes for all of a batch."""
        batches: dict[TopicPartition, list[tuple[Entry, _Future]]] = {}
        for partition, entry, future in self._sent:
            batches.setdefault(partition, []).append((entry, future))
        self._sent = []
        for partition, batch in batches.items():
            error = None
            try:
                self._send_batch(partition, [entry for entry, _ in batch])
            except KafkaError as failed:
                error = failed
                self._fenced_batch |= isinstance(failed, ProducerFencedError)
            for _, future in batch:
                future.exception, future.done = error, True

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, Any], membership: Membership
    ) -> None:
        """Let the transaction carry offsets."""
        assert self._id is not None
        assert self._begun, "no transaction is open"
        self._call("send offsets")
        self._await_end()
        self._pending |= offsets
        self.cluster.broker.add_offsets(
            self._id,
            self._epoch,
            self.cluster.group(membership.group_id),
            self._pending,
            membership.member_id,
            membership.generation_id,
        )
        self._pending = {}
        self._answer("send offsets")

    def commit_transaction(self) -> None:
        """Commit."""
        self._end(commit=True)

    def abort_transaction(self) -> None:
        """Abort."""
        self._end(commit=False)

    def close(self, timeout: float | None = None) -> None:
        """Close the connections."""

    def _end(self, *, commit: bool) -> None:
        assert self._id is not None
        self._begun = False
        if self._fenced_batch:
            self.cluster.broker.scheduler.note("commit only seems to succeed")
            return
        end = partial(self.cluster.broker.end, self._id, self._epoch, commit=commit)
        self._call("commit", end)
        end()
        self._answer("commit")

    def _send_batch(self, partition: TopicPartition, entries: list[Entry]) -> None:
        self._call("publish", partial(self._append, partition, entries, late=True))
        if partition.topic == "out" and any(REFUSED in (one.value or b"") for one in entries):
            self.cluster.broker.scheduler.note("record refused")
            msg = "too large"
            raise MessageSizeTooLargeError(msg)
        if self._id is not None:
            self._await_end()
        self._append(partition, entries)
        self._answer("publish")

    def _append(
        self, partition: TopicPartition, entries: list[Entry], *, late: bool = False
    ) -> None:
        """Write records; late ones only into a transaction that is open."""
        broker = self.cluster.broker
        if late and self._id is not None and not broker.is_open(self._id):
            return
        transactional_id = self._id if self._begun or late else None
        for entry in entries:
            broker.append(partition, entry, transactional_id, self._epoch)

    def _await_end(self) -> None:
        """Wait until the last transaction with this id has ended everywhere."""
        assert self._id is not None
        scheduler = self.cluster.broker.scheduler
        deadline = scheduler.now + 20
        while self.cluster.broker.is_unfinished(self._id):
            if scheduler.now > deadline:
                msg = "the last transaction does not end"
                raise NodeNotReadyError(msg)
            scheduler.sleep(0.05)
