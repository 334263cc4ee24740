"""Bytes to documents, and decisions back into the bytes they belong to. Pure: no Kafka, no I/O.

A message value is a JSON object. Only the fields that a decision needs are decoded; everything
else is carried along as the bytes that came in. ``annotate`` adds ``"dedup": {...}`` before the
closing brace, so an annotated message differs from its input by exactly that insertion.

What cannot be decided is a ``Poison``: it has a reason from a short closed list (it becomes a
metric label and a header) and a detail for people, which never quotes the message.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NoReturn, Protocol, Self, cast

import msgspec
import numpy as np

from stream_dedup.errors import SettingsError
from stream_dedup.settings import Settings
from stream_dedup.types import Choice, Decision, Document, DocumentId, ids_meant_by

#: The field that an annotation is written to.
ANNOTATION_FIELD = "dedup"

#: Header names of annotated messages, and of dead letters.
HEADER_STATUS = "dedup-status"
HEADER_DUPLICATE_ID = "dedup-duplicate-id"
HEADER_ORIGINAL_ID = "dedup-original-id"
#: Where the document stood in the input, ``topic/partition/offset``; a rebuild needs it.
HEADER_SOURCE = "dedup-source"
HEADER_REASON = "dead-letter-reason"
HEADER_DETAIL = "dead-letter-detail"
HEADER_TRUNCATED = "dead-letter-truncated"
HEADER_TOPIC = "source-topic"
HEADER_PARTITION = "source-partition"
HEADER_OFFSET = "source-offset"
#: How often the message was a dead letter that was replayed; on the message itself, too.
HEADER_REPLAYS = "dead-letter-replays"

#: Our own headers are replaced when a message passes through twice, never added a second time.
ANNOTATION_HEADERS = frozenset(
    {HEADER_STATUS, HEADER_DUPLICATE_ID, HEADER_ORIGINAL_ID, HEADER_SOURCE}
)
DEAD_LETTER_HEADERS = frozenset(
    {
        HEADER_REASON,
        HEADER_DETAIL,
        HEADER_TRUNCATED,
        HEADER_TOPIC,
        HEADER_PARTITION,
        HEADER_OFFSET,
        HEADER_REPLAYS,
    }
)

#: Characters of a document id. Ids are stored with every original and repeated in every copy.
MAX_ID_CHARACTERS = 1024
#: Objects and arrays that may stand inside one another, far from where any decoder gives up.
MAX_DEPTH = 500
#: Bytes that a dead letter keeps of a value (and of a key) that is too large.
TRUNCATED_BYTES = 64 * 1024
#: Characters of a dead letter's detail.
MAX_DETAIL_CHARACTERS = 200

#: Numbers from here on are milliseconds: as seconds this is the year 5138, as milliseconds 1973.
_FIRST_MILLISECONDS = 1e11
#: Event times beyond this many seconds (year 5138) are not times.
_LAST_SECONDS = 1e11
_JSON_SPACE = b" \t\r\n"
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)

Header = tuple[str, bytes]


class Reason(StrEnum):
    """Why a message cannot be decided."""

    TOMBSTONE = "tombstone"
    TOO_LARGE = "too_large"
    NOT_UTF8 = "not_utf8"
    NOT_JSON = "not_json"
    NOT_AN_OBJECT = "not_an_object"
    TOO_DEEP = "too_deep"
    MISSING_TEXT = "missing_text"
    WRONG_TYPE = "wrong_type"
    BAD_ID = "bad_id"
    BAD_TIME = "bad_time"
    BAD_RANK = "bad_rank"
    BAD_HEADER = "bad_header"
    UNREADABLE = "unreadable"
    REFUSED = "refused"


class Poison(Exception):  # noqa: N818 - named as operators say it
    """A message that cannot be decided.

    Attributes:
        reason: one of a closed list, fit for a metric label.
        detail: one sentence for people, under 200 characters, free of message text.
        lost: the parts that could not be read: ``value``, ``key``, ``headers``.
    """

    def __init__(self, reason: Reason, detail: str, lost: Sequence[str] = ()) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail[:MAX_DETAIL_CHARACTERS]
        self.lost = lost

    def alone(self) -> Self:
        """Return this without the frames that it came through, to be kept.

        They hold all the batch, which would hold them: a circle that only the collector undoes.
        """
        self.__traceback__ = self.__context__ = self.__cause__ = None
        return self


class _Fields(Protocol):
    """What the generated struct looks like."""

    text: str
    id: DocumentId | None
    time: str | float | None
    origin: str | None
    rank: float | None


class Decoder:
    """Turns message values into documents.

    Args:
        settings: the field names, and the largest value.
        limit_size: whether there is a largest value (a line of a file may be of any size).

    Raises:
        SettingsError: two of the field names are the same, or one is the annotation's; or the
            choice goes by a rank that no field holds.
    """

    def __init__(self, settings: Settings, *, limit_size: bool = True) -> None:
        names = {"text": settings.text_field, "id": settings.id_field}
        if settings.time_field is not None:
            names["time"] = settings.time_field
        if settings.origin_field is not None:
            names["origin"] = settings.origin_field
        if settings.rank_field is not None:
            names["rank"] = settings.rank_field
        elif settings.choice is Choice.PREFERRED:
            msg = "The choice preferred goes by ranks. Name their field with rank_field."
            raise SettingsError(msg)
        if len({*names.values(), ANNOTATION_FIELD}) <= len(names):
            msg = (
                "id_field, text_field, time_field, origin_field, rank_field and "
                f"{ANNOTATION_FIELD!r} (where the annotation goes) must all differ. Name each "
                "field once."
            )
            raise SettingsError(msg)
        self._names = names
        self._max_bytes = settings.max_document_bytes if limit_size else sys.maxsize
        # Without a time or an origin field nothing may be read from the message, whatever its
        # fields are called, so the struct then has no such field at all.
        fields: list[Any] = [("text", str), ("id", str | int | None, None)]
        if "time" in names:
            fields.append(("time", str | int | float | None, None))
        if "origin" in names:
            fields.append(("origin", str | None, None))
        if "rank" in names:
            fields.append(("rank", float | None, None))
        struct = msgspec.defstruct("Fields", fields, rename=names, gc=False)
        self._decode = msgspec.json.Decoder(struct).decode
        self._has_time = "time" in names
        self._has_origin = "origin" in names
        self._has_rank = "rank" in names
        self._needs_time = settings.window is not None or settings.choice is Choice.EARLIEST

    def decode(
        self,
        value: bytes,
        *,
        fallback_id: DocumentId,
        source: str = "",
        fallback_time: float | None = None,
    ) -> Document:
        """Decode one message value.

        Args:
            value: the JSON object as it came.
            fallback_id: id of a document that names none.
            source: where in its input the document stands.
            fallback_time: event time of a document that names none, in seconds.

        Raises:
            Poison: the value cannot be decided.
        """
        if len(value) > self._max_bytes:
            detail = f"The value has {len(value)} bytes; max_document_bytes is {self._max_bytes}."
            raise Poison(Reason.TOO_LARGE, detail)
        if value.count(b"[") + value.count(b"{") > MAX_DEPTH and _depth(value) > MAX_DEPTH:
            raise Poison(Reason.TOO_DEEP, "The object is nested too deeply.")
        try:
            if not value.isascii():
                # msgspec skips over fields that are not asked for without looking into them;
                # bytes that no consumer could decode must not be published as annotated.
                value.decode()
            fields = cast("_Fields", self._decode(value))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
            _diagnose(value, error, self._names)
        identity = fields.id
        if identity is None:
            identity = fallback_id
        elif type(identity) is str:
            if len(identity) > MAX_ID_CHARACTERS:
                detail = f"The id is longer than {MAX_ID_CHARACTERS} characters."
                raise Poison(Reason.BAD_ID, detail)
        elif not -(2**63) <= cast("int", identity) < 2**64:
            raise Poison(Reason.BAD_ID, "The id is an integer of more than 64 bits.")
        origin = fields.origin if self._has_origin else None
        rank = fields.rank if self._has_rank else None
        return Document(
            identity, fields.text, self._time(fields, fallback_time), source, origin or "", rank
        )

    def _time(self, fields: _Fields, fallback: float | None) -> float | None:
        """Return the event time of a document."""
        if self._has_time and fields.time is not None:
            return parse_time(fields.time)
        if fallback is None:
            if self._needs_time:
                detail = "There is no time, and a window or a choice needs one."
                raise Poison(Reason.BAD_TIME, detail)
        elif not abs(fallback) < _LAST_SECONDS:
            raise Poison(Reason.BAD_TIME, "The time of the message lies beyond the year 5138.")
        return fallback

    def forgotten_id(self, value: bytes) -> DocumentId | None:
        """Return the id that an object names whose text is null; None for any other value."""
        try:
            fields = _decode_fields(value)
            text, identity = (fields.get(self._names[name]) for name in ("text", "id"))
            if text is None or identity is None or bytes(text) != b"null":
                return None
            return msgspec.json.decode(identity, type=str | int)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None


def ids_of_key(key: bytes | None) -> list[DocumentId]:
    """Return the ids that the key of a tombstone stands for; a key has no type.

    Raises:
        Poison: it is no id.
    """
    if not key:
        raise Poison(Reason.TOMBSTONE, "The message has neither a value nor a key.")
    try:
        name = key.decode()
    except UnicodeDecodeError:
        detail = "The message has no value, and its key is not UTF-8."
        raise Poison(Reason.TOMBSTONE, detail) from None
    if len(name) > MAX_ID_CHARACTERS:
        detail = f"The message has no value, and a key of more than {MAX_ID_CHARACTERS} characters."
        raise Poison(Reason.TOMBSTONE, detail)
    return ids_meant_by(name)


def _depth(value: bytes) -> int:
    """Return how many objects and arrays stand inside one another at most.

    Counted, because the depth at which a decoder gives up depends on who calls it: the same
    message would be decided once and not the next time.
    """
    codes = np.frombuffer(_STRING.sub(b"", value), np.uint8)
    opened = (codes == ord("[")) | (codes == ord("{"))
    closed = (codes == ord("]")) | (codes == ord("}"))
    steps = opened.astype(np.int64) - closed
    return int(np.cumsum(steps).max(initial=0))


def parse_time(value: str | float) -> float:
    """Read an event time: RFC 3339 (UTC when no offset is given), or seconds or milliseconds.

    Raises:
        Poison: it is none of these.
    """
    try:
        if isinstance(value, str):
            moment = datetime.fromisoformat(value)
            if moment.tzinfo is None:
                moment = moment.replace(tzinfo=UTC)
            return moment.timestamp()
        seconds = float(value)
    except (ValueError, OverflowError):
        detail = "The time is neither RFC 3339 nor seconds or milliseconds since the epoch."
        raise Poison(Reason.BAD_TIME, detail) from None
    if abs(seconds) >= _FIRST_MILLISECONDS:
        seconds /= 1000
    if not abs(seconds) < _LAST_SECONDS:
        raise Poison(Reason.BAD_TIME, "The time lies beyond the year 5138.")
    return seconds


def annotate(value: bytes, decision: Decision) -> bytes:
    """Return ``value`` with the decision under ``dedup``; all other bytes are kept.

    Only when the object has a ``dedup`` field already is it written anew: white space between its
    fields goes then, while every other field keeps its bytes.

    Args:
        value: a JSON object that ``Decoder.decode`` accepted.
        decision: what was decided about it.

    Raises:
        Poison: the object is nested too deeply to be written anew.
    """
    annotation = _encode(decision)
    # The name is there as it is or, escaped, with a back slash: neither is proof of absence.
    if b'"dedup"' in value or (b"\\" in value and b"\\u00" in value):
        try:
            fields = _decode_fields(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Poison(Reason.TOO_DEEP, "The object is nested too deeply.") from error
        if ANNOTATION_FIELD in fields:
            fields[ANNOTATION_FIELD] = msgspec.Raw(annotation)
            return msgspec.json.encode(fields)
    end = value.rindex(b"}")
    before = value[:end]
    # The only "{" that can stand right before the closing brace is that of an empty object.
    name = b'"dedup":' if before.rstrip(_JSON_SPACE).endswith(b"{") else b',"dedup":'
    return b"".join((before, name, annotation, value[end:]))


def annotation_headers(decision: Decision) -> list[Header]:
    """Return the headers that repeat the main points of an annotation."""
    return [
        (HEADER_STATUS, decision.status.encode()),
        (HEADER_DUPLICATE_ID, decision.duplicate_id.encode()),
        (HEADER_ORIGINAL_ID, str(decision.original_id).encode()),
    ]


def dead_letter_headers(
    poison: Poison,
    topic: str,
    partition: int,
    offset: int,
    truncated: Sequence[str] = (),
    *,
    replays: int = 0,
) -> list[Header]:
    """Return the headers that say why and from where a message is a dead letter.

    Args:
        poison: why.
        topic: input topic.
        partition: input partition.
        offset: input offset.
        truncated: the parts that were cut or could not be read: ``value``, ``key``, ``headers``.
        replays: how often the message was replayed.
    """
    headers = [
        (HEADER_REASON, poison.reason.encode()),
        (HEADER_DETAIL, poison.detail.encode()),
        (HEADER_TOPIC, topic.encode()),
        (HEADER_PARTITION, str(partition).encode()),
        (HEADER_OFFSET, str(offset).encode()),
    ]
    if truncated:
        headers.append((HEADER_TRUNCATED, ",".join(truncated).encode()))
    if replays:
        headers.append((HEADER_REPLAYS, str(replays).encode()))
    return headers


_encode = msgspec.json.Encoder().encode
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

_KINDS = {b'"': "a string", b"{": "an object", b"[": "an array", b"n": "null"}
_KINDS |= {b"t": "a boolean", b"f": "a boolean"}


def _kind(raw: msgspec.Raw) -> str:
    return _KINDS.get(bytes(raw)[:1], "a number")


def _diagnose(value: bytes, error: Exception, names: dict[str, str]) -> NoReturn:
    """Name the reason of a failed decoding. Slow, and asked only about poison.

    The reason is found by looking again rather than in msgspec's message, whose wording may
    change and which may quote the document.
    """
    try:
        value.decode()
        fields = _decode_fields(value)
    except UnicodeDecodeError as problem:
        detail = f"The value is not UTF-8 at byte {problem.start}."
        raise Poison(Reason.NOT_UTF8, detail) from error
    except msgspec.ValidationError:
        raise Poison(Reason.NOT_AN_OBJECT, "The value is not a JSON object.") from error
    except RecursionError:
        raise Poison(Reason.TOO_DEEP, "The object is nested too deeply.") from error
    except msgspec.DecodeError:
        raise Poison(Reason.NOT_JSON, "The value is not JSON.") from error
    _diagnose_fields(fields, error, names)


def _diagnose_fields(
    fields: dict[str, msgspec.Raw], error: Exception, names: dict[str, str]
) -> NoReturn:
    if names["text"] not in fields:
        detail = f"The text field {names['text'][:64]!r} is missing."
        raise Poison(Reason.MISSING_TEXT, detail) from error
    text, identity = _kind(fields[names["text"]]), _kind(fields.get(names["id"], msgspec.Raw(b"n")))
    if text != "a string":
        raise Poison(Reason.WRONG_TYPE, f"The text is {text}, not a string.") from error
    if identity not in {"a string", "null"}:
        detail = f"The id is {identity}, not a string or a 64-bit integer."
        raise Poison(Reason.BAD_ID, detail) from error
    origin = _kind(fields[names["origin"]]) if names.get("origin") in fields else "null"
    if origin not in {"a string", "null"}:
        raise Poison(Reason.WRONG_TYPE, f"The origin is {origin}, not a string.") from error
    rank = fields.get(names.get("rank", ""), msgspec.Raw(b"null"))
    try:
        msgspec.json.decode(rank, type=float | None)
    except msgspec.DecodeError:
        detail = f"The rank is {_kind(rank)} that cannot be read."
        raise Poison(Reason.BAD_RANK, detail) from error
    time = _kind(fields.get(names.get("time", ""), msgspec.Raw(b"n")))
    if time not in {"a string", "null"}:
        detail = f"The time is {time} that cannot be read."
        raise Poison(Reason.BAD_TIME, detail) from error
    # A name that stands there twice, first with a value of a wrong type; or a string that is none.
    detail = "A field is there twice, or a string of the value is not valid JSON."
    raise Poison(Reason.NOT_JSON, detail) from error
