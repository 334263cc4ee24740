"""Documents that are registered in one call: what it writes and tells, and what a repeat does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

import numpy as np
import pytest

from stream_dedup import Settings
from stream_dedup.index import store
from stream_dedup.index.claims import Fate
from stream_dedup.index.redis import RedisIndex
from stream_dedup.index.registrations import Registrations
from stream_dedup.index.store import RedisStore

PAGE = 4


@pytest.fixture
def index(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[RedisStore]:
    monkeypatch.setattr(store, "PAGE", PAGE)
    with closing(RedisIndex.connect(Settings(redis_url=redis_url))) as opened:
        yield opened.store


def register(
    store: RedisStore, keys: Sequence[int], claim: int, known: Sequence[int] = ()
) -> tuple[int, list[int]]:
    """Register a document with these first table keys; return its byte and whom it met."""
    tables = len(store.layout.prefix_bits)
    row = np.full((1, tables), 1_000_000 + claim, np.uint64)
    row[0, : len(keys)] = keys
    round_ = store.round()
    claims = np.array([claim], np.uint64)
    found = round_.register(store.layout.place(row), claims, [b"record"], [known])
    round_.run()
    return int(found.fates[0]), sorted(found.pairs[1].tolist())


def test_who_meets_nobody_is_an_original(index: RedisStore) -> None:
    assert register(index, [7, 8], 1) == (Fate.ORIGINAL, [])
    assert index.originals == {0: 1}
    assert register(index, [7, 9], 2) == (Registrations.MET, [1])
    assert index.originals == {0: 1}


def test_who_meets_somebody_leaves_nothing_behind(index: RedisStore) -> None:
    register(index, [7, 8], 1)
    before = index.client.dbsize()

    register(index, [7, 9], 2)

    assert index.client.dbsize() == before
    assert register(index, [70, 9], 3) == (Fate.ORIGINAL, [])


def test_each_claim_is_told_once_and_the_known_are_not(index: RedisStore) -> None:
    register(index, [7, 8, 9], 1)
    register(index, [10, 11, 12], 2)

    assert register(index, [7, 8, 12], 3) == (Registrations.MET, [1, 2])
    assert register(index, [7, 8, 12], 3, known=[1]) == (Registrations.MET, [2])
    assert register(index, [7, 8, 12], 3, known=[1, 2]) == (Fate.ORIGINAL, [])
    assert register(index, [7], 4) == (Registrations.MET, [1, 3])


def test_a_repeat_changes_nothing(index: RedisStore) -> None:
    for _ in range(2):
        assert register(index, [7], 1) == (Fate.ORIGINAL, [])

    assert index.originals == {0: 1}
    assert register(index, [7], 2) == (Registrations.MET, [1])


def test_a_claim_that_was_voided_stays_void_and_is_not_entered(index: RedisStore) -> None:
    round_ = index.round()
    standing = round_.settle(np.array([1], np.uint64), np.array([Fate.VOID], np.uint8))
    round_.run()
    assert standing.tolist() == [Fate.VOID]

    assert register(index, [7], 1) == (Fate.VOID, [])
    assert register(index, [7], 2) == (Fate.ORIGINAL, [])


def test_more_than_a_reply_holds_is_said(index: RedisStore) -> None:
    met: list[int] = []
    for claim in range(1, PAGE + 2):
        assert register(index, [7], claim, known=met) == (Fate.ORIGINAL, [])
        met.append(claim)

    assert register(index, [7], 99)[0] == Registrations.FULL
