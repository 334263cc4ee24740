"""A probe that has more candidates than one reply holds goes on until it has them all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest

from stream_dedup import Settings
from stream_dedup.index.claims import Mode
from stream_dedup.index.found import Found
from stream_dedup.index.keys import Places
from stream_dedup.index.redis import RedisIndex
from stream_dedup.index.rounds import Round, read_on
from stream_dedup.index.store import RedisStore

PAGE = 4
LIMIT = 16
OWN = 1_000


@pytest.fixture
def index(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[RedisStore]:
    monkeypatch.setattr("stream_dedup.index.found.PAGE", PAGE)
    settings = Settings(redis_url=redis_url, partitions=2, max_candidates=LIMIT * 16)
    with closing(RedisIndex.connect(settings)) as opened:
        yield opened.store


def places(store: RedisStore, keys: list[int]) -> Places:
    """Place keys of the first table, a row each."""
    tables = len(store.layout.prefix_bits)
    placed = store.layout.place(np.repeat(np.array(keys, np.uint64)[:, None], tables, axis=1))
    return Places(placed.suffixes[:, 0], placed.scores[:, 0], placed.partitions[:, 0])


def probe(store: RedisStore, keys: list[int], claims: list[int], mode: Mode) -> Found:
    """Probe one page."""
    round_ = Round(store)
    modes = np.full(len(keys), mode, np.uint8)
    found = round_.probe(places(store, keys), np.array(claims, np.uint64), modes, LIMIT)
    round_.run()
    return found


def fill(store: RedisStore, key: int, claims: range) -> None:
    """Insert claims under a key."""
    probe(store, [key] * len(claims), list(claims), Mode.FORCE)


def sighted(found: Found, row: int) -> list[int]:
    rows, claims = found.pairs
    chosen: list[int] = claims[rows == row].tolist()
    return chosen


@pytest.mark.parametrize("count", [0, 1, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE, LIMIT])
@pytest.mark.parametrize("mode", Mode)
def test_all_pages_together_are_all_claims_in_order_and_not_its_own(
    index: RedisStore, count: int, mode: Mode
) -> None:
    fill(index, 7, range(1, 1 + count))
    fill(index, 8, range(500, 500 + count))  # the same set, and the score that comes next
    fill(index, 7, range(OWN, OWN + 1))

    found = probe(index, [7], [OWN], mode)
    read_on(index, found)

    assert sighted(found, 0) == list(range(1, 1 + count))
    assert not len(found.full)


def test_probes_that_end_at_different_pages_do_not_mix(index: RedisStore) -> None:
    counts = {7: 3, 8: 9, 2**50: 14, 9: 0}
    claims = {key: range(100 * row, 100 * row + counts[key]) for row, key in enumerate(counts)}
    for key, own in claims.items():
        fill(index, key, own)

    found = probe(index, list(counts), [OWN] * len(counts), Mode.LOOK)
    read_on(index, found)

    assert [sighted(found, row) for row in range(4)] == [list(own) for own in claims.values()]


def test_further_pages_of_several_probes_are_asked_for_in_one_call(index: RedisStore) -> None:
    keys = [7, 8, 9]  # in one set, so in one partition
    for row, key in enumerate(keys):
        fill(index, key, range(100 * row + 1, 100 * row + 7))

    found = probe(index, keys, [OWN] * len(keys), Mode.LOOK)
    read_on(index, found)

    assert [sighted(found, row) for row in range(3)] == [
        list(range(100 * row + 1, 100 * row + 7)) for row in range(3)
    ]


def test_a_page_goes_on_where_a_claim_was_that_has_gone_meanwhile(index: RedisStore) -> None:
    fill(index, 7, range(1, 11))

    found = probe(index, [7], [OWN], Mode.LOOK)
    round_ = Round(index)
    gone = np.arange(2, 6, dtype=np.uint64)  # with the last of the first page
    round_.withdraw(places(index, [7] * len(gone)), gone)
    round_.run()
    read_on(index, found)

    assert sighted(found, 0) == [1, 2, 3, 4, *range(6, 11)]
    again = probe(index, [7], [OWN], Mode.LOOK)
    read_on(index, again)
    assert sighted(again, 0) == [1, *range(6, 11)]


@pytest.mark.parametrize("more", [0, 1, 50])
def test_what_is_beyond_the_limit_is_cut_and_counted_once(index: RedisStore, more: int) -> None:
    fill(index, 7, range(1, 1 + LIMIT + more))

    found = probe(index, [7], [OWN], Mode.LOOK)
    read_on(index, found)

    assert sighted(found, 0) == list(range(1, 1 + LIMIT))
    assert found.full.tolist() == [0] * (more > 0)
