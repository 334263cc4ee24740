"""The index by brute force: every document against every original, one after another."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType

import numpy as np

from stream_dedup import Choice, Decision, Document, Settings, Status, VerifyBy
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.matching_settings import MEASURES
from stream_dedup.types import DocumentId

#: Status and original id: what an index decides about a document.
Answer = tuple[Status, str | int]


def decide_by_brute_force(
    settings: Settings,
    documents: Sequence[Document],
    *,
    forgotten: Mapping[int, Collection[DocumentId]] = MappingProxyType({}),
    batch_ends: Collection[int] = (),
    bounded: bool = False,
) -> list[Answer]:
    """Decide as ``stream_dedup.index.base`` promises.

    Args:
        settings: all settings.
        documents: the stream.
        forgotten: ids that are forgotten before the document of this number.
        batch_ends: numbers of the documents that batches begin with; renewals count from there on.
        bounded: whether a document has no more candidates than ``max_candidates`` leaves it.
    """
    pairs = _Pairs(settings, documents)
    originals: list[int] = []
    answers: list[Answer] = []
    renewed: dict[int, float] = {}
    for row, document in enumerate(documents):
        if row in batch_ends:
            pairs.renew(renewed)
        gone = forgotten.get(row, ())
        originals = [other for other in originals if documents[other].id not in gone]
        found = None
        if not pairs.prints.empty[row]:
            met = pairs.candidates(row, originals) if bounded else originals
            candidates = [other for other in met if pairs.near(row, other)]
            # The first of several equally preferred is the one registered first.
            found = min(candidates, key=partial(pairs.preference, row), default=None)
            if found is None:
                originals.append(row)
        if found is None:
            answers.append((Status.ORIGINAL, document.id))
            continue
        original = documents[found]
        renewed[found] = max(renewed.get(found, 0.0), document.time or 0.0)
        exact = pairs.prints.digests[row] == pairs.prints.digests[found]
        again = (original.source, original.id) == (document.source, document.id)
        if exact and again:
            answers.append((Status.ORIGINAL, document.id))
        else:
            status = Status.EXACT_DUPLICATE if exact else Status.NEAR_DUPLICATE
            answers.append((status, original.id))
    return answers


class _Pairs:
    """Compares documents two by two."""

    def __init__(self, settings: Settings, documents: Sequence[Document]) -> None:
        self._settings = settings
        self._documents = documents
        fingerprinter = Fingerprinter(settings)
        self._verifier = fingerprinter.verifier
        self.prints = fingerprinter.fingerprint([document.text for document in documents])
        self._renewed: dict[int, float] = {}

    def renew(self, renewed: Mapping[int, float]) -> None:
        """Let originals be near until a window after these times."""
        if self._settings.renew:
            self._renewed = dict(renewed)

    def candidates(self, row: int, originals: Sequence[int]) -> list[int]:
        """Return those of some originals, oldest first, that are candidates of a document."""
        keys, most = self.prints.keys, self._settings.max_candidates
        under = [
            [one for one in originals if keys[one][t] == keys[row][t]]
            for t in range(len(keys[row]))
        ]
        share = max(1, most // len(under))
        if 2 * sum(len(key) > share for key in under) <= len(under):
            return sorted({one for key in under for one in key[:share]})
        ranks = {one: min(k.index(one) for k in under if one in k) for one in set().union(*under)}
        return sorted(sorted(ranks, key=lambda one: (ranks[one], one))[: max(most, len(under))])

    def near(self, row: int, other: int) -> bool:
        time, begins = self._documents[row].time or 0.0, self._documents[other].time or 0.0
        ends = max(begins, self._renewed.get(other, begins))
        window = self._settings.window
        if window is not None and not begins - window <= time <= ends + window:
            return False
        shared = bool((self.prints.keys[row] == self.prints.keys[other]).any())
        return shared and self._compare(row, other)[1]

    def preference(self, row: int, other: int) -> float:
        original = self._documents[other]
        match self._settings.choice:
            case Choice.NEAREST:
                score = self._compare(row, other)[0]
                return score if self._settings.by_hamming else -score
            case Choice.EARLIEST:
                return original.time or 0.0
            case Choice.PREFERRED:
                return math.inf if original.rank is None else original.rank
            case _:
                return 0.0

    def _compare(self, row: int, other: int) -> tuple[float, bool]:
        left, right = (self.prints.evidence.rows(np.array([side])) for side in (row, other))
        scores, near = self._verifier.compare(left, right)
        return float(scores[0]), bool(near[0])


def answers_of(decisions: Sequence[Decision]) -> list[Answer]:
    """Return of real decisions what the model decides."""
    return [(decision.status, decision.original_id) for decision in decisions]


def awkward_settings(rng: random.Random) -> Settings:
    """Draw settings that make many documents near, and few."""
    return Settings.model_validate(
        {
            "method": rng.choice(["minhash", "minhash", "simhash", "fused"]),
            "threshold": rng.choice([0.5, 0.6, 0.8]),
            "hamming": rng.choice([3, 6, 8]),
            "window": rng.choice([None, None, 30.0]),
            "partitions": rng.choice([1, 7]),
            "expected_originals": rng.choice([1_000, 1_000_000]),
        }
    )


def verifying_settings(rng: random.Random, verify_by: VerifyBy, choice: Choice) -> Settings:
    """Draw settings that make many documents near by this evidence."""
    measure = rng.choice(MEASURES[verify_by])
    thresholds = {"threshold": 0.3, "verify_threshold": rng.choice([0.4, 0.6, 0.8])}
    if verify_by is VerifyBy.SKETCH:
        thresholds = {"threshold": rng.choice([0.4, 0.6]), "hamming": rng.choice([6, 8])}
    drawn = awkward_settings(rng).model_dump() | thresholds
    chosen = {"verify_by": verify_by, "measure": measure, "choice": choice}
    return Settings.model_validate(drawn | chosen)


def awkward_stream(rng: random.Random, count: int) -> list[Document]:
    """Draw documents: chains of edits, copies, repeats, same ids, and texts with nothing in them.

    Copies are made of copies, so that near is often not transitive.
    """
    documents: list[Document] = []
    for number in range(count):
        text = _text(rng, documents)
        document_id: str | int = number if rng.random() < 0.5 else str(number)
        if documents and rng.random() < 0.05:
            document_id = rng.choice(documents).id
        time = float(rng.randrange(100))
        rank = rng.choice([None, 0.0, 1.0, 1.0, 2.5])
        documents.append(Document(document_id, text, time, source=f"input:{number}", rank=rank))
        if rng.random() < 0.03:
            documents.append(rng.choice(documents))
    return documents


def batches(rng: random.Random, documents: Sequence[Document]) -> Iterator[Sequence[Document]]:
    """Cut a stream into batches of awkward sizes."""
    start = 0
    while start < len(documents):
        end = start + rng.choice([1, 3, 10, 50, 700])
        yield documents[start:end]
        start = end


def _text(rng: random.Random, documents: Sequence[Document]) -> str:
    if rng.random() < 0.05:
        return rng.choice(["!!!", "??", "", "  ", "😀", "One", "one"])
    if documents and rng.random() < 0.7:
        words = rng.choice(documents[-12:]).text.split()
        for _ in range(rng.choice([0, 0, 1, 1, 2, 3, 5]) if words else 0):
            words[rng.randrange(len(words))] = f"x{rng.randrange(9999)}"
        return " ".join(words)
    return " ".join(
        f"w{rng.randrange(300)}" for _ in range(rng.choice([0, 1, 2, 3, 8, 20, 40, 60]))
    )
