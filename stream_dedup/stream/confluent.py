"""The transport of librdkafka (confluent-kafka): less Python for each record.

The promises, and the order of things that keeps them, are told in ``transactional``. The membership
that goes with the offsets is taken when partitions are assigned: the client asks for a new one only
after this thread gave the old one back, so every record polled in between belongs to it. Of the
traps that such clients have:

- *Stale offsets after an abort*: a producer never does another transaction after a failure.
- *Commits that only seem to succeed*: a record that did not arrive fails the transaction inside the
  client already. It is not left to that: offsets are sent when all records have been reported, and
  none with an error.
- *Waits without a timeout*: every call here has one but ``close`` of the consumer, at the end.
- *Decompression bombs*: zstd unpacks to ``RECEIVE_MAX_BYTES`` at most, beyond that the batch cannot
  be read. LZ4, gzip and Snappy have no limit (255, 1,030 and 20 times what was fetched); the memory
  limit of the process is the bound.
- *Damaged batches are left out*, with an error in their place, and reading goes on behind them.
  Such an error ends this process here, before the offset can move past it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from stream_dedup.settings import Settings
from stream_dedup.stream.confluent_clients import OPEN_TIMEOUT, open_consumer
from stream_dedup.stream.confluent_publish import Outbox
from stream_dedup.stream.kafka_limits import PRODUCE_BATCH_BYTES, describe
from stream_dedup.stream.transactional import Transactional
from stream_dedup.stream.transport import Output, Partition, PublishError, Record

log = logging.getLogger(__name__)

#: Least to which batches are cut for a topic that takes none of the usual size.
_LEAST_BATCH_BYTES = 10_000

#: What a producer hears when there is another with its id, or when its transaction timed out.
_FENCED = frozenset(
    {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}
)
#: Errors in place of records that are not about records: the client goes on by itself.
_PASSING = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._MAX_POLL_EXCEEDED,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._WAIT_COORD,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)


class InputRecord(NamedTuple):
    """One input message, read out of the client's."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


