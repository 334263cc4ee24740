"""What a message of the past tells: a document, and maybe how it was decided."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from stream_dedup.settings import Settings
from stream_dedup.stream.answers import fallback_id, source_of
from stream_dedup.stream.decoding import ANNOTATION_BYTES, Decoder, ids_of_key, is_id
from stream_dedup.stream.files import read_lines
from stream_dedup.stream.headers import HEADER_SOURCE
from stream_dedup.stream.lines import line_bytes
from stream_dedup.stream.poison import Poison, Reason
from stream_dedup.stream.transport import Record
from stream_dedup.types import Document, DocumentId, Status


class Told(msgspec.Struct, frozen=True):
    """The part of an annotation that a rebuild goes by."""

    status: Status
    duplicate_id: str
    original_id: DocumentId
    configuration: str
    decided_at: datetime | None = None

    def own_name(self, otherwise: DocumentId) -> DocumentId:
        """Return the id as far as the decision has it: anybody may write to a topic."""
        known = self.status is Status.ORIGINAL and is_id(self.original_id)
        return self.original_id if known else otherwise

    def moment(self, otherwise: int) -> int:
        """Return when it was decided, in milliseconds since the epoch."""
        at = self.decided_at
        try:
            return otherwise if at is None else round(at.timestamp() * 1000)
        except (ValueError, OverflowError):  # a year without a zone at the ends of the calendar
            return otherwise


class _Annotated(msgspec.Struct):
    dedup: Told | None = None


_decode = msgspec.json.Decoder(_Annotated).decode


class Message(NamedTuple):
    """One message of the past.

    Attributes:
        lane: partition it stands in; 0 for files.
        next_offset: offset after it.
        moment: when it was decided, or else its time stamp; milliseconds since the epoch.
        value: the JSON object; None for a tombstone.
        told: its annotation; None where there is none.
        name: id of the document if it names none.
        source: where the document stood when it was decided first; empty where unknown.
        time: event time if it names none, seconds since the epoch.
        forgets: ids of what a tombstone makes forgotten; empty where it is none.
    """

    lane: int
    next_offset: int
    moment: int
    value: bytes | None
    told: Told | None
    name: DocumentId
    source: str
    time: float | None
    forgets: Sequence[DocumentId] = ()


class Reading:
    """Turns what is read into messages, and messages into documents."""

    def __init__(self, settings: Settings, *, annotated: bool) -> None:
        """Set up; ``annotated`` says whether the decisions in the messages are ours."""
        self._annotated = annotated
        self._decoder = Decoder(settings, room=ANNOTATION_BYTES)
        self._most = line_bytes(settings)

    def of_record(self, record: Record) -> Message:
        """Read a record of a topic."""
        told = self._told(record.value)
        source = source_of(record)
        if self._annotated:
            said = (dict(record.headers).get(HEADER_SOURCE) or b"").decode("utf-8", "replace")
            source = said if is_id(said) else ""
        name = fallback_id(record.key, source)
        stamp = max(record.timestamp, 0)
        return Message(
            record.partition,
            record.offset + 1,
            stamp if told is None else told.moment(stamp),
            record.value,
            told,
            name if told is None else told.own_name(name),
            source,
            record.timestamp / 1000 if record.timestamp >= 0 else None,
            _ids_of_tombstone(record),
        )

    def of_files(self, paths: Sequence[Path]) -> Iterator[Message]:
        """Read the lines of files."""
        for number, path in enumerate(paths):
            for line in read_lines(path, paths[:number].count(path), self._most):
                told = self._told(line.value)
                # The place of an annotated line is not that of the document that it answers.
                source = line.source if told is None else ""
                moment = 0 if told is None else told.moment(0)
                name = line.name if told is None else told.own_name(line.name)
                is_candidate = b"null" in line.value  # to look closer costs as much as to decode
                forgotten = self._decoder.forgotten_id(line.value) if is_candidate else None
                forgets = () if forgotten is None else (forgotten,)
                yield Message(0, 0, moment, line.value, told, name, source, None, forgets)

    def document(self, message: Message) -> Document:
        """Read a message's document.

        Raises:
            Poison: it is none.
        """
        if message.value is None:
            raise Poison(Reason.TOMBSTONE, "The message has no value, and no key that is an id.")
        return self._decoder.decode(
            message.value,
            fallback_id=message.name,
            source=message.source,
            fallback_time=message.time,
        )

    def _told(self, value: bytes | None) -> Told | None:
        if value is None or not self._annotated:
            return None
        try:
            return _decode(value).dedup
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None


def _ids_of_tombstone(record: Record) -> Sequence[DocumentId]:
    """Return the ids that a message without a value names; none where its key is none."""
    if record.value is not None:
        return ()
    try:
        return ids_of_key(record.key)
    except Poison:
        return ()


def _ignore(_read: int) -> None:
    """Take notice of no progress."""
