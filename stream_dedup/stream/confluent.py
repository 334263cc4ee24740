"""The transport of librdkafka (confluent-kafka): less Python for each record.

The promises, and the order of things that keeps them, are told in ``transactional``. The membership
that goes with the offsets is taken when partitions are assigned: the client asks for a new one only
after this thread gave the old one back, so every record polled in between belongs to it. Of the
traps that such clients have:

- *Stale offsets after an abort*: a producer never does another transaction after a failure.
- *Commits that only seem to succeed*: a record that did not arrive fails the transaction inside the
  client already. It is not left to that: offsets are sent when all records have been reported, and
  none with an error.
- *Waits without a timeout*: every call here has one. That of sending offsets is not kept, and
  ``close`` of the consumer has none, so that bounds are put around these (``bounded``). A broker
  that was away is the cause of the first; after that the producer is replaced beforehand.
- *Decompression bombs*: zstd unpacks to ``RECEIVE_MAX_BYTES`` at most; a batch beyond that is read
  by kafka-python, which tells why it cannot be had. LZ4, gzip and Snappy have no limit (250, 1,030
  and 21 times what was fetched), and none can be put there; the memory limit of the process is the
  bound.
- *Damaged batches are left out*, with an error in their place, and reading goes on behind them.
  Such an error ends this process here, before the offset can move past it.
- *Headers whose name is not UTF-8* raise an error, and are broken objects after that: they are
  asked for once, and the record goes without.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import groupby
from operator import attrgetter, methodcaller
from typing import Any, ClassVar

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from stream_dedup.settings import Settings
from stream_dedup.stream.attempts import Place
from stream_dedup.stream.bounded import OverdueError, bounded, leave_behind
from stream_dedup.stream.confluent_clients import OPEN_TIMEOUT, open_consumer
from stream_dedup.stream.confluent_publish import Outbox
from stream_dedup.stream.damaged import Damaged
from stream_dedup.stream.filling import Filling
from stream_dedup.stream.kafka_limits import (
    CLOSE_TIMEOUT,
    OVERTIME,
    PRODUCE_BATCH_BYTES,
    SENDING_TIMEOUT,
    describe,
)
from stream_dedup.stream.poison import Reason
from stream_dedup.stream.transactional import Transactional, log_partitions
from stream_dedup.stream.transport import InputRecord, Output, Partition, Record

log = logging.getLogger(__name__)

#: The lag is told without a broker that takes longer, s; polling finds out what is wrong with it.
_LAG_TIMEOUT = 1.0
#: Time without a place in the group, s, after which a client is no longer trusted to find one:
#: twice a session. A group that settles for longer than that only sees another member come and go.
_JOIN_SECONDS = 20.0
#: Least to which produced batches are cut for a topic that takes none of the usual size.
_LEAST_BATCH_BYTES = 10_000
_MISNAMED = "The name of a header is not UTF-8; this client reads no headers then."

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

#: Time for which a partition stands still before its end until the other client has a look.
STANDING_SECONDS = 10.0

#: Called so, because the interpreter looks for errors that its shortcut to a method passes over:
#: the client sets one and returns something all the same, and it would come up anywhere later.
_headers_of = methodcaller("headers")


def _read(messages: Sequence[Any]) -> list[Record]:
    """Read messages out of the client's."""
    records: list[Record] = []
    for message in messages:
        try:
            headers = _headers_of(message) or ()
        except (SystemError, UnicodeDecodeError):
            headers = Damaged((), Reason.BAD_HEADER, _MISNAMED, ("headers",))
        records.append(
            InputRecord(
                message.topic(),
                message.partition(),
                message.offset(),
                message.timestamp()[1],
                message.key(),
                message.value(),
                headers,
            )
        )
    return records


def _runs(records: Sequence[Record]) -> list[tuple[Record, Record]]:
    """Return the first and the last record of each run of one partition."""
    runs = (list(run) for _, run in groupby(records, attrgetter("topic", "partition")))
    return [(run[0], run[-1]) for run in runs]