class ConfluentTransport(Transactional):
    """Reads the input topic as a member of the group and publishes transactionally.

    Args:
        settings: brokers, topics, group and limits.
        transactional_id: see ``Transactional``.
        beat: see there.
        on_assigned: called with the number of partitions after each rebalance.

    Raises:
        ServiceError: no broker answers, or it refuses this producer.
    """

    errors: ClassVar[tuple[type[Exception], ...]] = (KafkaException,)

    def __init__(
        self,
        settings: Settings,
        transactional_id: str,
        *,
        beat: Callable[[], None] = lambda: None,
        on_assigned: Callable[[int], None] = lambda _partitions: None,
    ) -> None:
        super().__init__(settings, transactional_id, beat)
        self._on_assigned = on_assigned
        self._batch_bytes = PRODUCE_BATCH_BYTES
        #: Whether a record was named as refused since records are sent one by one.
        self._named = False
        #: Offset behind the last polled record of each partition.
        self._offsets: dict[Partition, int] = {}
        #: Offset at which a partition was found to end.
        self._ends: dict[Partition, int] = {}
        self._membership: Any = None
        self._outbox: Outbox | None = None
        self._consumer: Any = open_consumer(settings, transactional_id)
        self._consumer.subscribe(
            [settings.input_topic],
            on_assign=self._assigned,
            on_revoke=self._revoked,
            on_lost=self._revoked,
        )
        beat()
        try:
            self._open_producer()
        except KafkaException as error:
            self.close()
            raise self._unusable(error) from error

    def poll(self) -> Sequence[Record]:
        """Return the next records; see ``Transport.poll``."""
        try:
            records = [
                InputRecord(
                    message.topic(),
                    message.partition(),
                    message.offset(),
                    message.timestamp()[1],
                    message.key(),
                    message.value(),
                    message.headers() or (),
                )
                for message in self._consume()
            ]
        except Exception as error:
            # A header's name that is not UTF-8 is such a case, too.
            raise self._unreadable(error) from error
        self._offsets = {(record[0], record[1]): record[2] + 1 for record in records}
        if records and self._membership is None:
            self._return_batch()
            return ()
        return records

    def publish(self, outputs: Sequence[Output]) -> None:
        """Publish answers and offsets in one transaction; see ``Transport.publish``."""
        singly = self._singly
        try:
            super().publish(outputs)
        except PublishError as error:
            self._named = self._named or bool(error.refused)
            raise
        if singly and not self._named and self._batch_bytes > _LEAST_BATCH_BYTES:
            # Refused together, taken one by one: the topic takes smaller batches than usual. The
            # client does not split them, so that the next producer makes smaller ones.
            self._batch_bytes //= 2
            log.warning("batches are cut to %d bytes from now on", self._batch_bytes)
            self._drop_producer()
        self._named = False

    def lag(self) -> Mapping[Partition, int]:
        """Return the unread records of each partition held now."""
        lags = {}
        try:
            for held in self._consumer.position(self._consumer.assignment()):
                partition = (held.topic, held.partition)
                position = max(held.offset, self._ends.get(partition, -1))
                _, end = self._consumer.get_watermark_offsets(held, cached=True)
                if position >= 0 and end >= 0:
                    lags[partition] = max(0, end - position)
        except KafkaException as error:
            # Not worth an end: it is asked again in a second.
            log.debug("the lag cannot be told: %s", describe(error))
        return lags

    def joined(self) -> bool:
        """Tell whether the group has settled with this worker in it."""
        return self._membership is not None

    def close(self) -> None:
        """Leave the group at once, so that others need not wait for the session to end."""
        self._drop_producer()
        self._consumer.close()

    def _consume(self) -> list[Any]:
        """Return up to a batch of messages, and deal with what stands in the place of some."""
        most = self._settings.batch_documents
        messages: list[Any] = self._consumer.consume(most, 0)
        if not messages:
            # To wait for a whole batch would hold up the first of it.
            messages = self._consumer.consume(1, self._settings.batch_wait)
            if messages and most > 1:
                messages += self._consumer.consume(most - 1, 0)
        good = [message for message in messages if message.error() is None]
        if len(good) < len(messages):
            for message in messages:
                if message.error() is not None:
                    self._note(message)
        return good

    def _note(self, message: Any) -> None:
        """Deal with an error in the place of a message."""
        error = message.error()
        if error.code() == KafkaError._PARTITION_EOF:
            self._ends[(message.topic(), message.partition())] = message.offset()
        elif error.code() in _PASSING:
            log.warning("poll failed and will be tried again: %s", error.str())
        else:
            raise KafkaException(error)

    def _transact(self, outputs: Sequence[Output]) -> None:
        if self._outbox is None:
            self._open_producer()
        outbox = self._outbox
        assert outbox is not None  # noqa: S101 - for the type checker
        outbox.begin()
        if self._singly:
            outbox.send_singly(outputs)
        else:
            outbox.send_all(outputs)
        outbox.commit(
            [TopicPartition(*partition, offset) for partition, offset in self._offsets.items()],
            self._membership,
        )
        self._offsets = {}

    def _drop_producer(self) -> None:
        if self._outbox is not None:
            self._outbox.discard()
            self._outbox = None

    def _open_producer(self) -> None:
        self._outbox = Outbox(self._settings, self._transactional_id, self._batch_bytes, self._beat)

    def _is_fenced(self, error: Exception) -> bool:
        return isinstance(error, KafkaException) and error.args[0].code() in _FENCED

    def _rewind(self) -> None:
        self._offsets = {}
        held = self._consumer.assignment()
        if not held:
            return
        # Waits while an offset is part of an unfinished transaction (isolation level).
        committed = self._consumer.committed(held, OPEN_TIMEOUT)
        for partition in committed:
            if partition.error is not None:
                raise KafkaException(partition.error)
            if partition.offset < 0:
                partition.offset = OFFSET_BEGINNING
        # Unlike ``seek`` this is possible at any time, and drops what was fetched ahead.
        self._consumer.assign(committed)

    def _assigned(self, consumer: Any, partitions: Sequence[Any]) -> None:
        """Note the membership; the client starts reading at the committed offsets by itself."""
        log.info("assigned partitions: %s", sorted(partition.partition for partition in partitions))
        self._membership = consumer.consumer_group_metadata()
        self._on_assigned(len(partitions))

    def _revoked(self, _consumer: Any, _partitions: Sequence[Any]) -> None:
        """Forget the membership. Everything polled before was published or will be refused."""
        self._membership = None
        self._ends.clear()
