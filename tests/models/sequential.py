"""The index by brute force: every document against every original, one after another."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from stream_dedup import Decision, Document, Settings, Status
from stream_dedup.fingerprint.fingerprinter import Fingerprinter

#: Status and original id: what an index decides about a document.
Answer = tuple[Status, str | int]


def decide_by_brute_force(settings: Settings, documents: Sequence[Document]) -> list[Answer]:
    """Decide as ``stream_dedup.index.base`` promises."""
    fingerprinter = Fingerprinter(settings)
    prints = fingerprinter.fingerprint([document.text for document in documents])
    originals: list[int] = []
    answers: list[Answer] = []

    def near(row: int, other: int) -> bool:
        left, right = documents[row].time or 0.0, documents[other].time or 0.0
        if settings.window is not None and abs(left - right) > settings.window:
            return False
        shared = bool((prints.keys[row] == prints.keys[other]).any())
        sketches = prints.sketches[[row]], prints.sketches[[other]]
        return shared and bool(fingerprinter.method.compare(*sketches)[1][0])

    for row, document in enumerate(documents):
        found = None
        if not prints.empty[row]:
            found = next((other for other in originals if near(row, other)), None)
            if found is None:
                originals.append(row)
        if found is None:
            answers.append((Status.ORIGINAL, document.id))
            continue
        original = documents[found]
        exact = prints.digests[row] == prints.digests[found]
        again = (original.source, original.id) == (document.source, document.id)
        if exact and again:
            answers.append((Status.ORIGINAL, document.id))
        else:
            status = Status.EXACT_DUPLICATE if exact else Status.NEAR_DUPLICATE
            answers.append((status, original.id))
    return answers


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
        documents.append(Document(document_id, text, time, source=f"input:{number}"))
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
