"""A sweep of a real Redis: beside workers and others of its kind, and killed in the middle."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count
from typing import Any

import numpy as np
import pytest

from stream_dedup import Deduplicator, Document, Settings
from stream_dedup.generate import StreamShape, generate
from stream_dedup.index import upkeep
from stream_dedup.index.audit import Audit, audit
from stream_dedup.index.claims import Mode
from stream_dedup.index.redis import RedisIndex
from stream_dedup.index.rounds import Round

WORKERS = 3


@pytest.fixture(params=["redis_url", "redis_cluster_url"])
def url(request: pytest.FixtureRequest) -> str:
    """Address of an empty Redis, one node or a Cluster."""
    address: str = request.getfixturevalue(request.param)
    return address


def small(url: str, **changes: Any) -> Settings:
    """Return settings of an index that is swept soon and whose claims are old soon."""
    return Settings(
        redis_url=url, partitions=4, expected_originals=1_000, longest_attempt=0.02, **changes
    )


def stream(documents: int, **changes: Any) -> list[Document]:
    """Make a stream with copies, a second between two documents."""
    shape = StreamShape(documents=documents, edits=1, words=120, duplicate_share=0.5, **changes)
    return [
        Document(one.id, one.text, float(number), source=one.id)
        for number, one in enumerate(generate(shape))
    ]


def is_tidy(found: Audit, tables: int = 16) -> bool:
    """Say whether there is nothing but originals, each under all of its keys and its id."""
    return (
        (found.violations, found.pending, found.void, found.unnamed) == ([], 0, 0, 0)
        and found.entries == found.originals * tables
        and found.id_entries == found.originals
    )


@pytest.mark.parametrize("seed", range(3))
def test_workers_sweeps_and_forgetting_side_by_side_keep_every_invariant(
    url: str, seed: int
) -> None:
    settings = small(url, window=200.0, lateness=100.0)
    documents = stream(900, distance=40, seed=seed)
    over = threading.Event()

    def work(number: int) -> None:
        rng = random.Random(number)
        with Deduplicator(settings, index=RedisIndex.connect(settings)) as deduplicator:
            mine = documents[number::WORKERS]
            while mine:
                size = rng.randint(1, 40)
                deduplicator.decide(mine[:size])
                mine = mine[size:]

    def until_over(disturb: Callable[[RedisIndex, random.Random], Any]) -> None:
        rng = random.Random(seed)
        with closing(RedisIndex.connect(settings)) as index:
            while not over.is_set():
                disturb(index, rng)

    def forget(index: RedisIndex, rng: random.Random) -> None:
        index.forget([one.id for one in rng.choices(documents, k=5)])

    with ThreadPoolExecutor(WORKERS + 3) as pool:
        others = [
            pool.submit(until_over, disturb)
            for disturb in (forget, lambda index, _: index.sweep(), lambda index, _: index.sweep())
        ]
        try:
            list(pool.map(work, range(WORKERS)))
        finally:
            over.set()
        for other in others:
            other.result()

    assert audit(settings).violations == []
    with closing(RedisIndex.connect(settings)) as index:
        over.wait(0.1)
        swept = index.sweep()
    found = audit(settings)
    assert is_tidy(found)
    assert 0 < found.originals == swept.originals < 500


class _Killed(Exception):  # noqa: N818
    """The process is no more."""


def test_a_sweep_that_is_killed_leaves_a_sound_index_that_the_next_one_clears(url: str) -> None:
    settings = small(url, window=50.0, lateness=50.0)
    with Deduplicator(settings, index=RedisIndex.connect(settings)) as deduplicator:
        deduplicator.decide(stream(400))
        index = deduplicator.index
        assert isinstance(index, RedisIndex)
        originals = audit(settings).originals
        for last in (1, 2, 5, 9, 15):
            rounds = count(1)

            def die(_seconds: float, last: int = last, rounds: Iterator[int] = rounds) -> None:
                if next(rounds) == last:
                    raise _Killed

            with pytest.raises(_Killed):
                index.sweep(die)
            assert audit(settings).violations == []

        index.sweep()

    found = audit(settings)
    assert is_tidy(found)
    assert found.originals < originals


def test_what_crashed_workers_leave_is_swept_when_it_is_old(url: str) -> None:
    settings = small(url)
    documents = stream(60)
    with closing(RedisIndex.connect(settings)) as index:
        prints = Deduplicator(settings).prepare(documents)
        keys = index.store.layout.place(prints.prints.keys)
        for number, has_record in enumerate([True, False]):
            round_ = Round(index.store)
            claims = np.arange(1, 61, dtype=np.uint64) + np.uint64(100 * number)
            if has_record:
                round_.put(claims, index.records.encode(prints))
            round_.probe(keys.flat(), np.repeat(claims, 16), np.full(960, Mode.FORCE, np.uint8))
            round_.run()
        index.claim(prints)
        originals = audit(settings).originals

        index.sweep()

    found = audit(settings)
    assert is_tidy(found)
    assert found.originals == originals > 0


def test_what_was_forgotten_a_moment_ago_leaves_but_a_byte(url: str) -> None:
    settings = small(url).model_copy(update={"longest_attempt": 3600.0})
    documents = stream(40)
    with Deduplicator(settings, index=RedisIndex.connect(settings)) as deduplicator:
        deduplicator.decide(documents)
        forgotten = sum(deduplicator.index.forget([one.id for one in documents[:30]]))

        swept = deduplicator.index.sweep()

    found = audit(settings)
    assert swept.entries == forgotten * 16
    assert found.void == forgotten
    assert found.entries == found.originals * 16
    assert found.violations == []


def test_a_hot_table_key_is_swept_page_by_page(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "MEMBERS", 7)
    settings = small(redis_url)
    with closing(RedisIndex.connect(settings)) as index:
        (prints,) = [Deduplicator(settings).prepare(stream(60)[:1])]
        keys = index.store.layout.place(prints.prints.keys).rows(np.zeros(50, np.int64)).flat()
        claims = np.repeat(np.arange(1, 51, dtype=np.uint64), 16)
        round_ = Round(index.store)
        round_.probe(keys, claims, np.full(800, Mode.FORCE, np.uint8))
        round_.run()

        assert index.sweep().entries == 800


def test_only_one_of_many_workers_has_a_turn(redis_url: str) -> None:
    settings = small(redis_url)
    with closing(RedisIndex.connect(settings)) as index:
        turns = [index.store.turn(60.0, 60.0) for _ in range(3)]
        rested = index.store.turn(0.0, 60.0)
        Deduplicator(settings, index=index).decide(documents := stream(2))
        index.forget([one.id for one in documents])

        assert turns == [True, False, False]
        assert not rested
        assert index.store.turn(0.0, 60.0)
