"""Bytes to documents. Pure: no Kafka, no I/O.

A message value is a JSON object. Only the fields that a decision needs are decoded; everything
else is carried along as the bytes that came in. What cannot be decided is a ``Poison``.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, NoReturn, Protocol, cast

import msgspec
import numpy as np

from stream_dedup.errors import SettingsError
from stream_dedup.settings import Settings
from stream_dedup.stream.annotation import ANNOTATION_FIELD, decode_fields
from stream_dedup.stream.poison import Poison, Reason
from stream_dedup.types import Choice, Document, DocumentId, ids_meant_by

#: Characters of a document id. Ids are stored with every original and repeated in every copy.
MAX_ID_CHARACTERS = 1024
_SMALLEST_ID, _ABOVE_IDS = -(2**63), 2**64
#: Bytes that key, headers and annotation take beside a value, with much to spare.
ANNOTATION_BYTES = 64 * 1024
#: Objects and arrays that may stand inside one another, far from where any decoder gives up.
MAX_DEPTH = 500

#: Numbers from here on are milliseconds: as seconds this is the year 5138, as milliseconds 1973.
_FIRST_MILLISECONDS = 1e11
#: Event times beyond this many seconds (year 5138) are not times.
_LAST_SECONDS = 1e11
#: A string, also one that never ends: otherwise each quote in it would begin one, and be followed
#: to the end of the message.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)


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
        room: bytes that a value may have beyond ``max_document_bytes``.

    Raises:
        SettingsError: two of the field names are the same, or one is the annotation's; or the
            choice goes by a rank that no field holds.
    """

    def __init__(self, settings: Settings, *, room: int = 0) -> None:
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
        self._max_bytes = settings.max_document_bytes + room
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
            detail = f"The value has more than {self._max_bytes} bytes (max_document_bytes)."
            raise Poison(Reason.TOO_LARGE, detail)
        # To look for a byte takes a fraction of counting it, and most messages are flat.
        if (
            (b"[" in value or value.find(b"{", 1) > 0)
            and value.count(b"[") + value.count(b"{") > MAX_DEPTH
            and _depth(value) > MAX_DEPTH
        ):
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
        elif not _SMALLEST_ID <= cast("int", identity) < _ABOVE_IDS:
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
            fields = decode_fields(value)
            text, identity = (fields.get(self._names[name]) for name in ("text", "id"))
            if text is None or identity is None or bytes(text) != b"null":
                return None
            return msgspec.json.decode(identity, type=str | int)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None


def is_id(name: DocumentId) -> bool:
    """Return whether a document may have this id."""
    if isinstance(name, str):
        return len(name) <= MAX_ID_CHARACTERS
    return _SMALLEST_ID <= name < _ABOVE_IDS


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
        fields = decode_fields(value)
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
