"""The main job without a server: lines of documents in, annotated lines out, in order."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Protocol

import msgspec

from stream_dedup.deduplicator import Deduplicator
from stream_dedup.errors import InputError, ServiceError
from stream_dedup.stream.files import Line
from stream_dedup.stream.messages import Poison
from stream_dedup.stream.patience import Patience
from stream_dedup.types import Decision, Document, DocumentId, Status

log = logging.getLogger(__name__)

#: Lines decided, and made durable in a state file, together.
BATCH_LINES = 1024
#: Groups that a summary names.
_LARGEST = 5


class Group(msgspec.Struct, frozen=True):
    """A duplicate group in a summary."""

    duplicate_id: str
    original_id: DocumentId
    documents: int


class Summary(msgspec.Struct, frozen=True):
    """What a run found.

    Attributes:
        documents: documents decided.
        originals: of these, originals.
        exact_duplicates: of these, exact duplicates.
        near_duplicates: of these, near duplicates.
        dead_letters: lines set aside because they are no documents.
        largest_groups: the largest duplicate groups, original included, largest first.
        seconds: time taken.
        documents_per_second: rate.
        configuration: version of the fingerprint configuration.
    """

    documents: int
    originals: int
    exact_duplicates: int
    near_duplicates: int
    dead_letters: int
    largest_groups: list[Group]
    seconds: float
    documents_per_second: int
    configuration: str


class DeadLetter(msgspec.Struct, frozen=True):
    """A line that is no document, as it is set aside; ``value`` is Latin-1 if not UTF-8."""

    source: str
    reason: str
    detail: str
    value: str


class LineFormat(Protocol):
    """How documents stand in lines."""

    def decode(self, line: Line) -> Document:
        """Read one line.

        Raises:
            Poison: the line is no document.
        """

    def encode(self, line: Line, document: Document, decision: Decision) -> bytes:
        """Write one line back, annotated, without its ending."""


class Run:
    """Annotates lines with a deduplicator.

    Args:
        deduplicator: decides.
        lines: how documents stand in lines.
        write: takes annotated lines.
        set_aside: takes lines that are no documents, as JSON; without it they stop the run.
    """

    def __init__(
        self,
        deduplicator: Deduplicator,
        lines: LineFormat,
        write: Callable[[bytes], object],
        set_aside: Callable[[bytes], object] | None = None,
    ) -> None:
        self._deduplicator = deduplicator
        self._lines = lines
        self._write = write
        self._set_aside = set_aside
        self._started = time.perf_counter()
        self._statuses: Counter[Status] = Counter()
        self._copies: Counter[tuple[str, DocumentId]] = Counter()
        self._dead_letters = 0

    def annotate(self, lines: Iterable[Line]) -> None:
        """Annotate every line, in order.

        Raises:
            InputError: a line is no document, and there is nowhere to set it aside.
            ServiceError: the index stays out of reach.
        """
        stream = iter(lines)
        while batch := list(islice(stream, BATCH_LINES)):
            decoded = list(self._decoded(batch))
            decisions = self._decide([document for _, document in decoded])
            encode = self._lines.encode
            self._write(
                b"".join(
                    encode(line, document, decision) + b"\n"
                    for (line, document), decision in zip(decoded, decisions, strict=True)
                )
            )
            self._count(decisions)

    def summary(self) -> Summary:
        """Say what has been found so far."""
        seconds = time.perf_counter() - self._started
        documents = self._statuses.total()
        largest = self._copies.most_common(_LARGEST)
        return Summary(
            documents=documents,
            originals=self._statuses[Status.ORIGINAL],
            exact_duplicates=self._statuses[Status.EXACT_DUPLICATE],
            near_duplicates=self._statuses[Status.NEAR_DUPLICATE],
            dead_letters=self._dead_letters,
            largest_groups=[Group(*group, documents=copies + 1) for group, copies in largest],
            seconds=round(seconds, 3),
            documents_per_second=round(documents / max(seconds, 1e-9)),
            configuration=self._deduplicator.configuration,
        )

    def _decide(self, documents: Sequence[Document]) -> list[Decision]:
        patience = Patience(time)
        while True:
            try:
                return self._deduplicator.decide(documents)
            except ServiceError as error:
                log.warning("the index is out of reach, trying again: %s", error)
                patience.wait(error)

    def _decoded(self, batch: Iterable[Line]) -> Iterator[tuple[Line, Document]]:
        for line in batch:
            try:
                yield line, self._lines.decode(line)
            except Poison as poison:
                self._refuse(line, poison)

    def _refuse(self, line: Line, poison: Poison) -> None:
        if self._set_aside is None:
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
        self._set_aside(msgspec.json.encode(letter) + b"\n")
        self._dead_letters += 1

    def _count(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            self._statuses[decision.status] += 1
            if decision.status is not Status.ORIGINAL:
                self._copies[decision.duplicate_id, decision.original_id] += 1
