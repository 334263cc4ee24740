"""Decisions back into the bytes that they belong to. Pure.

``annotate`` adds ``"dedup": {...}`` before the closing brace of a JSON object, so an annotated
message differs from its input by exactly that insertion.
"""

from __future__ import annotations

import msgspec

from stream_dedup.stream.poison import Poison, Reason
from stream_dedup.types import Decision

#: The field that an annotation is written to.
ANNOTATION_FIELD = "dedup"

_JSON_SPACE = b" \t\r\n"

_encode = msgspec.json.Encoder().encode
#: The fields of a JSON object, as their bytes.
decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


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
            fields = decode_fields(value)
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
