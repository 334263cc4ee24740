"""The transport of kafka-python: the default, in Python throughout.

The promises, and the order of things that keeps them, are told in ``transactional``. Of its traps:

- *Stale offsets after an abort, and commits that only seem to succeed*: a producer never does
  another transaction after a failure, and no offsets are sent before every record has arrived.
- *Waits without a timeout*: its commit may wait for ever; a bound is put around it (``bounded``).
- *Errors that hold whole batches*: waiting for a fetch ends by an error, caught inside, that refers
  in a circle to the frames of all callers; they are found before they pile up (``Circles``).
- *Decompression bombs*, and headers whose name is not UTF-8: the library has no limit to what a
  batch may unpack to, and reads nothing of such a batch; both are mended in ``kafka_records``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar

from kafka import ConsumerRebalanceListener, TopicPartition  # type: ignore[import-untyped]
from kafka.errors import KafkaError, RetriableError  # type: ignore[import-untyped]
from kafka.structs import OffsetAndMetadata  # type: ignore[import-untyped]

from stream_dedup.errors import ServiceError
from stream_dedup.settings import Settings
from stream_dedup.stream.attempts import Attempts, Place
from stream_dedup.stream.bounded import OverdueError, bounded
from stream_dedup.stream.filling import Filling
from stream_dedup.stream.kafka_clients import discard, open_consumer, open_producer
from stream_dedup.stream.kafka_limits import (
    CLOSE_TIMEOUT,
    DELIVERY_TIMEOUT,
    OFFSETS_TIMEOUT,
    OPEN_TIMEOUT_MS,
    PRODUCER_TIMEOUT,
    SENDING_TIMEOUT,
    describe,
)
from stream_dedup.stream.kafka_publish import Publishing
from stream_dedup.stream.patience import BACKOFF
from stream_dedup.stream.transactional import Transactional, log_partitions
from stream_dedup.stream.transport import Output, Partition, Record

log = logging.getLogger(__name__)

#: The lag is told without a broker that takes longer; polling finds out what is wrong with it.
_LAG_TIMEOUT_MS = 1000


class KafkaTransport(Transactional):
    """Reads the input topic as a member of the group and publishes transactionally.

    Args:
        settings: brokers, topics, group and limits.
        transactional_id: see ``Transactional``.
        beat: see there.
        on_assigned: called with the number of partitions after each rebalance.
        stopping: see ``Transactional``.

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
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(settings, transactional_id, beat, stopping)
        self._membership: Any = None
        self._producer: Any = None
        self._consumer: Any = None
        try:
            self._consumer = open_consumer(settings, transactional_id)
            listener = _Listener(on_assigned, self._attempts)
            self._consumer.subscribe(topics=[settings.input_topic], listener=listener)
            beat()
            self._open_producer()
        except (KafkaError, OverdueError) as error:
            self.close()
            raise self._unusable(error) from error

    def _take(self, limit: int) -> Sequence[Record]:
        filling = Filling(self._settings, limit)
        polled: dict[Any, list[Record]] = {}
        wait = self._settings.batch_wait
        while wanted := filling.wanted():
            some = self._poll_some(wait, wanted)
            if some and (
                not self._still_member(first=not polled)
                or self._were_answered(records[0] for records in some.values())
            ):
                self._return_batch()
                return ()
            for partition, records in some.items():
                polled.setdefault(partition, []).extend(records)
                filling.add(records)
            if sum(map(len, some.values())) < wanted:
                break
            wait = 0.0
        self._offsets = {
            (partition.topic, partition.partition): records[-1].offset + 1
            for partition, records in polled.items()
        }
        self._circles.note(filling.taken)
        if not polled:
            return ()
        self._outage.ended()
        if len(polled) == 1:
            return next(iter(polled.values()))
        return [record for records in polled.values() for record in records]

    def lag(self) -> Mapping[Partition, int]:
        """Return the unread records of each partition held now."""
        lags = {}
        try:
            # Asked of the broker: what the last fetch said is old by seconds, and far too little,
            # while a worker works off what it has fetched.
            held = self._consumer.assignment()
            ends = self._consumer.end_offsets(held, timeout_ms=_LAG_TIMEOUT_MS) if held else {}
            for partition, end in ends.items():
                position = self._consumer.position(partition, timeout_ms=0)
                if position is not None:
                    lags[(partition.topic, partition.partition)] = max(0, end - position)
        except KafkaError as error:
            # Not worth an end: it is asked again in a second.
            log.debug("the lag cannot be told: %(cause)s", {"cause": describe(error)})
        return lags

    def joined(self) -> bool:
        """Tell whether the group has settled with this worker in it."""
        membership = self._consumer.group_metadata()
        return bool(membership.member_id) and membership.state == "<stable>"

    def stay(self) -> None:
        """Keep the place in the group; see ``Transport.stay``."""
        # A poll would do the same, and more: it may join anew, and fetch.
        self._consumer._coordinator.heartbeat.poll()

    def close(self) -> None:
        """Leave the group at once, so that others need not wait for the session to end."""
        self._drop_producer()
        if self._consumer is not None:
            self._consumer.close(autocommit=False, timeout_ms=int(CLOSE_TIMEOUT * 1000))

    def _poll_some(self, wait: float, most: int) -> Mapping[Any, list[Record]]:
        """Return records of each partition, so many in all at most; none while there is trouble."""
        try:
            polled: Mapping[Any, list[Record]] = self._consumer.poll(
                timeout_ms=int(wait * 1000), max_records=most
            )
        except RetriableError as error:
            self._outage.failed(describe(error))
            time.sleep(BACKOFF[0])
            return {}
        except Exception as error:
            # Anything can come out of a damaged batch: codecs and parsers raise errors of their
            # own. None of it is mended by reading the same bytes again.
            raise self._unreadable(error) from error
        return polled

    def _still_member(self, *, first: bool) -> bool:
        """Note the membership that records were polled with; tell whether all were with one.

        Taken at once, because the heartbeat thread may lose the membership at any time; what it
        leaves behind names no member, and a commit that names none is not fenced by the broker.
        The generation itself only moves on inside a poll, and with it the place to read from.
        """
        former, now = self._membership, self._consumer.group_metadata()
        self._membership = now
        if not now.member_id:
            return False
        return first or (former.generation_id, former.member_id) == (
            now.generation_id,
            now.member_id,
        )

    def _transact(self, outputs: Sequence[Output], places: Mapping[Partition, Place]) -> None:
        producer = self._producer
        if producer is None:
            msg = "the producer of the last transaction could not be replaced"
            raise ServiceError(msg)
        inputs = len(self._consumer.partitions_for_topic(self._settings.input_topic))
        producer.begin_transaction()
        publishing = Publishing(producer, inputs, self._beat)
        self._bounded("send", lambda: publishing.send_all(outputs), SENDING_TIMEOUT)
        offsets = {
            TopicPartition(*partition): OffsetAndMetadata(place.offset, place.metadata, -1)
            for partition, place in places.items()
        }
        membership = self._membership
        self._bounded(
            "send_offsets_to_transaction",
            lambda: producer.send_offsets_to_transaction(offsets, membership),
            OFFSETS_TIMEOUT,
        )
        self._bounded("commit_transaction", producer.commit_transaction, DELIVERY_TIMEOUT)

    def _read_committed(
        self, partitions: Collection[Partition], seconds: float
    ) -> dict[Partition, Place]:
        found = {}
        for partition in partitions:
            # Waits while an offset is part of an unfinished transaction (isolation level).
            one = self._consumer.committed(
                TopicPartition(*partition), metadata=True, timeout_ms=int(seconds * 1000)
            )
            found[partition] = Place(-1) if one is None else Place(one.offset, one.metadata or "")
        return found

    def _drop_producer(self) -> None:
        if self._producer is not None:
            discard(self._producer)
            self._producer = None

    def _open_producer(self) -> None:
        settings, name = self._settings, self._transactional_id
        self._producer = self._bounded(
            "init_transactions", lambda: open_producer(settings, name), PRODUCER_TIMEOUT
        )

    def _bounded(self, name: str, call: Callable[[], Any], seconds: float) -> Any:
        return bounded(name, call, seconds, self._stopping)

    def _is_fenced(self, error: Exception) -> bool:
        return "ProducerFenced" in describe(error)

    def _rewind(self) -> None:
        for partition in self._consumer.assignment():
            # Waits while an offset is part of an unfinished transaction (isolation level).
            committed = self._consumer.committed(partition, timeout_ms=OPEN_TIMEOUT_MS)
            self._check(partition, committed or 0)
            if committed is None:
                self._consumer.seek_to_beginning(partition)
            else:
                self._consumer.seek(partition, committed)
        self._offsets = {}


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Notes assignments. A batch in hand needs no care: its commit is fenced by generation."""

    def __init__(self, on_assigned: Callable[[int], None], attempts: Attempts) -> None:
        self._on_assigned = on_assigned
        self._attempts = attempts

    def on_partitions_revoked(self, revoked: Collection[Any]) -> None:
        """Do nothing: everything polled before this was published or will be refused."""
        log_partitions(log, "gave up", revoked)

    def on_partitions_assigned(self, assigned: Collection[Any]) -> None:
        """Note how many partitions there are now, which others may have worked on meanwhile."""
        log_partitions(log, "assigned", assigned)
        self._attempts.reset()
        self._on_assigned(len(assigned))