class ConfluentTransport(Transactional):
    """Reads the input topic as a member of the group and publishes transactionally.

    Args:
        settings: brokers, topics, group and limits.
        transactional_id: see ``Transactional``.
        beat: see there.
        on_assigned: called with the number of partitions after each rebalance.
        stopping: see there.

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
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(settings, transactional_id, beat, stopping)
        self._on_assigned = on_assigned
        #: Offset at which a partition was found to end.
        self._ends: dict[Partition, int] = {}
        #: Offsets of batches just met that the client cannot read.
        self._packed: dict[Partition, int] = {}
        #: Where a partition stands that has more to read, and since when.
        self._standing: dict[Partition, tuple[int, float]] = {}
        self._membership: Any = None
        #: How often partitions were given up.
        self._losses = 0
        self._outbox: Outbox | None = None
        self._consumer: Any = None
        self._join()
        beat()
        try:
            self._open_producer()
        except (KafkaException, OverdueError) as error:
            self.close()
            raise self._unusable(error) from error

    def _take(self, limit: int) -> Sequence[Record]:
        records: list[Record]
        if self._membership is None and time.monotonic() > self._impatient:
            self._join_anew()
        losses = self._losses
        try:
            records = self._consume(limit)
            if self._packed:
                records = self._read_packed(records)
        except Exception as error:
            raise self._unreadable(error) from error
        runs = _runs(records)
        self._offsets = {(last.topic, last.partition): last.offset + 1 for _, last in runs}
        if records and (
            self._membership is None
            or self._losses != losses
            or self._were_answered(first for first, _ in runs)
        ):
            self._return_batch()
            return ()
        return records

    def lag(self) -> Mapping[Partition, int]:
        """Return the unread records of each partition held now."""
        lags = {}
        try:
            # Asked of the broker: what the last fetch said may be old by seconds, and far too
            # little, while a worker works off what was fetched.
            held = self._consumer.assignment()
            latest = [TopicPartition(one.topic, one.partition, OFFSET_END) for one in held]
            found = self._consumer.offsets_for_times(latest, _LAG_TIMEOUT) if held else []
            ends = {(one.topic, one.partition): one.offset for one in found if not one.error}
            for one in self._consumer.position(held):
                partition = (one.topic, one.partition)
                position = max(one.offset, self._ends.get(partition, -1))
                if position >= 0 and partition in ends:
                    lags[partition] = max(0, ends[partition] - position)
                self._look_at(partition, max(position, 0), ends.get(partition, 0))
        except KafkaException as error:
            # Not worth an end: it is asked again in a second.
            log.debug("the lag cannot be told: %(cause)s", {"cause": describe(error)})
        return lags

    def _look_at(self, partition: Partition, position: int, end: int) -> None:
        """Have a partition read by the other client where it stands still before its end.

        This client says nothing of a batch with a damaged record, and fetches it for ever.
        """
        now = time.monotonic()
        stood, since = self._standing.get(partition, (-1, now))
        if position >= end or position != stood:
            self._standing[partition] = (position, now)
        elif now - since > STANDING_SECONDS:
            self._standing.pop(partition)
            self._packed.setdefault(partition, position)

    def joined(self) -> bool:
        """Tell whether the group has settled with this worker in it."""
        return self._membership is not None

    def stay(self) -> None:
        """Keep the place in the group; see ``Transport.stay``."""
        # To ask for no message counts as a poll, and neither serves a rebalance nor hands out any.
        self._consumer.consume(0, 0)

    def close(self) -> None:
        """Leave the group at once, so that others need not wait for the session to end."""
        self._drop_producer()
        try:
            bounded("close", self._consumer.close, CLOSE_TIMEOUT, lambda: False)
        except OverdueError:
            log.warning("the group was not left in time, and will notice it by itself")

    def _join(self) -> None:
        self._impatient = time.monotonic() + _JOIN_SECONDS
        self._consumer = open_consumer(self._settings, self._transactional_id)
        self._consumer.subscribe(
            [self._settings.input_topic],
            on_assign=self._assigned,
            on_revoke=self._revoked,
            on_lost=self._revoked,
        )

    def _join_anew(self) -> None:
        """Replace a consumer that finds no place in the group although there are brokers.

        After a broker was away the client may look for the group at what it was before, for ever.
        """
        self._impatient = time.monotonic() + _JOIN_SECONDS
        try:
            self._consumer.list_topics(self._settings.input_topic, _LAG_TIMEOUT)
        except KafkaException as error:
            self._outage.failed(describe(error))
            return
        log.warning(
            "no place in the group for %(seconds).0f s; joining it anew", {"seconds": _JOIN_SECONDS}
        )
        leave_behind("close", self._consumer.close)
        self._join()

    def _consume(self, limit: int) -> list[Record]:
        """Return up to so many records, and deal with what stands in the place of some."""
        filling = Filling(self._settings, limit)
        found: list[Record] = []
        # To wait for more than one would hold up the first of a batch.
        messages = self._consumer.consume(filling.wanted(), 0) or self._consumer.consume(
            1, self._settings.batch_wait
        )
        while messages:
            records = self._records(messages)
            filling.add(records)
            found += records
            wanted = filling.wanted()
            messages = self._consumer.consume(wanted, 0) if wanted else []
        self._circles.note(filling.taken)
        if found:
            self._outage.ended()
        return found

    def _records(self, messages: Sequence[Any]) -> list[Record]:
        good = [message for message in messages if message.error() is None]
        if len(good) < len(messages):
            for message in messages:
                if message.error() is not None:
                    self._note(message)
        return _read(good)

    def _note(self, message: Any) -> None:
        """Deal with an error in the place of a message."""
        error = message.error()
        if error.code() == KafkaError._PARTITION_EOF:
            self._ends[(message.topic(), message.partition())] = message.offset()
        elif error.code() in _PASSING:
            self._outage.failed(error.str())
        elif error.code() == KafkaError._BAD_COMPRESSION:
            self._packed.setdefault((message.topic(), message.partition()), message.offset())
        else:
            raise KafkaException(error)

    def _read_packed(self, records: Sequence[Record]) -> list[Record]:
        """Read batches that this client cannot unpack by the other, which tells why."""
        # It takes kafka-python, which this transport does without until then.
        from stream_dedup.stream.kafka_reread import read_again  # noqa: PLC0415

        packed, self._packed = self._packed, {}
        found = list(records)
        for partition, offset in packed.items():
            held = TopicPartition(*partition)
            # The group may have come to the middle of the batch.
            start = max(offset, self._consumer.committed([held], OPEN_TIMEOUT)[0].offset)
            found = [
                one
                for one in found
                if (one.topic, one.partition) != partition or one.offset < start
            ]
            try:
                again, behind = read_again(self._settings, partition, start)
            except TimeoutError as error:  # such as a transaction that is open
                log.info("nothing to be read again: %(cause)s", {"cause": describe(error)})
                self._consumer.seek(TopicPartition(*partition, start))
                continue
            found += again
            self._consumer.seek(TopicPartition(*partition, behind))
        return found

    def _transact(self, outputs: Sequence[Output], places: Mapping[Partition, Place]) -> None:
        if self._outbox is not None and self._outbox.shaken():
            self._drop_producer()
        if self._outbox is None:
            self._open_producer()
        outbox = self._outbox
        assert outbox is not None  # noqa: S101 - for the type checker
        outbox.begin()
        bounded("send", lambda: outbox.send_all(outputs), SENDING_TIMEOUT, self._stopping)
        # No metadata is not the same as empty metadata: the client writes a zero behind that.
        offsets = [
            TopicPartition(*partition, *(place if place.metadata else place[:1]))
            for partition, place in places.items()
        ]
        outbox.commit(offsets, self._membership)

    def _read_committed(
        self, partitions: Collection[Partition], seconds: float
    ) -> dict[Partition, Place]:
        asked = [TopicPartition(*partition) for partition in partitions]
        found = self._ask_committed(asked, seconds)
        return {(one.topic, one.partition): Place(one.offset, one.metadata or "") for one in found}

    def _drop_producer(self) -> None:
        if self._outbox is not None:
            self._outbox.discard()
            self._outbox = None

    def _open_producer(self) -> None:
        self._outbox = Outbox(
            self._settings,
            self._transactional_id,
            self._batch_bytes(),
            self._beat,
            self._stopping,
        )

    def _batch_bytes(self) -> int:
        """Return what a produced batch may have: this client does not split those refused."""
        takes = min((one.batch_bytes for one in self._limits.values()), default=PRODUCE_BATCH_BYTES)
        # Without knowing that, what is refused together is polled in smaller pieces; the producer
        # made after a refusal makes smaller batches, too, and keeps to these.
        piece = PRODUCE_BATCH_BYTES * self._width // self._settings.batch_documents
        return max(_LEAST_BATCH_BYTES, min(PRODUCE_BATCH_BYTES, piece, takes * 9 // 10))

    def _is_fenced(self, error: Exception) -> bool:
        return isinstance(error, KafkaException) and error.args[0].code() in _FENCED

    def _rewind(self) -> None:
        self._offsets = {}
        held = self._consumer.assignment()
        if not held:
            return
        committed = self._ask_committed(held, OPEN_TIMEOUT)
        for partition in committed:
            self._check((partition.topic, partition.partition), max(0, partition.offset))
            if partition.offset < 0:
                partition.offset = OFFSET_BEGINNING
        # Unlike ``seek`` this is possible at any time, and drops what was fetched ahead.
        self._consumer.assign(committed)

    def _ask_committed(self, partitions: Sequence[Any], seconds: float) -> Any:
        # Waits while an offset is part of an unfinished transaction (isolation level).
        committed = bounded(
            "committed",
            lambda: self._consumer.committed(partitions, seconds),
            seconds + OVERTIME,
            self._stopping,
        )
        for partition in committed:
            if partition.error is not None:
                raise KafkaException(partition.error)
        return committed

    def _assigned(self, consumer: Any, partitions: Sequence[Any]) -> None:
        """Note the membership; the client starts reading at the committed offsets by itself."""
        if consumer is not self._consumer:
            return
        log_partitions(log, "assigned", partitions)
        self._membership = consumer.consumer_group_metadata()
        self._attempts.reset()
        self._on_assigned(len(partitions))

    def _revoked(self, consumer: Any, partitions: Sequence[Any]) -> None:
        """Forget the membership. Everything polled before was published or will be refused."""
        if consumer is not self._consumer:
            return
        log_partitions(log, "gave up", partitions)
        self._impatient = time.monotonic() + _JOIN_SECONDS
        self._membership = None
        self._losses += 1
        self._ends.clear()
