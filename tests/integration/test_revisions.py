"""One contract, every index: what is forgotten by id, and which text takes the place of which."""

from __future__ import annotations

import random

import pytest

from stream_dedup import Decision, Deduplicator, Document, Settings, Status
from stream_dedup.types import Revisions
from tests.integration.test_index import Make, make
from tests.models.sequential import awkward_stream, batches

__all__ = ["make"]

WORDS = [f"w{number}" for number in range(500)]


def text(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=30))


def decide(deduplicator: Deduplicator, *documents: Document) -> list[Decision]:
    return deduplicator.decide(documents)


def test_what_is_forgotten_matches_nothing_any_more(make: Make) -> None:
    documents = awkward_stream(random.Random(4), 150)
    with make(Settings(threshold=0.5)) as deduplicator:
        first = [
            d
            for batch in batches(random.Random(1), documents)
            for d in decide(deduplicator, *batch)
        ]
        ids = list(dict.fromkeys(document.id for document in documents))
        counts = deduplicator.forget(ids)
        again = deduplicator.forget(ids)
        left = deduplicator.index.named(ids)
        fresh = [
            Document(f"new {number}", document.text, document.time, source=f"new {number}")
            for number, document in enumerate(documents)
        ]
        second = decide(deduplicator, *fresh)

    # Empty texts are originals that are never registered.
    registered = [d for d, one in zip(first, documents, strict=True) if one.text.strip()]
    assert sum(counts) == sum(d.status is Status.ORIGINAL for d in set_of(registered))
    assert not any(again)
    assert not any(left)
    assert all(str(decision.original_id).startswith("new") for decision in second)


def set_of(decisions: list[Decision]) -> list[Decision]:
    """Leave out originals that came again."""
    return list({(d.duplicate_id, d.status): d for d in decisions}.values())


def test_an_id_and_a_text_forget_only_that_text(make: Make) -> None:
    rng = random.Random(1)
    documents = [Document("a", text(rng), source=str(number)) for number in range(3)]
    with make(Settings()) as deduplicator:
        decide(deduplicator, *documents)
        (named,) = deduplicator.index.named(["a"])

        counts = deduplicator.index.forget(["a", "b"], [named[1].digest, named[0].digest])
        (left,) = deduplicator.index.named(["a"])

    assert counts == [1, 0]
    assert left == [named[0], named[2]]


@pytest.mark.parametrize("revisions", Revisions)
def test_the_same_text_under_its_id_is_a_repeat_and_under_replay_itself(
    make: Make, revisions: Revisions
) -> None:
    rng = random.Random(2)
    first, other = text(rng), text(rng)
    stream = [
        Document("a", first, source="0"),
        Document("a", first, source="1"),
        Document("b", other, source="2"),
    ]
    with make(Settings(revisions=revisions)) as deduplicator:
        decisions = decide(deduplicator, *stream)
        deduplicator.settle()
        again = decide(deduplicator, *stream)

    assert [d.status for d in decisions] == [
        Status.ORIGINAL,
        Status.EXACT_DUPLICATE,
        Status.ORIGINAL,
    ]
    assert [d.original_id for d in decisions] == ["a", "a", "b"]
    assert again == decisions
    assert not any(d.revises for d in decisions)


@pytest.mark.parametrize("revisions", Revisions)
def test_a_batch_that_was_not_published_gets_the_same_answers(
    make: Make, revisions: Revisions
) -> None:
    rng = random.Random(3)
    with make(Settings(revisions=revisions, threshold=0.5)) as deduplicator:
        seen: list[Document] = []
        for start in range(0, 200, 20):
            documents = [draw(rng, seen, start + row) for row in range(20)]
            seen += documents
            first = decide(deduplicator, *documents)
            deduplicator.discard()
            assert decide(deduplicator, *documents) == first
            deduplicator.settle()
            linked = sum(decision.revises is not None for decision in first)
            assert bool(linked) == (revisions is not Revisions.OFF)


def draw(rng: random.Random, seen: list[Document], number: int) -> Document:
    """Draw one of few ids, and a text that is new, old, or near to an old one."""
    words = (rng.choice(seen).text if seen and rng.random() < 0.6 else text(rng)).split()
    for _ in range(rng.randrange(3)):
        words[rng.randrange(len(words))] = f"x{rng.randrange(9999)}"
    return Document(rng.randrange(12), " ".join(words), float(number), source=str(number))


def test_with_replace_one_text_of_an_id_stays(make: Make) -> None:
    rng = random.Random(5)
    versions = [Document("a", text(rng), float(number), str(number)) for number in range(4)]
    with make(Settings(revisions=Revisions.REPLACE)) as deduplicator:
        linked = []
        for version in versions:
            linked += decide(deduplicator, version)
            deduplicator.settle()
        (named,) = deduplicator.index.named(["a"])
        (copy,) = decide(deduplicator, Document("b", versions[0].text, 9.0, "9"))

    assert [one.revises for one in linked] == [None, *(one.duplicate_id for one in linked[:-1])]
    assert [one.time for one in named] == [3.0]
    assert copy.status is Status.ORIGINAL
