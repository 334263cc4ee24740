"""Puts dead letters back on the topics that they came from, each once.

Messages travel in one transaction with the record of which letters are done (see ``replayed``),
committed for a group of its own. So whatever ends a replay, the next one goes on behind what was
really published. That next one, by opening its producer, also ends what the last left open, and
only then reads the record.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, groupby
from typing import Any, Self

from kafka import TopicPartition  # type: ignore[import-untyped]
from kafka.errors import KafkaError  # type: ignore[import-untyped]
from kafka.structs import OffsetAndMetadata  # type: ignore[import-untyped]

from stream_dedup.errors import InputError, ServiceError
from stream_dedup.settings import Settings
from stream_dedup.stream.dead_letters import Letter, Outcome, Place
from stream_dedup.stream.kafka_clients import discard, open_consumer, open_producer
from stream_dedup.stream.kafka_limits import OPEN_TIMEOUT_MS, describe
from stream_dedup.stream.kafka_publish import Publishing
from stream_dedup.stream.kafka_trouble import kafka_trouble
from stream_dedup.stream.replayed import Replayed
from stream_dedup.stream.topic import Offsets, TopicReader
from stream_dedup.stream.transactional import RecordRefusedError, position_of
from stream_dedup.stream.transport import Output

#: Letters of one transaction, and bytes of their values from which on it takes no more.
_LETTERS = 500
_BYTES = 8_000_000
#: Time for which brokers keep what a group committed that has no members: their default.
_KEPT_DAYS = 7
_DAY_MS = 86_400_000
_OTHER = "Another replay is under way. Wait for its end, and do this one again."


class Replay:
    """Replays letters of the dead-letter topic.

    Args:
        settings: brokers, topics and group.
        to: topic to write to; None for the one that each letter came from.
        dry: find out what would be done, and write nothing.

    Raises:
        ServiceError: no broker answers, a topic is missing, or this program may not use it.
    """

    def __init__(self, settings: Settings, to: str | None = None, *, dry: bool = False) -> None:
        self.group = f"{settings.group}-dead-letter-replay"
        self.outcome = Outcome()
        self._settings = settings
        self._to = to
        self._dry = dry
        self._counts: dict[str, int] = {}
        self._producer: Any = None
        self._consumer: Any = None
        self._reader = TopicReader(settings, settings.dead_letter_topic, {})
        self._topic = settings.dead_letter_topic
        try:
            with self._reporting():
                self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        own = self._settings.model_copy(update={"group": self.group})
        self._consumer = open_consumer(own, self.group)
        if self._to is not None:
            self._count(self._to)
        if not self._dry:
            self._producer = open_producer(self._settings, self.group)
        self._on_record, self._replayed = self._read_record()

    def chosen(self, places: Collection[Place], *, again: bool = False) -> Outcome:
        """Replay these letters, in one transaction.

        Args:
            places: which.
            again: also those that were replayed before.

        Raises:
            InputError: there is no letter in one of the places.
            ServiceError: Kafka is out of reach.
        """
        letters = []
        done = dict(self._replayed)
        for place in dict.fromkeys(places):
            letter = read_letter(self._reader, place)
            if not again and self._replayed[place.partition].holds(place.offset, letter.reason):
                self.outcome.before += 1
            elif self._may_go(letter):
                letters.append(letter)
                one = done[place.partition]
                done[place.partition] = one.with_range(place.offset, place.offset + 1)
        if letters:
            self._publish(letters, done)
        return self.outcome

    def following(self, reasons: Collection[str] = (), since: int | None = None) -> Outcome:
        """Replay all letters that were not replayed before, up to where the topic ends now.

        Args:
            reasons: only letters with these reasons.
            since: only those from the first on that is not older, in milliseconds.

        Raises:
            ServiceError: Kafka is out of reach.
        """
        ends = self._reader.ends()
        start = {number: one.below for number, one in self._replayed.items()}
        if since is not None:
            found = self._reader.since(since)
            start = {number: max(below, found[number]) for number, below in start.items()}
        before, wanted = self._replayed, frozenset(reasons)
        self._reader.seek(start)
        batch: list[Letter] = []
        read, size = dict(start), 0
        for letter in self._fresh(self._reader.read(ends, Letter.of), certain=since is not None):
            read[letter.place.partition] = letter.place.offset + 1
            if wanted and letter.reason not in wanted:
                continue
            if before[letter.place.partition].holds(letter.place.offset, letter.reason):
                self.outcome.before += 1
            elif self._may_go(letter):
                batch.append(letter)
                size += len(letter.record.value or b"")
            if len(batch) >= _LETTERS or size >= _BYTES:
                self._publish(batch, _done(before, start, read, wanted))
                batch, size = [], 0
        done = _done(before, start, ends, wanted)
        if batch or done != self._replayed:
            self._publish(batch, done)
        return self.outcome

    def close(self) -> None:
        """Close the connections; what is not committed never was."""
        if self._producer is not None:
            discard(self._producer)
            self._producer = None
        if self._consumer is not None:
            self._consumer.close(autocommit=False, timeout_ms=5000)
            self._consumer = None
        self._reader.close()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def _fresh(self, letters: Iterator[Letter], *, certain: bool) -> Iterator[Letter]:
        """Pass letters on, unless an earlier replay of them may have been forgotten."""
        first = next(letters, None)
        if first is None:
            return iter(())
        # A letter is no older than its message, and those behind it on the topic are younger.
        age = time.time() * 1000 - first.moment
        if age > _KEPT_DAYS * _DAY_MS and not (certain or self._on_record):
            msg = (
                f"The group {self.group} has no record of replays, and brokers forget one after "
                f"{_KEPT_DAYS} days (offsets.retention.minutes), but there are older letters, such "
                f"as {first.place}. Say from when on they are to be replayed: --since TIME."
            )
            raise ServiceError(msg)
        return chain([first], letters)

    def _may_go(self, letter: Letter) -> bool:
        """Tell whether a letter can be replayed; if not, say why in the outcome."""
        why = letter.obstacle
        ours = {self._settings.input_topic, self._settings.members_topic}
        if not why and self._to is None and letter.source and letter.source.topic not in ours:
            why = (
                f"it came from {letter.source.topic}, which is neither input_topic nor "
                "members_topic. Name a topic with --to, or set these"
            )
        if why:
            self.outcome.leave_out(letter.place, why)
        return not why

    def _publish(self, letters: Sequence[Letter], done: dict[int, Replayed]) -> None:
        """Write letters, and that they are done; leave out those that the broker refuses."""
        outputs = {one.place: one.original(self._target(one)) for one in letters}
        offsets = {
            TopicPartition(self._topic, number): OffsetAndMetadata(one.below, one.metadata(), -1)
            for number, one in done.items()
        }
        singly = False
        with self._reporting():
            self._check_targets(outputs.values())
            while not self._dry:
                try:
                    self._transact(list(outputs.values()), offsets, singly=singly)
                    break
                except RecordRefusedError as error:
                    singly = True
                    for place, output in list(outputs.items()):
                        if position_of(output) == error.position:
                            del outputs[place]
                            why = f"the topic {output.topic} refuses it ({error})"
                            self.outcome.leave_out(place, why)
                    self._replace_producer()
        self._replayed = done
        self.outcome.reasons.update(one.reason for one in letters if one.place in outputs)
        self.outcome.topics.update(output.topic for output in outputs.values())

    def _transact(
        self, outputs: Sequence[Output], offsets: dict[Any, Any], *, singly: bool
    ) -> None:
        self._producer.begin_transaction()
        for topic, some in groupby(outputs, key=lambda output: output.topic):
            # Back on its own topic a message goes to its own partition; elsewhere by its key.
            inputs = self._counts[topic] if self._to is None else 0
            publishing = Publishing(self._producer, inputs, lambda: None)
            (publishing.send_singly if singly else publishing.send_all)(list(some))
        self._producer.send_offsets_to_transaction(offsets, self.group)
        self._producer.commit_transaction()

    def _replace_producer(self) -> None:
        """Take a new producer: one that failed is not to be trusted with another transaction."""
        discard(self._producer)
        self._producer = open_producer(self._settings, self.group)
        if self._read_record()[1] != self._replayed:
            raise ServiceError(_OTHER)

    def _read_record(self) -> tuple[bool, dict[int, Replayed]]:
        """Read what was replayed in each partition, and whether there is a record at all."""
        found = {}
        for number in self._reader.numbers:
            place = TopicPartition(self._topic, number)
            # Waits while it is part of an unfinished transaction (isolation level).
            committed = self._consumer.committed(place, metadata=True, timeout_ms=OPEN_TIMEOUT_MS)
            if committed is not None:
                found[number] = Replayed.read(committed.offset, committed.metadata or "")
        return bool(found), {n: found.get(n, Replayed()) for n in self._reader.numbers}

    def _target(self, letter: Letter) -> str:
        return self._to or (letter.source.topic if letter.source else "")

    def _check_targets(self, outputs: Iterable[Output]) -> None:
        for topic in {output.topic for output in outputs}:
            self._count(topic)

    def _count(self, topic: str) -> None:
        """Learn the number of partitions of a topic to write to."""
        if topic not in self._counts:
            numbers = self._consumer.partitions_for_topic(topic)
            if not numbers:
                msg = f"The Kafka topic {topic} does not exist. Create it, or correct its name."
                raise ServiceError(msg)
            self._counts[topic] = len(numbers)

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Turn an error of the client into a sentence that says what to do."""
        try:
            yield
        except KafkaError as error:
            if "ProducerFenced" in describe(error):
                raise ServiceError(_OTHER) from error
            msg = kafka_trouble(self._settings, error) or (
                f"Kafka at {self._settings.kafka_bootstrap} cannot be used: {describe(error)}. Do "
                "the replay again: what was replayed is on record, and is not replayed twice."
            )
            raise ServiceError(msg) from error


def read_letter(reader: TopicReader, place: Place) -> Letter:
    """Read one letter.

    Raises:
        InputError: there is none.
    """
    record = reader.at(*place)
    if record is None:
        msg = f"There is no dead letter {place}. Find one with: stream-dedup dead-letters list."
        raise InputError(msg)
    return Letter.of(record)


def _done(
    before: dict[int, Replayed], start: Offsets, ends: Offsets, reasons: Collection[str]
) -> dict[int, Replayed]:
    """Return what is done when the letters of some reasons between offsets are."""
    return {
        number: one.with_range(start[number], ends.get(number, 0), reasons)
        for number, one in before.items()
    }
