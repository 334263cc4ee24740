"""The transport over Kafka: read committed records, publish answers and offsets in one transaction.

What keeps the promise "one published decision for one input record" is, in this order:

1. Offsets travel in the transaction that carries the answers, with the group's generation *as it
   was when the records were polled*. When the group has moved on, the broker refuses them.
2. After any failure the producer is thrown away. A new one with the same transactional id waits
   until the broker has finished the old transaction, one way or the other. Only then are the
   committed offsets read, and the consumer goes back to them.

So it is never asked whether a failed commit took effect; the committed offsets tell.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafka import ConsumerRebalanceListener  # type: ignore[import-untyped]
from kafka.errors import KafkaError, RetriableError  # type: ignore[import-untyped]
from kafka.structs import OffsetAndMetadata  # type: ignore[import-untyped]

from stream_dedup.errors import ServiceError
from stream_dedup.settings import Settings
from stream_dedup.stream.kafka_clients import (
    OPEN_TIMEOUT_MS,
    describe,
    discard,
    open_consumer,
    open_producer,
)
from stream_dedup.stream.kafka_publish import Publishing, RecordRefusedError
from stream_dedup.stream.transport import Output, Partition, PublishError, Record

log = logging.getLogger(__name__)

#: After a failure: first and longest pause, and the time after which the process gives up.
BACKOFF = (0.1, 5.0)
RECOVERY_TIMEOUT = 120.0


class KafkaTransport:
    """Reads the input topic as a member of the group and publishes transactionally.

    Args:
        settings: brokers, topics, group and limits.
        transactional_id: the same for every life of one worker process, and of no other; see
            ``stream_dedup_workers.annotate.transactional_id``.
        beat: called whenever there was progress; calls into Kafka may block without a bound, and
            the supervisor ends a process that stays silent.
        on_assigned: called with the number of partitions after each rebalance.

    Raises:
        ServiceError: no broker answers, or it refuses this producer.
    """

    def __init__(
        self,
        settings: Settings,
        transactional_id: str,
        *,
        beat: Callable[[], None] = lambda: None,
        on_assigned: Callable[[int], None] = lambda _partitions: None,
    ) -> None:
        self._settings = settings
        self._transactional_id = transactional_id
        self._beat = beat
        self._offsets: dict[Any, Any] = {}
        self._membership: Any = None
        self._fences = 0
        #: Send records one by one, to learn which of them the broker refuses.
        self._singly = False
        self._producer: Any = None
        self._consumer: Any = None
        try:
            self._consumer = open_consumer(settings, transactional_id)
            self._consumer.subscribe(topics=[settings.input_topic], listener=_Listener(on_assigned))
            beat()
            self._producer = open_producer(settings, transactional_id)
        except KafkaError as error:
            self.close()
            msg = (
                f"Kafka at {settings.kafka_bootstrap} cannot be used: {describe(error)}. Check "
                "that the brokers are up and that this program may use the group and transactions."
            )
            raise ServiceError(msg) from error

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
            msg = (
                f"The topic {self._settings.input_topic} cannot be read: {describe(error)}. "
                "If this stays after a restart, move the group's offset past the damaged record."
            )
            raise ServiceError(msg) from error
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

    def publish(self, outputs: Sequence[Output]) -> None:
        """Publish answers and offsets in one transaction; see ``Transport.publish``."""
        try:
            self._transact(outputs)
        except Exception as error:
            log.warning("transaction failed and will be done again: %s", describe(error))
            refused = {}
            if isinstance(error, RecordRefusedError):
                if error.position is not None:
                    refused[error.position] = str(error)
                self._singly = True
            self._recover(fenced="ProducerFenced" in describe(error))
            raise PublishError(describe(error), refused) from error
        self._offsets = {}
        self._singly = False

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
        if self._producer is not None:
            discard(self._producer)
            self._producer = None
        if self._consumer is not None:
            self._consumer.close(autocommit=False, timeout_ms=5000)

    def _transact(self, outputs: Sequence[Output]) -> None:
        """Do one transaction.

        1. begin, 2. send and make sure that each record arrived, 3. add the offsets, 4. commit.
        A record that did not arrive leaves no other trace, so 2 is done before 3.
        """
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
        self._beat()

    def _recover(self, *, fenced: bool) -> None:
        """Put a new producer in place and go back to the committed offsets."""
        self._fences += fenced
        if fenced and self._fences > 1:
            # Once is what a transaction that timed out looks like. Twice is two processes with one
            # id, as when two machines have one host name; to fence each other helps nobody.
            self._transactional_id += f"-{time.time_ns():x}"
            log.warning("fenced; going on with transactional id %s", self._transactional_id)
        pause, deadline = BACKOFF[0], time.monotonic() + RECOVERY_TIMEOUT
        while True:
            if self._producer is not None:
                discard(self._producer)
                self._producer = None
            self._beat()
            try:
                self._producer = open_producer(self._settings, self._transactional_id)
                self._beat()
                self._rewind()
            except KafkaError as error:
                if time.monotonic() > deadline:
                    msg = (
                        f"Kafka at {self._settings.kafka_bootstrap} cannot be used for "
                        f"{RECOVERY_TIMEOUT:.0f} s: {describe(error)}. Check the brokers."
                    )
                    raise ServiceError(msg) from error
                time.sleep(pause)
                pause = min(2 * pause, BACKOFF[1])
            else:
                return

    def _return_batch(self) -> None:
        """Give back what was polled as a member that is none any more."""
        try:
            self._rewind()
        except KafkaError as error:
            msg = f"The committed offsets cannot be read: {describe(error)}. Check the brokers."
            raise ServiceError(msg) from error

    def _rewind(self) -> None:
        """Go back to the committed offsets; a partition without one has its beginning."""
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
