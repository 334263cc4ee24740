"""The main job without a server: lines of documents in, annotated lines out, in order."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ParamSpec, Protocol, TypeVar

import msgspec

from stream_dedup.errors import ServiceError
from stream_dedup.index.base import Attachment, Index, IndexBatch
from stream_dedup.index.revisions import Answers, Reviser
from stream_dedup.outage import Outage
from stream_dedup.settings import Settings
from stream_dedup.shadow import Comparison
from stream_dedup.stream.files import CHUNK_BYTES, CHUNK_LINES, Chunk
from stream_dedup.stream.patience import Patience
from stream_dedup.stream.stages import Annotated, Claimed, Copied, LineStages, Prepared
from stream_dedup.types import DocumentId, Status

log = logging.getLogger(__name__)

#: Groups that a summary names.
_LARGEST = 5

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")

#: Lines that are decided, and made durable in a state file, together.
Batch = Sequence[Chunk]
Claim = Callable[[Prepared], Claimed]


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
        tombstones: lines that had documents forgotten.
        late: documents later than ``lateness``; some of their originals may have expired.
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
    tombstones: int
    late: int
    largest_groups: list[Group]
    seconds: float
    documents_per_second: int
    configuration: str


class Pool(Protocol):
    """Carries out the stages around the index, here or in other processes."""

    def walk(self, batches: Iterable[Batch], claim: Claim) -> Iterator[Annotated]:
        """Prepare, claim and finish batches, in order.

        An error leaves everything before its batch claimed and handed out.

        Raises:
            InputError: a line is no document, or its input cannot be read.
            ServiceError: from ``claim``.
        """


class Here:
    """Carries out the stages in this process."""

    def __init__(self, stages: LineStages) -> None:
        self._stages = stages

    def walk(self, batches: Iterable[Batch], claim: Claim) -> Iterator[Annotated]:
        """Carry out one batch after another (see ``Pool.walk``)."""
        for batch in batches:
            prepared, pending = self._stages.prepare(batch)
            yield self._stages.finish(pending, claim(prepared))


class Run:
    """Annotates lines with an index.

    Args:
        index: decides.
        pool: carries out the stages around it.
        write: takes annotated lines.
        set_aside: takes lines that are no documents, as JSON, if the pool lets them pass.
        settings: what becomes of a new text under an old id; the defaults if left out.
        shadow: decides the same documents a second time, for a pool that prepares them for it;
            what becomes of a new text is the same there.

    Attributes:
        comparison: the decisions beside those of the shadow; None before there are any.
    """

    def __init__(
        self,
        index: Index,
        pool: Pool,
        write: Callable[[bytes | memoryview], object],
        set_aside: Callable[[bytes], object] | None = None,
        settings: Settings | None = None,
        *,
        shadow: Index | None = None,
    ) -> None:
        self._index = index
        self.comparison: Comparison | None = None
        self._live = _Side(index, settings or Settings())
        self._shadow = None if shadow is None else _Side(shadow, settings or Settings())
        self._pool = pool
        self._write = write
        self._set_aside = set_aside
        self._started = time.perf_counter()
        self._statuses: Counter[Status] = Counter()
        self._copies: Counter[Copied] = Counter()
        self._dead_letters = 0
        self._tombstones = 0
        self._late_before = index.late

    def annotate(self, chunks: Iterable[Chunk]) -> None:
        """Annotate every line, in order.

        Raises:
            InputError: a line is no document, and there is nowhere to set it aside.
            ServiceError: the index stays out of reach.
        """
        for annotated in self._pool.walk(gather(chunks), self._claim):
            self._write(annotated.lines)
            self._statuses.update(annotated.statuses)
            self._copies.update(dict(annotated.copies))
            self._tombstones += annotated.tombstones
            if self.comparison is None:
                self.comparison = annotated.comparison
            elif annotated.comparison is not None:
                self.comparison.merge(annotated.comparison)
        self._live.settle()
        if self._shadow is not None:
            self._shadow.settle()

    def summary(self, configuration: str) -> Summary:
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
            tombstones=self._tombstones,
            late=self._index.late - self._late_before,
            largest_groups=[Group(*group, documents=copies + 1) for group, copies in largest],
            seconds=round(seconds, 3),
            documents_per_second=round(documents / max(seconds, 1e-9)),
            configuration=configuration,
        )

    def _claim(self, prepared: Prepared) -> Claimed:
        if self._set_aside is not None:
            for letter in prepared.dead_letters:
                self._set_aside(letter)
        self._dead_letters += len(prepared.dead_letters)
        live = self._live.claim(prepared.batch, prepared.tombstones)
        if self._shadow is None or prepared.shadow is None:
            return Claimed(live)
        return Claimed(live, self._shadow.claim(prepared.shadow, prepared.tombstones))


class _Side:
    """One of the indexes of a run."""

    def __init__(self, index: Index, settings: Settings) -> None:
        self._index = index
        self._reviser = Reviser(index, settings)

    def claim(self, batch: IndexBatch, tombstones: Sequence[tuple[int, DocumentId]]) -> Answers:
        """Forget what the batch before replaced, then decide a batch in order.

        What tombstones name is forgotten between the documents around them.
        """
        self.settle()
        claim = self._reviser.claim
        if not tombstones:
            return _patiently(claim, batch)
        attachments: list[Attachment | None] = []
        revised: list[bytes | None] = []
        for end, document_id in [*tombstones, (len(batch), None)]:
            answers = _patiently(claim, batch.rows(range(len(attachments), end)))
            attachments += answers.attachments
            revised += answers.revised
            if document_id is not None:
                _patiently(self._index.forget, [document_id])
        return Answers(attachments, revised)

    def settle(self) -> None:
        """Forget what revisions have replaced."""
        _patiently(self._reviser.settle)


def _patiently(
    act: Callable[_Given, _Result], *args: _Given.args, **named: _Given.kwargs
) -> _Result:
    """Do something again and again while the index is away."""
    patience = Patience(time)
    outage = Outage(log, "the index")
    while True:
        try:
            done = act(*args, **named)
        except ServiceError as error:
            outage.failed(error)
            patience.wait(error)
        else:
            outage.ended()
            return done


def gather(chunks: Iterable[Chunk]) -> Iterator[Batch]:
    """Put chunks together as long as a batch has no more lines than one chunk may have."""
    batch: list[Chunk] = []
    lines = size = 0
    for chunk in chunks:
        if batch and lines + len(chunk.lines) > CHUNK_LINES:
            yield batch
            batch, lines, size = [], 0, 0
        batch.append(chunk)
        lines += len(chunk.lines)
        size += chunk.bytes
        # At once, not when the next chunk has come: standard input may take its time.
        if lines == CHUNK_LINES or size >= CHUNK_BYTES:
            yield batch
            batch, lines, size = [], 0, 0
    if batch:
        yield batch
