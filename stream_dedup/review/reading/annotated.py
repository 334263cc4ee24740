"""Annotated documents, from lines or messages, as the window takes them."""

from __future__ import annotations

import re
import time
from typing import Any, NamedTuple

import msgspec

from stream_dedup.groups import DUPLICATE_ID, MAX_ORIGIN_CHARACTERS
from stream_dedup.review.seen import Seen
from stream_dedup.settings import Settings
from stream_dedup.stream.decoding import ANNOTATION_BYTES, Decoder, parse_time
from stream_dedup.stream.poison import Poison, Reason
from stream_dedup.types import Choice, Decision, Document, DocumentId, Status

#: Reason for which a document is passed over, beside those of dead letters.
NOT_ANNOTATED = "not_annotated"

#: Stands for the id of a document that names none; told from others by identity, not by value.
_UNNAMED = "unnamed document"
#: Characters of an address that is linked.
_LINK_CHARACTERS = 2048
_LINK = re.compile(
    r"https?://(?:[^\s/?#\[\]]+|\[[0-9a-f:.]+\](?::\d+)?)(?:[/?#]\S*)?", re.IGNORECASE
)


class PassedOver(Exception):  # noqa: N818 - a state of things
    """What was read is not shown.

    Attributes:
        reason: that of a dead letter, or ``NOT_ANNOTATED``.
        forgotten: id of the document that a tombstone names; None where it is none.
    """

    def __init__(self, reason: str, forgotten: DocumentId | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.forgotten = forgotten


class Place(NamedTuple):
    """Where a document stands in what is read.

    Attributes:
        name: in words, ``file:line`` or ``topic/partition/offset``.
        fallback_id: id of a document that names none and is no original: of an original its
            annotation tells.
        stamp: time of a message in milliseconds since the epoch; None for a line.
    """

    name: str
    fallback_id: DocumentId
    stamp: int | None = None


class _Annotated(msgspec.Struct):
    dedup: Decision


class Shown(NamedTuple):
    """What is shown of a document beside its text and its decision.

    Attributes:
        source: what it comes from; empty where unknown.
        link: its address; empty without one.
    """

    source: str
    link: str


_decode_annotated = msgspec.json.Decoder(_Annotated).decode


class ShownFields:
    """Reads source and link; a value that is none is left out, as a message may have anything."""

    def __init__(self, settings: Settings) -> None:
        """Read the fields that the settings name."""
        names = {"source": settings.review_source_field, "link": settings.review_link_field}
        self._is_one = len(set(names.values())) == 1
        fields = [("source", Any, None), ("link", Any, None)][: 2 - self._is_one]
        struct = msgspec.defstruct("Fields", fields, rename=names, gc=False)
        self._decode = msgspec.json.Decoder(struct).decode

    def read(self, value: bytes) -> Shown:
        """Read them from a JSON object."""
        fields: Any = self._decode(value)
        source = fields.source
        link = source if self._is_one else fields.link
        shown = str(source) if isinstance(source, (str, int)) else ""
        return Shown(shown[:MAX_ORIGIN_CHARACTERS], safe_link(link))


class AnnotatedDecoder:
    """Turns annotated JSON objects into what the window takes."""

    def __init__(self, settings: Settings) -> None:
        self._decoder = Decoder(undated(settings), room=ANNOTATION_BYTES)
        self._shown = ShownFields(settings)

    def decode(self, value: bytes, place: Place) -> Seen:
        """Decode one annotated document.

        Raises:
            PassedOver: it is no document, or is not annotated.
        """
        try:
            document = self._decoder.decode(value, fallback_id=_UNNAMED, source=place.name)
            shown = self._shown.read(value)
        except Poison as poison:
            of_text = poison.reason is Reason.WRONG_TYPE
            forgotten = self._decoder.forgotten_id(value) if of_text else None
            raise PassedOver(poison.reason.value, forgotten) from poison
        except (msgspec.DecodeError, RecursionError) as error:
            raise PassedOver(Reason.TOO_DEEP.value) from error
        decision = self._decision(value)
        if document.id is _UNNAMED:
            is_original = decision.status is Status.ORIGINAL
            name = decision.original_id if is_original else place.fallback_id
            document = msgspec.structs.replace(document, id=name)
        return seen(document, decision, shown, place.stamp)

    @staticmethod
    def _decision(value: bytes) -> Decision:
        try:
            decision = _decode_annotated(value).dedup
        except (msgspec.DecodeError, RecursionError) as error:
            raise PassedOver(NOT_ANNOTATED) from error
        if not DUPLICATE_ID.fullmatch(decision.duplicate_id):
            raise PassedOver(NOT_ANNOTATED)
        if decision.similarity is not None and not 0 <= decision.similarity <= 1:
            raise PassedOver(NOT_ANNOTATED)
        return decision


def undated(settings: Settings) -> Settings:
    """Return settings that read documents without a time, too; all can be shown."""
    return settings.model_copy(update={"window": None, "choice": Choice.FIRST})


def seen(document: Document, decision: Decision, shown: Shown, stamp: int | None = None) -> Seen:
    """Put together what the window takes.

    Args:
        document: the document.
        decision: what was decided about it.
        shown: what is shown beside.
        stamp: time of its message, milliseconds since the epoch.
    """
    return Seen(
        id=document.id,
        duplicate_id=decision.duplicate_id,
        original_id=decision.original_id,
        status=decision.status,
        method=decision.method.value,
        configuration=decision.configuration,
        at=_moment(document, decision, stamp),
        text=document.text,
        similarity=decision.similarity,
        hamming_distance=decision.hamming_distance,
        measure=None if decision.measure is None else decision.measure.value,
        source=shown.source,
        link=shown.link,
        place=document.source,
    )


def safe_link(value: object) -> str:
    """Return an address that may be linked, http or https with a host; empty for anything else."""
    if not isinstance(value, str) or len(value) > _LINK_CHARACTERS or not value.isprintable():
        return ""
    return value if _LINK.fullmatch(value) else ""


def _moment(document: Document, decision: Decision, stamp: int | None) -> int:
    """Return when it was decided, else its time, else that of its message, else now.

    A time to come is not believed: it would stay the latest until it has come.
    """
    now = time.time()
    seconds = document.time
    if decision.decided_at is not None:
        try:
            seconds = parse_time(decision.decided_at)
        except Poison:
            seconds = None
    if seconds is None and stamp is not None and stamp >= 0:
        seconds = stamp / 1000
    return int(1000 * (now if seconds is None else min(seconds, now)))
