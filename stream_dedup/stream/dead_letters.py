"""What a dead letter says, and what a topic of them comes to. Pure: no Kafka, no I/O."""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

from stream_dedup.stream.answers import read_count, replayed, replays_of
from stream_dedup.stream.headers import (
    DEAD_LETTER_HEADERS,
    HEADER_DETAIL,
    HEADER_OFFSET,
    HEADER_PARTITION,
    HEADER_REASON,
    HEADER_TOPIC,
    HEADER_TRUNCATED,
)
from stream_dedup.stream.poison import MAX_DETAIL_CHARACTERS, Reason
from stream_dedup.stream.transport import InputRecord, Output, Record

#: Characters of a reason: anybody may write to the topic.
_REASON_CHARACTERS = 40
#: Characters of the longest topic name of Kafka.
_TOPIC_CHARACTERS = 249
#: Letters left out that are told one by one.
_TOLD = 100


class Place(NamedTuple):
    """Where a letter stands on the dead-letter topic."""

    partition: int
    offset: int

    def __str__(self) -> str:
        """Write it as the commands read it."""
        return f"{self.partition}/{self.offset}"


@dataclass(frozen=True, slots=True)
class Letter:
    """A record of the dead-letter topic, and what its headers say.

    Attributes:
        record: the record.
        reason: why it could not be decided; empty when it is no letter of this program.
        detail: the same for people.
        truncated: the parts that were cut, or nothing.
        source: the message that it was, in its place; None when it names no place.
        replays: how often it had been replayed before.
        size: bytes of the value; None when there is none.
    """

    record: Record
    reason: str
    detail: str
    truncated: str
    source: InputRecord | None
    replays: int
    size: int | None

    @classmethod
    def of(cls, record: Record) -> Self:
        """Read the headers of a record, whatever they are."""
        found = {name: value for name, value in record.headers if name in DEAD_LETTER_HEADERS}

        def text(name: str, characters: int) -> str:
            return (found.get(name) or b"").decode(errors="replace")[:characters]

        topic = text(HEADER_TOPIC, _TOPIC_CHARACTERS)
        partition, offset = (read_count(found.get(n)) for n in (HEADER_PARTITION, HEADER_OFFSET))
        source = None
        if topic and partition is not None and offset is not None:
            rest = (record.timestamp, record.key, record.value, record.headers)
            source = InputRecord(topic, partition, offset, *rest)
        return cls(
            record,
            text(HEADER_REASON, _REASON_CHARACTERS),
            text(HEADER_DETAIL, MAX_DETAIL_CHARACTERS),
            text(HEADER_TRUNCATED, _REASON_CHARACTERS),
            source,
            replays_of(record.headers),
            None if record.value is None else len(record.value),
        )

    def bare(self) -> Self:
        """Return it without what may be large: key, value and headers."""
        one, source = self.record, self.source
        record = InputRecord(one.topic, one.partition, one.offset, one.timestamp, None, None, ())
        if source is not None:
            source = source._replace(key=None, value=None, headers=())
        return replace(self, record=record, source=source)

    @property
    def place(self) -> Place:
        """Where it stands."""
        return Place(self.record.partition, self.record.offset)

    @property
    def moment(self) -> int:
        """The time of the message, in milliseconds since the epoch; negative when it has none."""
        return self.record.timestamp

    @property
    def came_from(self) -> str:
        """Where the message stood, ``topic/partition/offset``; nothing if that is not known."""
        source = self.source
        return f"{source.topic}/{source.partition}/{source.offset}" if source else ""

    @property
    def obstacle(self) -> str:
        """Say why it cannot be replayed; nothing when it can."""
        if not self.reason or self.source is None:
            return "its headers name no reason and no source, so it is no letter of this program"
        if self.truncated:
            return (
                f"it lost bytes ({self.truncated}: too large, or could not be read). "
                f"Take the message from {self.came_from}, if it is still there"
            )
        if self.reason == Reason.TOMBSTONE and not self.record.value and self.record.key is None:
            return "it had neither a value nor a key, and the client sends no such message"
        return ""

    def original(self, topic: str) -> Output:
        """Return the message that it was, for a topic; it must have no obstacle."""
        if self.source is None:
            msg = f"{self.place} names no source"
            raise ValueError(msg)
        return replayed(topic, self.record, self.source)


@dataclass
class Summary:
    """What a number of letters comes to.

    Attributes:
        limit: number of newest letters that are kept.
        letters: how many there are.
        reasons: how many for each reason.
        topics: how many of each source topic.
        replayed: how many of them had been replayed before.
        oldest: the earliest time of a message, milliseconds since the epoch.
        newest: the latest.
    """

    limit: int
    letters: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    topics: Counter[str] = field(default_factory=Counter)
    replayed: int = 0
    oldest: int | None = None
    newest: int | None = None
    _kept: list[tuple[int, Place, Letter]] = field(default_factory=list)

    def add(self, letter: Letter) -> None:
        """Count one more."""
        self.letters += 1
        self.reasons[letter.reason] += 1
        self.topics[letter.source.topic if letter.source else ""] += 1
        self.replayed += letter.replays > 0
        moment = letter.moment
        if moment >= 0:
            self.oldest = moment if self.oldest is None else min(self.oldest, moment)
            self.newest = moment if self.newest is None else max(self.newest, moment)
        if self.limit:
            add = heapq.heappush if len(self._kept) < self.limit else heapq.heappushpop
            # A place is met once, so letters themselves are never compared.
            add(self._kept, (moment, letter.place, letter.bare()))

    @property
    def latest(self) -> list[Letter]:
        """The newest letters, the newest first, without their contents."""
        return [letter for _, _, letter in sorted(self._kept, key=lambda one: one[:2])[::-1]]


@dataclass
class Outcome:
    """What a replay did, or would do.

    Attributes:
        reasons: letters replayed, by reason.
        topics: the same, by the topic that they went to.
        before: letters passed over because they were replayed before.
        left_out: number of letters that cannot be replayed.
        told: the first of these, and why.
    """

    reasons: Counter[str] = field(default_factory=Counter)
    topics: Counter[str] = field(default_factory=Counter)
    before: int = 0
    left_out: int = 0
    told: list[tuple[Place, str]] = field(default_factory=list)

    def leave_out(self, place: Place, why: str) -> None:
        """Count a letter that cannot be replayed."""
        self.left_out += 1
        if len(self.told) < _TOLD:
            self.told.append((place, why))
