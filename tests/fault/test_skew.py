"""Skew: one post copied everywhere at once, and many originals from one template."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import islice
from threading import Barrier
from typing import Any, NamedTuple

import numpy as np
import pytest

from stream_dedup import Decision, Deduplicator, Document, Settings, Status
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.generate import StreamShape, generate
from stream_dedup.index.base import index_batch
from stream_dedup.index.candidates import Bound
from stream_dedup.index.connection import connect
from stream_dedup.index.redis import RedisIndex
from tests.models.sequential import answers_of, decide_by_brute_force

WORKERS = 4
BATCH = 500
#: Copies of one post; ``benchmarks.skew`` takes 100,000.
COPIES = 20_000

#: Documents of one template share a key in many tables, and no two of them are near.
TEMPLATE = Settings(threshold=0.4)


def in_batches(documents: Sequence[Document], size: int) -> Iterator[list[Document]]:
    """Cut a stream."""
    stream = iter(documents)
    while batch := list(islice(stream, size)):
        yield batch


def decide_at_once(settings: Settings, documents: Sequence[Document]) -> list[Decision]:
    """Deal documents out to workers that all begin at the same moment."""
    together = Barrier(WORKERS)

    def work(share: Sequence[Document]) -> list[Decision]:
        with Deduplicator(settings, index=RedisIndex.connect(settings)) as deduplicator:
            together.wait()
            batches = in_batches(share, BATCH)
            return [decision for batch in batches for decision in deduplicator.decide(batch)]

    with ThreadPoolExecutor(WORKERS) as pool:
        shares = [documents[number::WORKERS] for number in range(WORKERS)]
        return [decision for decided in pool.map(work, shares) for decision in decided]


class Contents(NamedTuple):
    """What an index holds: how many table entries and which fate each claim has."""

    entries: Counter[bytes]
    fates: dict[bytes, bytes]


def read_index(settings: Settings) -> Contents:
    """Read every key of an index on one node."""
    contents = Contents(Counter(), {})
    client: Any = connect(settings)
    with closing(client):
        for key in client.scan_iter(match=f"{settings.redis_namespace}:{{*", count=1000):
            kind = key.rpartition(b"}:")[2][:1]
            if kind == b"t":
                contents.entries.update(client.zrange(key, 0, -1))
            elif kind == b"c":
                claims = client.hgetall(key).items()
                contents.fates.update((claim, value[:1]) for claim, value in claims)
    return contents


@pytest.mark.parametrize("partitions", [1, 16])
def test_copies_of_one_post_at_all_workers_have_one_original_and_add_nothing(
    redis_url: str, partitions: int
) -> None:
    settings = Settings(redis_url=redis_url, partitions=partitions)
    tables = len(Fingerprinter(settings).method.prefix_bits)
    # One changed word of 130 or more leaves copies near each other, whichever comes first.
    shape = StreamShape(
        documents=COPIES + 1, viral=1, viral_copies=COPIES, duplicate_share=0, edits=1, words=200
    )
    posts = [Document(made.id, made.text, source=made.id) for made in generate(shape)]
    first, later = posts[: COPIES // 2], posts[COPIES // 2 :]

    at_first = decide_at_once(settings, first)
    before = read_index(settings)
    decided = at_first + decide_at_once(settings, later)
    after = read_index(settings)

    statuses = Counter(decision.status for decision in decided)
    assert statuses[Status.ORIGINAL] == 1
    assert statuses[Status.NEAR_DUPLICATE] > COPIES // 3
    assert len({decision.duplicate_id for decision in decided}) == 1
    fates = Counter(before.fates.values())
    assert before.entries.total() == tables
    assert (fates[b"O"], fates[b"P"]) == (1, 0)
    assert fates[b"V"] <= 2 * WORKERS
    assert after == before


def template_documents(count: int, copies: float = 0.0) -> list[Document]:
    """Fill in a template; a share of the documents repeats an earlier one with a changed word."""
    rng = random.Random(7)
    template = [f"fixed{number}" for number in range(40)]
    texts: list[str] = []
    for _ in range(count):
        if texts and rng.random() < copies:
            words = rng.choice(texts).split()
            words[rng.randrange(len(words))] = "changed"
        else:
            words = template + [f"w{rng.getrandbits(40):x}" for _ in range(100)]
        texts.append(" ".join(words))
    return [Document(f"d{n}", text, source=f"s{n}") for n, text in enumerate(texts)]


def on_template(redis_url: str, max_candidates: int) -> Settings:
    update = {"redis_url": redis_url, "max_candidates": max_candidates, "partitions": 4}
    return TEMPLATE.model_copy(update=update)


def largest_key(settings: Settings, documents: Sequence[Document]) -> int:
    """Count the documents under the table key that most of them share."""
    keys = Fingerprinter(settings).fingerprint([document.text for document in documents]).keys
    return max(int(np.unique(column, return_counts=True)[1].max()) for column in keys.T)


def test_originals_beyond_the_cap_are_registered_under_all_their_keys(redis_url: str) -> None:
    settings = on_template(redis_url, max_candidates=16)
    tables = len(Fingerprinter(settings).method.prefix_bits)
    documents = template_documents(3_000)
    index = RedisIndex.connect(settings)
    capped = []

    with Deduplicator(settings, index=index) as deduplicator:
        decided: list[Decision] = []
        for batch in in_batches(documents, BATCH):
            decided += deduplicator.decide(batch)
            capped.append(index.counts.capped)

    contents = read_index(settings)
    assert largest_key(settings, documents) > 100 * settings.max_candidates
    assert min(capped) > 0
    assert {decision.status for decision in decided} == {Status.ORIGINAL}
    assert set(contents.fates.values()) == {b"O"}
    assert contents.entries == dict.fromkeys(contents.fates, tables)
    assert len(contents.fates) == len(documents)


def test_a_probe_is_counted_exactly_when_candidates_are_cut(redis_url: str) -> None:
    settings = on_template(redis_url, max_candidates=16)
    documents = template_documents(400, copies=0.3)
    prints = Fingerprinter(settings).fingerprint([document.text for document in documents])
    batch = index_batch(documents, prints)
    index = RedisIndex.connect(settings)
    originals: list[int] = []
    counted, cut = [], []

    for row in range(len(documents)):
        (attachment,) = index.claim(batch.rows(range(row, row + 1)))
        shared = (prints.keys[originals] == prints.keys[row]).sum(axis=0)
        share = Bound(settings.max_candidates, len(shared)).share
        assert 2 * (shared > share).sum() <= len(shared)
        cut.append(bool((shared > share).any()))
        counted.append(index.counts.capped > 0)
        if attachment is None:
            originals.append(row)
    index.close()

    assert counted == cut
    assert 100 < sum(cut) < len(documents)


def test_below_the_cap_a_hot_key_changes_no_decision(redis_url: str) -> None:
    settings = on_template(redis_url, max_candidates=600 * 27)  # 600 of each key
    documents = template_documents(600, copies=0.3)
    index = RedisIndex.connect(settings)
    capped = 0

    with Deduplicator(settings, index=index) as deduplicator:
        decided: list[Decision] = []
        for batch in in_batches(documents, 100):
            decided += deduplicator.decide(batch)
            capped += index.counts.capped

    assert largest_key(settings, documents) > 300
    assert capped == 0
    assert answers_of(decided) == decide_by_brute_force(settings, documents)


def test_what_a_cut_hides_is_counted(redis_url: str) -> None:
    settings = on_template(redis_url, max_candidates=16)
    documents = template_documents(600, copies=0.3)
    expected = decide_by_brute_force(settings, documents)
    index = RedisIndex.connect(settings)

    with Deduplicator(settings, index=index) as deduplicator:
        for document, answer in zip(documents, expected, strict=True):
            decided = deduplicator.decide([document])
            assert index.counts.capped or answers_of(decided) == [answer]
