"""What both Kafka transports promise, and how; each brings its own client.

What keeps the promise "one published decision for one input record" is, in this order:

1. Offsets travel in the transaction that carries the answers, with the group's generation *as it
   was when the records were polled*. When the group has moved on, the broker refuses them.
2. After any failure the producer is thrown away. A new one with the same transactional id waits
   until the broker has finished the old transaction, one way or the other. Only then are the
   committed offsets read, and the consumer goes back to them.

So it is never asked whether a failed commit took effect; the committed offsets tell. That they are
not those of long ago is looked after too: a broker of Kafka 4 that comes back from a crash may lead
the group's offsets while it still reads them from its disk, and tells what it has read so far. No
record is answered that this process has answered before: it waits until the offsets are back where
it committed them.

One message must not halt a partition, so two things make batches smaller:

- *A refusal.* What surely cannot be stored is named at once, by the limits of the topics. Else
  fewer records are polled, down to one, which is named; each piece that is published is kept, and
  twice as many are polled after it.
- *A death.* Beside the offsets stands which records processes died at (``attempts``).
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from stream_dedup.errors import ServiceError, StreamDedupError
from stream_dedup.outage import Outage
from stream_dedup.settings import Settings
from stream_dedup.stream.attempts import Attempts, Marker, Place
from stream_dedup.stream.bounded import OverdueError
from stream_dedup.stream.collector import Circles
from stream_dedup.stream.damaged import Damaged
from stream_dedup.stream.kafka_limits import OPEN_TIMEOUT_MS, describe
from stream_dedup.stream.misfits import TopicLimits, misfits, read_limits
from stream_dedup.stream.patience import Patience
from stream_dedup.stream.poison import Reason
from stream_dedup.stream.transport import (
    EVERYTHING,
    InputRecord,
    Output,
    Partition,
    Position,
    PublishError,
    Record,
    StrangePublishError,
)

log = logging.getLogger(__name__)

#: Time to see whether an attempt can be taken back, s: at the end of a process there is not much.
UNMARK_TIMEOUT = 3.0
#: Time after which the process gives up to put a producer in place.
RECOVERY_TIMEOUT = 120.0


class RecordRefusedError(Exception):
    """The broker refuses a record, and will refuse it again.

    Attributes:
        position: input position of the record; None when it could be another of the batch. The
            clients give one error to every record that went, or would have gone, with it.
    """

    def __init__(self, error: Exception, position: Position | None) -> None:
        super().__init__(describe(error))
        self.position = position


class StaleOffsetsError(Exception):
    """The group's offsets lie before what this process has committed."""

    def __init__(self, partition: Partition, offset: int, known: int) -> None:
        topic, number = partition
        super().__init__(
            f"the broker says that the group has come to offset {offset} of {topic}/{number}, "
            f"where this process has committed {known}"
        )


