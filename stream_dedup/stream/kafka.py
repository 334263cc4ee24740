"""The transport of kafka-python: the default, in Python throughout.

The promises, and the order of things that keeps them, are told in ``transactional``. Of its traps:

- *Stale offsets after an abort, and commits that only seem to succeed*: a producer never does
  another transaction after a failure, and no offsets are sent before every record has arrived.
- *Waits without a timeout*: its commit may wait for ever, so the supervisor ends a silent process.
- *Decompression bombs*: it has no limit to what a fetched batch may unpack to; the memory limit of
  the process is the bound. It decompresses in private functions of its record reader, and to
  replace those is a later matter; the input topic's writers have to be trusted that far.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from kafka import ConsumerRebalanceListener  # type: ignore[import-untyped]
from kafka.errors import KafkaError, RetriableError  # type: ignore[import-untyped]
from kafka.structs import OffsetAndMetadata  # type: ignore[import-untyped]

from stream_dedup.errors import ServiceError
from stream_dedup.settings import Settings
from stream_dedup.stream.kafka_clients import discard, open_consumer, open_producer
from stream_dedup.stream.kafka_limits import OPEN_TIMEOUT_MS, describe
from stream_dedup.stream.kafka_publish import Publishing
from stream_dedup.stream.patience import BACKOFF
from stream_dedup.stream.transactional import Transactional
from stream_dedup.stream.transport import Output, Partition, Record

log = logging.getLogger(__name__)


class KafkaTransport(Transactional):
    """Reads the input topic as a member of the group and publishes transactionally.

    Args:
        settings: brokers, topics, group and limits.
        transactional_id: see ``Transactional``.
        beat: see there.
        on_assigned: called with the number of partitions after each rebalance.

    Raises:
        ServiceError: no broker answers, or it refuses this producer.
    """

    errors: ClassVar[tuple[type[Exception], ...]] = (KafkaError,)

    def __init__(
        self,
        settings: Settings,
        transactional_id: str,
        *,
        beat: Callable[[], None] = lambda: None,
        on_assigned: Callable[[int], None] = lambda _partitions: None,
    ) -> None:
        super().__init__(settings, transactional_id, beat)
        self._offsets: dict[Any, Any] = {}
        self._membership: Any = None
        self._producer: Any = None
        self._consumer: Any = None
        try:
            self._consumer = open_consumer(settings, transactional_id)
            self._consumer.subscribe(topics=[settings.input_topic], listener=_Listener(on_assigned))
            beat()
            self._open_producer()
        except KafkaError as error:
            self.close()
            raise self._unusable(error) from error

    def poll(self) -> Sequence[Record]:
        """Return the next records; see ``Transport.poll``."""
        try:
            polled: Mapping[Any, list[Record]] = self._consumer.poll(
                timeout_ms=int(self._settings.batch_wait * 1000),
                max_records=self._settings.batch_documents,
            )
        except RetriableError as error:
            log.warning("poll failed and will be tried again: %s", describe(error))
            time.sleep(BACKOFF[0])
            return ()
        except Exception as error:
            # Anything can come out of a damaged batch: codecs and parsers raise errors of their
            # own. None of it is mended by reading the same bytes again.
            raise self._unreadable(error) from error
        self._offsets = {
            partition: OffsetAndMetadata(records[-1].offset + 1, "", -1)
            for partition, records in polled.items()
        }
        if not polled:
            return ()
        # Taken now, because the heartbeat thread may lose the membership at any time; what it
        # leaves behind names no member, and a commit that names none is not fenced by the broker.
        # The generation itself only moves on inside the poll above.
        self._membership = self._consumer.group_metadata()
        if not self._membership.member_id:
            self._return_batch()
            return ()
        if len(polled) == 1:
            return next(iter(polled.values()))
        return [record for records in polled.values() for record in records]

    def lag(self) -> Mapping[Partition, int]:
        """Return the unread records of each partition held now."""
        lags = {}
        try:
            for partition in self._consumer.assignment():
                end = self._consumer.highwater(partition)
                position = self._consumer.position(partition, timeout_ms=0) if end else None
                if position is not None:
                    lags[(partition.topic, partition.partition)] = max(0, end - position)
        except KafkaError as error:
            # Not worth an end: it is asked again in a second.
            log.debug("the lag cannot be told: %s", describe(error))
        return lags

    def joined(self) -> bool:
        """Tell whether the group has settled with this worker in it."""
        membership = self._consumer.group_metadata()
        return bool(membership.member_id) and membership.state == "<stable>"

    def close(self) -> None:
        """Leave the group at once, so that others need not wait for the session to end."""
        self._drop_producer()
        if self._consumer is not None:
            self._consumer.close(autocommit=False, timeout_ms=5000)

    def _transact(self, outputs: Sequence[Output]) -> None:
        producer = self._producer
        if producer is None:
            msg = "the producer of the last transaction could not be replaced"
            raise ServiceError(msg)
        inputs = len(self._consumer.partitions_for_topic(self._settings.input_topic))
        producer.begin_transaction()
        publishing = Publishing(producer, inputs, self._beat)
        if self._singly:
            publishing.send_singly(outputs)
        else:
            publishing.send_all(outputs)
        producer.send_offsets_to_transaction(self._offsets, self._membership)
        producer.commit_transaction()
        self._offsets = {}

    def _drop_producer(self) -> None:
        if self._producer is not None:
            discard(self._producer)
            self._producer = None

    def _open_producer(self) -> None:
        self._producer = open_producer(self._settings, self._transactional_id)

    def _is_fenced(self, error: Exception) -> bool:
        return "ProducerFenced" in describe(error)

    def _rewind(self) -> None:
        for partition in self._consumer.assignment():
            # Waits while an offset is part of an unfinished transaction (isolation level).
            committed = self._consumer.committed(partition, timeout_ms=OPEN_TIMEOUT_MS)
            if committed is None:
                self._consumer.seek_to_beginning(partition)
            else:
                self._consumer.seek(partition, committed)
        self._offsets = {}


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Notes assignments. A batch in hand needs no care: its commit is fenced by generation."""

    def __init__(self, on_assigned: Callable[[int], None]) -> None:
        self._on_assigned = on_assigned

    def on_partitions_revoked(self, revoked: object) -> None:
        """Nothing to do: everything polled before this was published or will be refused."""

    def on_partitions_assigned(self, assigned: Sequence[Any]) -> None:
        """Note how many partitions there are now."""
        log.info("assigned partitions: %s", sorted(partition.partition for partition in assigned))
        self._on_assigned(len(assigned))
