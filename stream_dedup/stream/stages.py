"""Lines to documents ready to be claimed, and what was claimed to annotated lines. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from stream_dedup.deduplicator import Stages
from stream_dedup.errors import InputError
from stream_dedup.index.base import IndexBatch
from stream_dedup.index.revisions import Answers
from stream_dedup.shadow import Comparison
from stream_dedup.stream.files import Chunk, Line
from stream_dedup.stream.poison import Poison, Reason
from stream_dedup.types import Decision, Document, DocumentId, Status

#: A duplicate group: its id, and the id of its original.
Copied = tuple[str, DocumentId]


class LineFormat(Protocol):
    """How documents stand in lines."""

    def decode(self, line: Line) -> Document:
        """Read one line.

        Raises:
            Poison: the line is no document.
        """

    def forgotten(self, line: Line) -> DocumentId | None:
        """Return the id that a line names if it is a tombstone: that document is gone."""

    def encode(self, line: Line, document: Document, decision: Decision) -> bytes:
        """Write one line back, annotated, without its ending."""


class DeadLetter(msgspec.Struct, frozen=True):
    """A line that is no document, as it is set aside; ``value`` is Latin-1 if not UTF-8."""

    source: str
    reason: str
    detail: str
    value: str


class Prepared(NamedTuple):
    """A batch of lines, ready to be claimed.

    Attributes:
        dead_letters: the lines that are no documents, as they are set aside.
        batch: the documents, fingerprinted.
        tombstones: how many documents come before each, and the id that it names.
        shadow: the documents by the shadow's configuration, if there is one.
    """

    dead_letters: list[bytes]
    batch: IndexBatch
    tombstones: Sequence[tuple[int, DocumentId]] = ()
    shadow: IndexBatch | None = None


class Claimed(NamedTuple):
    """What the live index said of a batch, and the shadow's, if there is one."""

    live: Answers
    shadow: Answers | None = None


class Annotated(NamedTuple):
    """A batch of lines, done.

    Attributes:
        lines: the annotated lines.
        statuses: how many documents turned out to be what.
        copies: how many copies of which original, in the order in which they were first met.
        tombstones: how many lines were tombstones.
        comparison: the decisions beside those of the shadow, if there is one.
    """

    lines: bytes | memoryview
    statuses: dict[Status, int]
    copies: list[tuple[Copied, int]]
    tombstones: int = 0
    comparison: Comparison | None = None


class Pending(NamedTuple):
    """What is kept of a batch while it is claimed.

    Attributes:
        lines: the lines of the documents.
        documents: the documents.
        digests: of their texts.
        tombstones: how many documents come before each, and its line.
    """

    lines: list[Line]
    documents: list[Document]
    digests: list[bytes]
    tombstones: Sequence[tuple[int, bytes]] = ()
    shadow_digests: Sequence[bytes] = ()


class LineStages:
    """The stages around the index, for lines.

    Attributes:
        stages: the same for documents.
        lines: how documents stand in lines.
        shadow: the stages of the shadow, if there is one.
    """

    def __init__(
        self, stages: Stages, lines: LineFormat, *, set_aside: bool, shadow: Stages | None = None
    ) -> None:
        """Set up; ``set_aside`` says whether lines that are no documents are let pass."""
        self.stages = stages
        self.lines = lines
        self.shadow = shadow
        self._set_aside = set_aside

    def prepare(self, chunks: Iterable[Chunk]) -> tuple[Prepared, Pending]:
        """Decode and fingerprint the lines of a batch; also return what ``finish`` will want.

        Raises:
            InputError: a line is no document and is not set aside, or has no time but needs one.
        """
        dead_letters: list[bytes] = []
        lines: list[Line] = []
        documents: list[Document] = []
        tombstones: list[tuple[int, DocumentId]] = []
        unchanged: list[tuple[int, bytes]] = []
        decode = self.lines.decode
        for chunk in chunks:
            for line in chunk.parsed():
                try:
                    documents.append(decode(line))
                except Poison as poison:
                    of_text = poison.reason is Reason.WRONG_TYPE
                    forgotten = self.lines.forgotten(line) if of_text else None
                    if forgotten is None:
                        dead_letters.append(self._refuse(line, poison))
                    else:
                        tombstones.append((len(documents), forgotten))
                        unchanged.append((len(documents), line.value))
                else:
                    lines.append(line)
        batch = self.stages.prepare(documents)
        prepared = Prepared(dead_letters, batch, tombstones)
        pending = Pending(lines, documents, batch.prints.digests, unchanged)
        if self.shadow is None:
            return prepared, pending
        beside = self.shadow.prepare(documents)
        return (
            prepared._replace(shadow=beside),
            pending._replace(shadow_digests=beside.prints.digests),
        )

    def finish(self, pending: Pending, claimed: Claimed) -> Annotated:
        """Annotate the lines of a batch; a tombstone stays as it is."""
        lines, documents, digests, tombstones, _ = pending
        decisions = self.stages.decisions(documents, digests, claimed.live)
        encode = self.lines.encode
        annotated = [
            encode(line, document, decision)
            for line, document, decision in zip(lines, documents, decisions, strict=True)
        ]
        for place, value in reversed(tombstones):
            annotated.insert(place, value)
        annotated.append(b"")
        duplicates = [d for d in decisions if d.status is not Status.ORIGINAL]
        statuses = Counter(decision.status for decision in duplicates)
        statuses[Status.ORIGINAL] = len(decisions) - len(duplicates)
        copies = Counter((copy.duplicate_id, copy.original_id) for copy in duplicates)
        comparison = self._compare(pending, decisions, claimed)
        joined = b"\n".join(annotated)
        return Annotated(joined, statuses, list(copies.items()), len(tombstones), comparison)

    def _compare(
        self, pending: Pending, live: Sequence[Decision], claimed: Claimed
    ) -> Comparison | None:
        """Hold the decisions against the shadow's, if there is one."""
        if self.shadow is None or claimed.shadow is None:
            return None
        shadow = self.shadow.decisions(pending.documents, pending.shadow_digests, claimed.shadow)
        comparison = Comparison.of(self.stages.settings, self.shadow.settings)
        comparison.add(pending.documents, live, shadow)
        return comparison

    def _refuse(self, line: Line, poison: Poison) -> bytes:
        if not self._set_aside:
            msg = (
                f"{line.name} is not a document: {poison.detail} Correct it, or set such lines "
                f"aside with --dead-letters FILE."
            )
            raise InputError(msg)
        try:
            value = line.value.decode()
        except UnicodeDecodeError:
            value = line.value.decode("latin-1")
        letter = DeadLetter(line.source, poison.reason, poison.detail, value)
        return msgspec.json.encode(letter) + b"\n"
