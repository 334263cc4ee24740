"""Several workers on one real Redis at once: the invariants hold, whoever comes first."""

from __future__ import annotations

import random
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import pytest

from stream_dedup import Decision, Deduplicator, Document, Settings, Status
from stream_dedup.generate import StreamShape, generate
from stream_dedup.index.audit import audit
from stream_dedup.index.redis import RedisIndex

WORKERS = 4


def decide_side_by_side(settings: Settings, shares: list[list[Document]]) -> list[list[Decision]]:
    """Give each worker a connection, a thread and its documents, in small batches."""

    def work(documents: list[Document]) -> list[Decision]:
        stream = iter(documents)
        with Deduplicator(settings, index=RedisIndex.connect(settings)) as deduplicator:
            decided: list[Decision] = []
            while batch := list(islice(stream, 20)):
                decided += deduplicator.decide(batch)
            return decided

    with ThreadPoolExecutor(len(shares)) as pool:
        return list(pool.map(work, shares))


@pytest.mark.parametrize("partitions", [1, 16])
def test_copies_that_arrive_at_once_have_one_original(redis_url: str, partitions: int) -> None:
    settings = Settings(redis_url=redis_url, partitions=partitions)
    shape = StreamShape(documents=1200, duplicate_share=0.75, edits=1, words=200, distance=12)
    stream = list(generate(shape))
    shares: list[list[Document]] = [[] for _ in range(WORKERS)]
    for number, made in enumerate(stream):
        document = Document(made.id, made.text, source=f"topic/0/{number}")
        shares[number % WORKERS].append(document)

    decided = decide_side_by_side(settings, shares)

    groups: dict[str, list[Decision]] = defaultdict(list)
    names: dict[str, set[str]] = defaultdict(set)
    truth = {made.id: made.truth.group for made in stream if made.truth}
    for documents, decisions in zip(shares, decided, strict=True):
        for document, decision in zip(documents, decisions, strict=True):
            groups[truth[str(document.id)]].append(decision)
            names[decision.duplicate_id].add(truth[str(document.id)])
    assert audit(settings).violations == []
    for decisions in groups.values():
        assert len({decision.duplicate_id for decision in decisions}) == 1
        assert sum(decision.status is Status.ORIGINAL for decision in decisions) == 1
    assert all(len(found) == 1 for found in names.values())


def test_the_same_records_at_several_workers_get_the_same_answers(redis_url: str) -> None:
    settings = Settings(redis_url=redis_url, partitions=4)
    shape = StreamShape(documents=300, duplicate_share=0.5, edits=1, words=200)
    documents = [Document(d.id, d.text, source=f"topic/0/{d.id}") for d in generate(shape)]
    shares = [list(documents) for _ in range(WORKERS)]
    for number, share in enumerate(shares):
        random.Random(number).shuffle(share)

    decided = decide_side_by_side(settings, shares)

    answers: dict[str, set[tuple[Status, str]]] = defaultdict(set)
    for share, decisions in zip(shares, decided, strict=True):
        for document, decision in zip(share, decisions, strict=True):
            answers[document.source].add((decision.status, decision.duplicate_id))
    assert {len(found) for found in answers.values()} == {1}
    assert audit(settings).violations == []


def test_nothing_of_a_duplicate_stays_in_the_index(redis_url: str) -> None:
    settings = Settings(redis_url=redis_url)
    shape = StreamShape(documents=500, duplicate_share=0.6, edits=1, words=200)
    documents = [Document(d.id, d.text, source=d.id) for d in generate(shape)]

    with Deduplicator(settings, index=RedisIndex.connect(settings)) as deduplicator:
        decisions = deduplicator.decide(documents)

    originals = sum(decision.status is Status.ORIGINAL for decision in decisions)
    found = audit(settings)
    assert found.originals == originals
    assert found.entries == originals * len(found.tables)
    assert (found.pending, found.void, found.unknown_entries) == (0, 0, 0)
