"""How documents stand in lines: JSON objects, or plain text."""

from __future__ import annotations

import msgspec

from stream_dedup.settings import Settings
from stream_dedup.stream.annotation import annotate
from stream_dedup.stream.decoding import ANNOTATION_BYTES, Decoder
from stream_dedup.stream.files import Line
from stream_dedup.stream.poison import Poison, Reason
from stream_dedup.types import Decision, Document, DocumentId


def line_bytes(settings: Settings) -> int:
    """Return how many bytes a line of a file may have; a longer one is not read to its end."""
    return settings.max_document_bytes + ANNOTATION_BYTES


class JsonLines:
    """A line is a JSON object; it is written back as it came, with ``dedup`` added.

    An object that names an id and has null for a text is a tombstone.
    """

    def __init__(self, settings: Settings, *, room: int = ANNOTATION_BYTES) -> None:
        """Set up; ``room`` is what a line may have beyond ``max_document_bytes``."""
        self._decoder = Decoder(settings, room=room)

    def decode(self, line: Line) -> Document:
        """Read one line (see ``LineFormat.decode``)."""
        return self._decoder.decode(line.value, fallback_id=line.name, source=line.source)

    def forgotten(self, line: Line) -> DocumentId | None:
        """Read a tombstone (see ``LineFormat.forgotten``)."""
        return self._decoder.forgotten_id(line.value)

    def encode(self, line: Line, document: Document, decision: Decision) -> bytes:  # noqa: ARG002
        """Write one line back (see ``LineFormat.encode``)."""
        return annotate(line.value, decision)


class _Annotated(msgspec.Struct):
    id: DocumentId
    text: str
    dedup: Decision


class TextLines:
    """A line is a text; it is written back as an object of ``id`` (file:line), text and dedup."""

    def __init__(self, settings: Settings) -> None:
        self._most = settings.max_document_bytes

    def decode(self, line: Line) -> Document:
        """Read one line (see ``LineFormat.decode``)."""
        if len(line.value) > self._most:
            detail = f"The line has more than {self._most} bytes (max_document_bytes)."
            raise Poison(Reason.TOO_LARGE, detail)
        try:
            return Document(line.name, line.value.decode(), source=line.source)
        except UnicodeDecodeError as error:
            detail = f"The line is not UTF-8 at byte {error.start}."
            raise Poison(Reason.NOT_UTF8, detail) from error

    def forgotten(self, line: Line) -> DocumentId | None:  # noqa: ARG002
        """Say that it is none (see ``LineFormat.forgotten``)."""
        return None

    def encode(self, line: Line, document: Document, decision: Decision) -> bytes:  # noqa: ARG002
        """Write one line (see ``LineFormat.encode``)."""
        return msgspec.json.encode(_Annotated(document.id, document.text, decision))
