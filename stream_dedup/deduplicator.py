"""The corridor: a batch of documents in, a decision for each out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from stream_dedup.errors import InputError
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.index.base import Attachment, Index, IndexBatch, duplicate_id, index_batch
from stream_dedup.index.description import describe
from stream_dedup.index.expiry import Swept
from stream_dedup.index.memory import MemoryIndex
from stream_dedup.index.revisions import Answers, Reviser
from stream_dedup.index.state import StateFile
from stream_dedup.settings import Settings
from stream_dedup.types import Choice, Decision, Document, DocumentId, Measure, Status


class Stages:
    """The stages before and after the index: pure, the same in every process.

    Attributes:
        settings: the settings in force.
        fingerprinter: makes fingerprints.
        configuration: version of the fingerprint configuration, 16 hexadecimal digits.
    """

    def __init__(self, settings: Settings) -> None:
        """Set up.

        Raises:
            SettingsError: a file that the settings name cannot be used.
        """
        self.settings = settings
        self.fingerprinter = Fingerprinter(settings)
        self.configuration = self.fingerprinter.configuration

    def prepare(self, documents: Sequence[Document]) -> IndexBatch:
        """Fingerprint a batch, ready to be claimed.

        Raises:
            InputError: a document has no time, but a window is set or the choice is ``earliest``.
        """
        self._check_times(documents)
        prints = self.fingerprinter.fingerprint(
            [document.text for document in documents], [document.origin for document in documents]
        )
        return index_batch(documents, prints, self.fingerprinter.id_seeds.identity)

    def decisions(
        self,
        documents: Sequence[Document],
        digests: Sequence[bytes],
        answers: Answers,
    ) -> list[Decision]:
        """Say what it means that documents with these text digests were answered so."""
        original, method, configuration = Status.ORIGINAL, self.settings.method, self.configuration
        decisions = [
            # Most are originals, and to call for each takes as long as to decide it.
            Decision(
                original, duplicate_id(document.id, digest), document.id, method, configuration
            )
            if attachment is None
            else self._duplicate(attachment)
            for document, digest, attachment in zip(
                documents, digests, answers.attachments, strict=True
            )
        ]
        for row, digest in enumerate(answers.revised):
            if digest is not None:
                revises = duplicate_id(documents[row].id, digest)
                decisions[row] = msgspec.structs.replace(decisions[row], revises=revises)
        return decisions

    def _check_times(self, documents: Sequence[Document]) -> None:
        if self.settings.window is not None:
            why = "a window is set"
        elif self.settings.choice is Choice.EARLIEST:
            why = "the choice is earliest"
        else:
            return
        for document in documents:
            if document.time is None:
                msg = (
                    f"Document {document.id!r} has no event time, but {why}. Give each document a "
                    f"time (--time-field), or leave that setting out."
                )
                raise InputError(msg)

    def _duplicate(self, attachment: Attachment) -> Decision:
        measure = self.settings.measure
        return Decision(
            Status.EXACT_DUPLICATE if attachment.exact else Status.NEAR_DUPLICATE,
            duplicate_id(attachment.original_id, attachment.digest),
            attachment.original_id,
            self.settings.method,
            self.configuration,
            similarity=attachment.score.similarity,
            hamming_distance=attachment.score.hamming_distance,
            measure=None if measure is Measure.RESEMBLANCE else measure,
            contained=attachment.score.contained,
        )


class Deduplicator(Stages):
    """Decides, for each document of a stream, whether it is an original or a duplicate.

    Attributes:
        index: where originals are registered.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        state: Path | None = None,
        index: Index | None = None,
        resumes: bool = False,
    ) -> None:
        """Set up with an index in memory, unless another is given.

        Args:
            settings: all settings; the defaults if left out.
            state: file that keeps the memory index between runs; made if it does not exist.
            index: an index of another kind, such as ``RedisIndex``; closed with this object.
            resumes: whether a stream that begins with the same document as one that was killed is
                that stream from its beginning. With a state file it then gets the same answers,
                whatever the first one removed from the file.

        Raises:
            SettingsError: a file that the settings name cannot be used.
            StateError: the state file cannot be used.
            ConfigurationMismatch: the state file was made with other fingerprint settings.
        """
        super().__init__(settings or Settings())
        if index is None:
            stored = None
            if state is not None:
                stored = StateFile(
                    state,
                    self.fingerprinter.index_version,
                    keeps_ranks=self.settings.choice is Choice.PREFERRED,
                    described=describe(self.fingerprinter.described),
                )
            verifier = self.fingerprinter.verifier
            index = MemoryIndex(verifier, self.settings, stored, resumes=resumes)
        self.index = index
        self._reviser = Reviser(index, self.settings)

    def decide(self, documents: Sequence[Document]) -> list[Decision]:
        """Decide a batch in order: each document is compared with all before it.

        Originals are registered on the way, so a batch is decided as if its documents came one by
        one. Larger batches (hundreds of documents) cost less for each. Where revisions replace
        what they revise, call ``settle`` when the decisions are in safety; the end of a ``with``
        statement does so too.

        Raises:
            InputError: a window is set and a document has no time.
            ServiceError: the index is out of reach; the same call can be made again.
        """
        batch = self.prepare(documents)
        return self.decisions(documents, batch.prints.digests, self._reviser.claim(batch))

    def forget(self, ids: Sequence[DocumentId]) -> list[int]:
        """Remove the originals that have these ids; return how many had each.

        Raises:
            ServiceError: the index is out of reach; the same call can be made again.
        """
        return self.index.forget(ids)

    def settle(self) -> None:
        """Forget the originals that revisions decided so far replace.

        Raises:
            ServiceError: the index is out of reach; the same call can be made again.
        """
        self._reviser.settle()

    def discard(self) -> None:
        """Say that the latest decisions are void, and their documents will come again."""
        self._reviser.discard()

    def sweep(self) -> Swept:
        """Remove originals whose time is over.

        Raises:
            ServiceError: the index is out of reach.
        """
        return self.index.sweep()

    def close(self) -> None:
        """Release the index."""
        self.index.close()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close; after an error a state file stays as it is, for the same stream to begin anew."""
        try:
            if kind is None:
                self.settle()
            elif isinstance(self.index, MemoryIndex):
                self.index.abandon()
        finally:
            self.close()