class Transactional(ABC):
    """Publishes in transactions, and starts again after each failure.

    Args:
        settings: brokers, topics, group and limits.
        transactional_id: the same for every life of one worker process, and of no other; see
            ``stream_dedup_workers.process.transactional_id``.
        beat: called whenever there was progress; calls into Kafka may block without a bound, and
            the supervisor ends a process that stays silent.
        stopping: tells whether to end; then nothing is waited for any more.
    """

    #: What the client raises.
    errors: ClassVar[tuple[type[Exception], ...]]

    def __init__(
        self,
        settings: Settings,
        transactional_id: str,
        beat: Callable[[], None],
        stopping: Callable[[], bool],
    ) -> None:
        self._settings = settings
        self._transactional_id = transactional_id
        self._beat = beat
        self._stopping = stopping
        self._no_answer: tuple[type[Exception], ...] = (*self.errors, OverdueError)
        #: Offset behind the last record of each partition that this process has answered.
        self._known: dict[Partition, int] = {}
        self._fences = 0
        self._outage = Outage(log, "Kafka")
        self._circles = Circles(settings.batch_bytes)
        #: Records that are polled at most: fewer while the broker refuses some, unknown which.
        self._width = settings.batch_documents
        #: Whether a record was named as refused, and nothing was published since.
        self._named = False
        #: Offset behind the last polled record of each partition.
        self._offsets: dict[Partition, int] = {}
        #: What output topics take, as they said when one of them refused something.
        self._limits: dict[str, TopicLimits] = {}
        self._attempts = Attempts()
        self._marking = Patience(time)

    def poll(self) -> Sequence[Record]:
        """Return the next records; see ``Transport.poll``."""
        records = self._take(1 if self._attempts.careful else self._width)
        return self._guarded(records) if records else ()

    def publish(self, outputs: Sequence[Output]) -> None:
        """Publish answers and offsets in one transaction; see ``Transport.publish``."""
        try:
            self._transact(outputs, self._attempts.places(self._offsets))
        except Exception as error:
            log.warning(
                "transaction failed and will be done again: %(cause)s",
                {
                    "cause": describe(error),
                    "transactional_id": self._transactional_id,
                    "outputs": len(outputs),
                },
            )
            self._circles.soon()
            refused = self._refused(error, outputs)
            # Who is to end needs no other producer: there is nothing to go on with.
            if not self._stopping():
                self._recover(fenced=self._is_fenced(error))
            known = isinstance(error, (*self._no_answer, OSError, StreamDedupError))
            failure = PublishError if known or refused is not None else StrangePublishError
            raise failure(describe(error), refused) from error
        self._known.update(self._offsets)
        self._attempts.passed(self._offsets)
        self._offsets = {}
        if not self._named:  # refused records tend to come together
            self._width = min(2 * self._width, self._settings.batch_documents)
        self._named = False
        self._beat()

    def unmark(self) -> None:
        """Take markers back; see ``Transport.unmark``."""
        if not self._attempts.marked:
            return
        try:
            found = self._read_committed(self._attempts.marked, UNMARK_TIMEOUT)
            if places := self._attempts.take_back(found):
                self._transact((), places)
        except Exception as error:  # noqa: BLE001 - a life more is counted, and nothing is lost
            log.info("an attempt could not be taken back: %(cause)s", {"cause": describe(error)})

    @abstractmethod
    def _take(self, limit: int) -> Sequence[Record]:
        """Wait a little for records and return up to so many, as a member of the group.

        Leaves in ``_offsets`` how far they go.
        """

    @abstractmethod
    def _read_committed(
        self, partitions: Collection[Partition], seconds: float
    ) -> dict[Partition, Place]:
        """Return what the group committed; an offset below 0 where that is nothing."""

    @abstractmethod
    def _transact(self, outputs: Sequence[Output], places: Mapping[Partition, Place]) -> None:
        """Do one transaction, with offsets.

        1. begin, 2. send and make sure that each record arrived, 3. add the offsets, 4. commit.
        A record that did not arrive may leave no other trace, so 2 is done before 3.
        """

    @abstractmethod
    def _drop_producer(self) -> None:
        """End the producer, if there is one, whatever it still wants to send."""

    @abstractmethod
    def _open_producer(self) -> None:
        """Put a producer in place that has finished the last one's transaction."""

    @abstractmethod
    def _rewind(self) -> None:
        """Go back to the committed offsets; a partition without one has its beginning.

        Raises:
            StaleOffsetsError: they cannot be the last ones.
        """

    @abstractmethod
    def _is_fenced(self, error: Exception) -> bool:
        """Tell whether another producer with this id was the cause."""

    def _refused(self, error: Exception, outputs: Sequence[Output]) -> dict[Position, str] | None:
        """Say which records the broker refuses; none when it may be any, so that fewer come next.

        Returns:
            None when it was no refusal.
        """
        if not isinstance(error, RecordRefusedError):
            return None
        self._limits = read_limits(self._settings, {output.topic for output in outputs})
        refused = misfits(outputs, self._limits, self._settings)
        if error.position is not None:
            refused.setdefault(error.position, str(error))
        positions = {position_of(output) for output in outputs}
        if not refused and len(positions) == 1:
            refused[positions.pop()] = str(error)
        self._named = bool(refused)
        if not refused:
            self._width = max(1, len(positions) // 2)
            fields = {"records": self._width}
            log.warning("%(records)d records are polled next, to find out which is refused", fields)
        return refused

    def _guarded(self, records: Sequence[Record]) -> Sequence[Record]:
        """See that a life that ends with these records leaves a trace, and whether some did."""
        attempts = self._attempts
        if unknown := attempts.unknown(self._offsets):
            try:
                found = self._read_committed(unknown, OPEN_TIMEOUT_MS / 1000)
            except self._no_answer as error:
                self._outage.failed(describe(error))
                self._return_batch()
                return ()
            for record in records:  # without a committed offset, it is that of the first
                partition = (record.topic, record.partition)
                if partition in found and found[partition].offset < 0:
                    found[partition] = Place(record.offset)
            for partition, place in found.items():
                attempts.find(partition, place)
        if attempts.careful:
            return self._alone(records)
        ends = {partition: self._offsets[partition] for partition in unknown}
        return records if self._mark(attempts.begin(ends)) else ()

    def _alone(self, records: Sequence[Record]) -> Sequence[Record]:
        """Return the only record, or what is left of it where too many processes died at it."""
        if len(records) > 1:
            self._return_batch()
            return ()
        (record,) = records
        partition = (record.topic, record.partition)
        if not self._mark(self._attempts.begin_alone(partition, record.offset)):
            return ()
        verdict = self._attempts.verdict(partition)
        return [record if verdict is None else given_up(record, verdict)]

    def _mark(self, places: Mapping[Partition, Place]) -> bool:
        """Write markers; return whether the batch may be worked on, else it comes again."""
        if not places:
            return True
        try:
            for partition, place in places.items():  # a marker must not move anything
                self._check(partition, place.offset)
            self._transact((), places)
        except Exception as error:  # noqa: BLE001 - as in ``publish``
            log.warning("an attempt could not be marked: %(cause)s", {"cause": describe(error)})
            self._attempts.reset()
            if not self._stopping():
                self._recover(fenced=self._is_fenced(error))
                self._marking.wait(error)
            return False
        self._marking.reset()
        return True

    def _unusable(self, error: Exception) -> ServiceError:
        """Say that there is no working with this Kafka."""
        return ServiceError(
            self._trouble(error)
            or f"Kafka at {self._settings.kafka_bootstrap} cannot be used: {describe(error)}. "
            "Check that the brokers are up and that this program may use the group and "
            "transactions."
        )

    def _trouble(self, error: Exception) -> str:
        """Say what is wrong with TLS or the login; empty when it is neither."""
        # It asks kafka-python, which the other transport does without until then.
        from stream_dedup.stream.kafka_trouble import kafka_trouble  # noqa: PLC0415

        return kafka_trouble(self._settings, error)

    def _recover(self, *, fenced: bool) -> None:
        """Put a new producer in place and go back to the committed offsets."""
        self._fences += fenced
        if fenced and self._fences > 1:
            # Once is what a transaction that timed out looks like. Twice is two processes with one
            # id, as when two machines have one host name; to fence each other helps nobody.
            self._transactional_id += f"-{time.time_ns():x}"
            log.warning(
                "fenced; going on with transactional id %(transactional_id)s",
                {"transactional_id": self._transactional_id},
            )
        patience = Patience(time, RECOVERY_TIMEOUT)
        while True:
            self._drop_producer()
            self._beat()
            try:
                self._open_producer()
                self._beat()
                self._go_back(patience)
            except self._no_answer as error:
                self._outage.failed(describe(error))
                self._end_if_asked(error)
                try:
                    patience.wait(error)
                except ServiceError:
                    # To find out what is wrong takes connections of its own, so only once.
                    raise self._unusable(error) from error
            else:
                self._outage.ended()
                return

    def _return_batch(self) -> None:
        """Give back what was polled: as a member that is none any more, or a second time."""
        try:
            self._go_back(Patience(time, RECOVERY_TIMEOUT))
        except self._no_answer as error:
            msg = f"The committed offsets cannot be read: {describe(error)}. Check the brokers."
            raise ServiceError(msg) from error

    def _go_back(self, patience: Patience) -> None:
        """Rewind, as soon as the offsets can be the last ones."""
        self._attempts.look_again()
        while True:
            try:
                self._rewind()
            except StaleOffsetsError as error:
                self._outage.failed(describe(error))
                self._end_if_asked(error)
                self._beat()
                patience.wait(error)
            else:
                return

    def _end_if_asked(self, error: Exception) -> None:
        """End instead of waiting for Kafka, when that is asked for."""
        if self._stopping():
            msg = (
                f"Asked to stop while Kafka is away: {describe(error)}. "
                "The last batch was not published; it will come again."
            )
            raise ServiceError(msg) from error

    def _check(self, partition: Partition, offset: int) -> None:
        """Refuse to go on from an offset that lies before what this process has committed.

        Raises:
            StaleOffsetsError: it does.
        """
        if offset < (known := self._known.get(partition, 0)):
            raise StaleOffsetsError(partition, offset, known)

    def _were_answered(self, records: Iterable[Record]) -> bool:
        """Tell whether this process has answered one of these records before."""
        known = self._known
        return any(one.offset < known.get((one.topic, one.partition), 0) for one in records)

    def _unreadable(self, error: Exception) -> ServiceError:
        """Say that the input cannot be read, and that reading it again is in vain."""
        return ServiceError(
            (self._trouble(error) if isinstance(error, self.errors) else "")
            or f"The topic {self._settings.input_topic} cannot be read: {describe(error)}. "
            "If this stays after a restart, move the group's offset past the damaged record."
        )


def given_up(record: Record, marker: Marker) -> Record:
    """Return a record at which processes died as one that is not to be looked at."""
    position = (record.topic, record.partition, record.offset)
    lost = EVERYTHING if marker.gives_up_bytes else ()
    detail = f"{marker.ended} processes died or stalled, each working on this message alone."
    log.error(
        "%(lives)d processes died or stalled at %(position)s, which becomes a dead letter",
        {"lives": marker.ended, "position": "/".join(map(str, position))},
    )
    headers = Damaged(() if lost else record.headers, Reason.FATAL, detail, lost)
    key, value = (None, None) if lost else (record.key, record.value)
    return InputRecord(*position, record.timestamp, key, value, headers)


def log_partitions(log: logging.Logger, what: str, partitions: Collection[Any]) -> None:
    """Log what became of partitions of the input topic; nothing if there are none.

    Args:
        log: the transport's.
        what: such as ``assigned``.
        partitions: have ``topic`` and ``partition``.
    """
    if partitions:
        topics = {partition.topic for partition in partitions}
        numbers = sorted(partition.partition for partition in partitions)
        log.info(
            f"{what} partitions: %(partitions)s",
            {"partitions": numbers, "topic": ",".join(topics)},
        )


def position_of(output: Output) -> Position:
    """Return the input position that an output answers."""
    return (output.record.topic, output.record.partition, output.record.offset)
