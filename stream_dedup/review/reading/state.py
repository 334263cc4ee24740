"""Shows an embedded state: its originals, or documents as they are decided against it.

A state file holds the ids, times and fingerprints of originals, and no texts. So without documents
the originals are shown without texts; with documents each of these is shown with its text, as the
state says what it is: an original of it, a duplicate of one, or new to it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from stream_dedup.index.base import duplicate_id
from stream_dedup.query import Answer, Query, Question, open_state
from stream_dedup.review.reading.annotated import Shown, ShownFields, seen, undated
from stream_dedup.review.reading.file import WholeFiles, chunks_of
from stream_dedup.review.reading.source import Part
from stream_dedup.review.seen import Seen
from stream_dedup.settings import Settings
from stream_dedup.stream.files import Chunk
from stream_dedup.stream.lines import JsonLines
from stream_dedup.stream.poison import Poison
from stream_dedup.types import Decision, Document, Status


class AskedState:
    """A state file that is asked by several threads."""

    def __init__(self, settings: Settings, path: Path) -> None:
        """Load a state file.

        Raises:
            StateError: the file is not there, is in use by a run, or is not a state file.
            ConfigurationMismatch: it was made with other fingerprint settings.
        """
        self.path = path
        self.settings = settings
        self._index = open_state(settings, path)
        self._query = Query(settings, self._index)
        self._asking = threading.Lock()

    def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """Answer each question on its own."""
        with self._asking:
            return self._query.ask(questions)

    def decide(self, documents: Sequence[Document]) -> list[Decision]:
        """Say of each document on its own what would be decided about it."""
        with self._asking:
            return self._query.decide(documents)

    def originals(self) -> Iterator[list[tuple[Document, Decision]]]:
        """Read its originals, some at a time; their texts are unknown."""
        for batch in self._index.read_originals():
            yield [
                (
                    Document(identity, "", time=time or None),
                    Decision(
                        Status.ORIGINAL,
                        duplicate_id(identity, digest),
                        identity,
                        self.settings.method,
                        self._query.configuration,
                    ),
                )
                for identity, digest, time in zip(
                    batch.ids, batch.prints.digests, batch.times.tolist(), strict=True
                )
            ]


class State(WholeFiles):
    """The originals of a state file, or documents as they are decided against it."""

    def __init__(self, state: AskedState, documents: Sequence[Path]) -> None:
        """Show ``documents``, JSON lines; or, without any, the originals of the state."""
        super().__init__([state.path, *documents])
        self._state = state
        self._documents = documents
        self._lines = JsonLines(undated(state.settings))
        self._shown = ShownFields(state.settings)
        self._met: set[str] = set()

    @property
    def identity(self) -> str:
        """The paths, sizes and times of the files."""
        return f"state {super().identity}"

    def _parts(self) -> Iterator[Part]:
        if self._documents:
            yield from map(self._part, chunks_of(self._documents, self._state.settings))
            return
        for some in self._state.originals():
            originals = [
                seen(document, decision, Shown("", ""))._replace(text=None)
                for document, decision in some
            ]
            yield Part(originals, Counter(), [])

    def _part(self, chunk: Chunk) -> Part:
        passed_over: Counter[str] = Counter()
        documents: list[Document] = []
        shown: list[Shown] = []
        for line in chunk.parsed():
            try:
                document = self._lines.decode(line)
                shown.append(self._shown.read(line.value))
            except Poison as poison:
                passed_over[poison.reason.value] += 1
            else:
                # The absolute path of a line is nobody's business; its name is enough.
                documents.append(msgspec.structs.replace(document, source=line.name))
        decisions = self._state.decide(documents)
        decided = zip(documents, decisions, shown, strict=True)
        return Part([self._seen(*one) for one in decided], passed_over, [])

    def _seen(self, document: Document, decision: Decision, shown: Shown) -> Seen:
        """Tell an original of the state from its copies: it comes first and has its id."""
        is_itself = (
            decision.status is Status.EXACT_DUPLICATE
            and decision.original_id == document.id
            and decision.duplicate_id not in self._met
        )
        if is_itself:
            self._met.add(decision.duplicate_id)
            decision = Decision(
                Status.ORIGINAL,
                decision.duplicate_id,
                decision.original_id,
                decision.method,
                decision.configuration,
            )
        return seen(document, decision, shown)
