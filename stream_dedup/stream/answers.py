"""What is written about a record: its annotated message, or its dead letter. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from stream_dedup.groups import Member, encode
from stream_dedup.stream.annotation import annotate
from stream_dedup.stream.decoding import MAX_ID_CHARACTERS
from stream_dedup.stream.headers import (
    ANNOTATION_HEADERS,
    DEAD_LETTER_HEADERS,
    HEADER_REPLAYS,
    HEADER_SOURCE,
    Header,
    annotation_headers,
    dead_letter_headers,
)
from stream_dedup.stream.poison import Poison, Reason
from stream_dedup.stream.transport import Output, Record
from stream_dedup.types import Decision, Document

#: Bytes that a dead letter keeps of a value (and of a key) that is too large.
TRUNCATED_BYTES = 64 * 1024
#: Digits of the largest count and of the largest offset that Kafka has.
_COUNT_BYTES = 19


def source_of(record: Record) -> str:
    """Name the place of a record in its input (see ``Document.source``)."""
    return f"{record.topic}/{record.partition}/{record.offset}"


def annotated(topic: str, record: Record, document: Document, decision: Decision) -> Output:
    """Answer a document: its key, headers, timestamp and bytes, with the decision added.

    Args:
        topic: where to.
        record: the message.
        document: what was read of it.
        decision: what was decided about it.

    Raises:
        Poison: the decision cannot be added.
    """
    value = annotate(record.value or b"", decision)
    headers = [*annotation_headers(decision), (HEADER_SOURCE, document.source.encode())]
    if record.headers:
        headers = [*_kept(record.headers, ANNOTATION_HEADERS), *headers]
    return Output(topic, record, value, headers, record.key, record.timestamp)


def member(topic: str, record: Record, document: Document, decision: Decision) -> Output:
    """Tell a duplicate group of a document in it; all that is told of a group is in one partition.

    The time of publishing is the message's, because nothing may delete it before it was read.
    """
    value = encode(Member.of(document, decision))
    return Output(topic, record, value, [], decision.duplicate_id.encode(), None, by_key=True)


def tombstone(topic: str, record: Record) -> Output:
    """Answer a tombstone: the same key without a value, so that a compacted topic forgets too."""
    headers = _kept(record.headers, ANNOTATION_HEADERS)
    return Output(topic, record, None, headers, record.key, record.timestamp)


def dead_letter(topic: str, record: Record, poison: Poison) -> Output:
    """Answer a record that cannot be decided: as far as it came, cut if too large, and why."""
    key, value, headers = record.key, record.value, _kept(record.headers, DEAD_LETTER_HEADERS)
    truncated = list(poison.lost)
    if poison.reason is Reason.REFUSED and poison.lost:
        # Even cut it was refused. A compacted topic takes nothing without a key.
        key, value, headers = source_of(record).encode(), b"", []
    if poison.reason in {Reason.TOO_LARGE, Reason.REFUSED}:
        if value is not None and len(value) > TRUNCATED_BYTES:
            value = value[:TRUNCATED_BYTES]
            truncated.append("value")
        if key is not None and len(key) > TRUNCATED_BYTES:
            key = key[:TRUNCATED_BYTES]
            truncated.append("key")
        if sum(len(name) + len(content) for name, content in headers) > TRUNCATED_BYTES:
            headers = []
            truncated.append("headers")
    place = (record.topic, record.partition, record.offset)
    headers += dead_letter_headers(poison, *place, truncated, replays=replays_of(record.headers))
    # A refusal may be about the time stamp, so such a letter gets a new one.
    # So may be deaths at a letter, which has then lost everything.
    undated = poison.reason is Reason.REFUSED or (poison.reason is Reason.FATAL and poison.lost)
    timestamp = None if undated else record.timestamp
    if value is None and key is None:
        # The client sends no message that has neither; the reason says that it was a tombstone.
        value = b""
    return Output(topic, record, value, headers, key, timestamp)


def replayed(topic: str, letter: Record, source: Record) -> Output:
    """Give a dead letter back as the message that it was, which is counted in a header.

    Args:
        topic: where to.
        letter: the dead letter.
        source: the message that it was, for its place.
    """
    headers = _kept(letter.headers, DEAD_LETTER_HEADERS)
    headers.append((HEADER_REPLAYS, str(replays_of(letter.headers) + 1).encode()))
    timestamp = letter.timestamp if letter.timestamp >= 0 else None
    return Output(topic, source, letter.value, headers, letter.key, timestamp)


def replays_of(headers: Sequence[tuple[str, bytes | None]]) -> int:
    """Return how often a message was replayed; what is no count is none."""
    counts = (read_count(value) for name, value in headers if name == HEADER_REPLAYS)
    return max((count for count in counts if count is not None), default=0)


def read_count(value: bytes | None) -> int | None:
    """Read a number that is written in digits; None for anything else."""
    if value is None or len(value) > _COUNT_BYTES or not value.isdigit():
        return None
    return int(value)


def fallback_id(key: bytes | None, source: str) -> str:
    """Name a document that names no id: by its key, else by its place."""
    if not key:
        return source
    try:
        name = key.decode()
    except UnicodeDecodeError:
        return source
    return name if len(name) <= MAX_ID_CHARACTERS else source


def _kept(headers: Sequence[tuple[str, bytes | None]], ours: frozenset[str]) -> list[Header]:
    """Return the headers without ours. The client cannot send a null: it becomes empty bytes."""
    return [(name, value or b"") for name, value in headers if name not in ours]
