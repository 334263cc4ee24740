"""Is a text known? What is its original, how similar, why? Asked of an index, without a trace."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from pydantic import BaseModel, Field

from stream_dedup.deduplicator import Stages
from stream_dedup.explain import Why, tell_why
from stream_dedup.index.base import Attachment, IndexBatch, LookUp, Matcher
from stream_dedup.index.candidates import Bound, Candidates, attach
from stream_dedup.index.description import describe
from stream_dedup.index.memory import MemoryIndex
from stream_dedup.index.revisions import Answers
from stream_dedup.index.state import StateFile
from stream_dedup.index.state_reading import Reading
from stream_dedup.settings import Settings
from stream_dedup.types import Choice, Decision, Document, DocumentId, Measure, Method, Side, Status

#: Where a text that is asked about stands: in no stream, so that it is never taken for a document
#: of the index that has come again.
_NOWHERE = "\0query"

#: Texts looked up together; bounds what is held of the originals that they share keys with.
_STEP = 256


class Standing(StrEnum):
    """What a text is to an index."""

    EXACT_DUPLICATE = "exact_duplicate"
    NEAR_DUPLICATE = "near_duplicate"
    NEW = "new"


class Answer(BaseModel, frozen=True):
    """What an index knows of a text.

    The fields after `configuration` are given for a known text only, as far as they apply.
    """

    id: DocumentId | None = Field(None, description="The id that the text was asked about by.")
    known: bool = Field(description="Whether the text is a duplicate of an original of the index.")
    status: Standing = Field(
        description="`exact_duplicate`: its normalised text equals its original's. "
        "`near_duplicate`: it is near enough. `new`: it would be an original."
    )
    method: Method = Field(description="How texts are fingerprinted.")
    configuration: str = Field(
        description="Version of the fingerprint configuration, 16 hexadecimal digits.",
        examples=["79f7c85549efdeff"],
    )
    original_id: DocumentId | None = Field(
        None, description="Document id of its original, in the type it came in."
    )
    duplicate_id: str | None = Field(
        None,
        description="Name of its duplicate group, 24 hexadecimal digits.",
        examples=["bd818d85f1b75295b320b003"],
    )
    similarity: float | None = Field(
        None,
        description="The measure that decided, from 0 to 1: by default the estimated resemblance. "
        "Not given where SimHash alone decides.",
    )
    hamming_distance: int | None = Field(
        None, description="Differing fingerprint bits, where the method has them."
    )
    measure: Measure | None = Field(
        None, description="Name of that measure, where it is another than resemblance."
    )
    contained: Side | None = Field(
        None, description="Which is contained in the other, where the measure is containment."
    )
    why: Why | None = Field(None, description="Why this is so; on request.")

    def json_line(self) -> str:
        """Return it as a JSON object, without what does not apply."""
        return self.model_dump_json(exclude_none=True)


class Question(NamedTuple):
    """A text that is asked about.

    Attributes:
        document: the text. Its source does not matter; without a time, it is asked about as of now.
        id: what the answer is to be known by.
        explain: whether to say why.
    """

    document: Document
    id: DocumentId | None = None
    explain: bool = False


class Query(Stages):
    """Asks an index about texts. Nothing is registered, nothing written.

    Attributes:
        index: what is asked.
    """

    def __init__(self, settings: Settings, index: LookUp) -> None:
        """Ask an index that has these settings.

        Raises:
            SettingsError: a file that the settings name cannot be used.
        """
        super().__init__(settings)
        self.index = index
        self._matcher = Matcher(self.fingerprinter.verifier, settings.window, settings.choice)
        tables = len(self.fingerprinter.method.prefix_bits)
        self._step = min(_STEP, Bound(settings.max_candidates, tables).look_up_step)

    def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """Answer each question on its own.

        Raises:
            ServiceError: the index is out of reach; the same call can be made again.
        """
        answers: list[Answer] = []
        for start in range(0, len(questions), self._step):
            answers += self._ask(questions[start : start + self._step])
        return answers

    def decide(self, documents: Sequence[Document]) -> list[Decision]:
        """Say of each document on its own what would be decided about it.

        An original of the index is an exact duplicate of itself.

        Raises:
            ServiceError: the index is out of reach; the same call can be made again.
        """
        decisions: list[Decision] = []
        for start in range(0, len(documents), self._step):
            decisions += self._decide(documents[start : start + self._step])[-1]
        return decisions

    def _decide(
        self, documents: Sequence[Document]
    ) -> tuple[IndexBatch, Candidates, Sequence[Attachment | None], list[Decision]]:
        now = time.time()
        unplaced = [_unplaced(document, now) for document in documents]
        batch = self.prepare(unplaced)
        candidates = self.index.candidates(batch)
        attachments = attach(batch, candidates, self._matcher)
        decisions = self.decisions(unplaced, batch.prints.digests, Answers(attachments))
        return batch, candidates, attachments, decisions

    def _ask(self, questions: Sequence[Question]) -> list[Answer]:
        documents = [question.document for question in questions]
        batch, candidates, attachments, decisions = self._decide(documents)
        answers = []
        for row, (question, decision) in enumerate(zip(questions, decisions, strict=True)):
            why = None
            if question.explain:
                alone = _alone(batch, candidates, row)
                why = tell_why(self, *alone, attachments[row])
            answers.append(_answer(question, decision, why))
        return answers


def open_state(settings: Settings, path: Path) -> MemoryIndex:
    """Load the originals of a state file, which is not changed and is free again afterwards.

    Raises:
        StateError: the file is not there, is in use by a run, or is not a state file.
        ConfigurationMismatch: it was made with other fingerprint settings.
    """
    stages = Stages(settings)
    keeps_ranks = settings.choice is Choice.PREFERRED
    reading = Reading(path)
    stored = StateFile(
        path,
        stages.fingerprinter.index_version,
        keeps_ranks=keeps_ranks,
        described=describe(stages.fingerprinter.described),
        reading=reading,
    )
    with closing(stored):
        index = MemoryIndex(stages.fingerprinter.verifier, settings, stored)
    reading.check()
    return index


def open_index(settings: Settings, state: Path | None) -> LookUp:
    """Open a state file, or the index in Redis, to be asked.

    Raises:
        StateError: the state file cannot be used.
        ServiceError: Redis is out of reach, or has no such index.
        ConfigurationMismatch: the index was made with other fingerprint settings.
    """
    if state is not None:
        return open_state(settings, state)
    # Imported here because a state file does without the client.
    from stream_dedup.index.look_up import RedisLookUp  # noqa: PLC0415

    return RedisLookUp.connect(settings)


def _unplaced(document: Document, now: float) -> Document:
    time_ = now if document.time is None else document.time
    return msgspec.structs.replace(document, source=_NOWHERE, time=time_)


def _alone(batch: IndexBatch, candidates: Candidates, row: int) -> tuple[IndexBatch, Candidates]:
    """Return one document of a batch and its candidates."""
    pairs = np.flatnonzero(candidates.rows == row)
    own = candidates.some(pairs)._replace(rows=np.zeros(len(pairs), np.int64))
    return batch.rows(range(row, row + 1)), own


def _answer(question: Question, decision: Decision, why: Why | None) -> Answer:
    known = decision.status is not Status.ORIGINAL
    found = {}
    if known:
        names = ("original_id", "duplicate_id", "similarity", "hamming_distance", "measure")
        found = {name: getattr(decision, name) for name in (*names, "contained")}
    return Answer(
        id=question.id,
        known=known,
        status=Standing(decision.status) if known else Standing.NEW,
        method=decision.method,
        configuration=decision.configuration,
        why=why,
        **found,
    )
