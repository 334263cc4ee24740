"""Claims behind the fence: they have no record, get none any more, and count as void."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

import numpy as np
import pytest

from stream_dedup import Settings
from stream_dedup.index.claims import Fate
from stream_dedup.index.redis import RedisIndex
from stream_dedup.index.rounds import Round
from stream_dedup.index.store import RedisStore

HALF = 1 << 32
#: Larger than a half of 64 bits, so that both halves of an id are compared.
FENCE = 2 * HALF + 5
BEHIND = (1, 4, HALF + 9, FENCE - 1)
BEFORE = (FENCE, FENCE + 1, 3 * HALF, 3 * HALF + 1)


@pytest.fixture
def index(redis_url: str) -> Iterator[RedisStore]:
    with closing(RedisIndex.connect(Settings(redis_url=redis_url))) as opened:
        key = f"{opened.store.layout.partition_key(0)}f"
        opened.store.client.set(key, FENCE.to_bytes(8, "big"))
        yield opened.store


def ids(claims: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.array(claims, np.uint64)


def put(store: RedisStore, claims: Sequence[int]) -> None:
    round_ = Round(store)
    round_.put(ids(claims), [b"record %d" % claim for claim in claims])
    round_.run()


def read(store: RedisStore, claims: Sequence[int]) -> list[bytes]:
    round_ = Round(store)
    values = round_.read(ids(claims))
    round_.run()
    return values


def settle(store: RedisStore, claims: Sequence[int], fate: Fate) -> list[int]:
    round_ = Round(store)
    standing = round_.settle(ids(claims), np.full(len(claims), fate, np.uint8))
    round_.run()
    return list(standing.tolist())


def test_records_are_put_before_it_only(index: RedisStore) -> None:
    put(index, [*BEHIND, *BEFORE])

    assert read(index, BEHIND) == [b"V"] * len(BEHIND)
    assert read(index, BEFORE) == [b"Precord %d" % claim for claim in BEFORE]
    assert read(index, [FENCE + 2]) == [b""]


@pytest.mark.parametrize("fate", [Fate.ORIGINAL, Fate.VOID])
def test_nothing_is_written_of_claims_behind_it(index: RedisStore, fate: Fate) -> None:
    before = index.client.dbsize()

    assert settle(index, BEHIND, fate) == [Fate.VOID] * len(BEHIND)
    assert index.originals == {0: 0}
    # The counter of originals, and the mark of this worker.
    assert index.client.dbsize() == before + 2

    put(index, BEFORE)
    assert settle(index, BEFORE, fate) == [fate] * len(BEFORE)
    assert index.originals == {0: len(BEFORE) if fate is Fate.ORIGINAL else 0}


def test_nothing_is_registered_behind_it(index: RedisStore) -> None:
    claims = [*BEHIND, *BEFORE]
    tables = len(index.layout.prefix_bits)
    keys = np.arange(len(claims) * tables, dtype=np.uint64).reshape(-1, tables) << np.uint64(40)
    places = index.layout.place(keys)
    round_ = Round(index)
    found = round_.register(places, ids(claims), [b"record"] * len(claims), [b""] * len(claims))
    round_.run()

    expected = [Fate.VOID] * len(BEHIND) + [Fate.ORIGINAL] * len(BEFORE)
    assert found.fates.tolist() == expected
    assert index.originals == {0: len(BEFORE)}
    assert read(index, BEHIND) == [b"V"] * len(BEHIND)


def test_records_that_are_there_behind_it_stay(index: RedisStore) -> None:
    index.client.delete(f"{index.layout.partition_key(0)}f")
    put(index, BEHIND)
    settle(index, BEHIND[:2], Fate.ORIGINAL)
    index.client.set(f"{index.layout.partition_key(0)}f", FENCE.to_bytes(8, "big"))

    values = read(index, BEHIND)
    assert [value[:1] for value in values] == [b"O", b"O", b"P", b"P"]
    assert settle(index, BEHIND, Fate.ORIGINAL) == [Fate.ORIGINAL] * len(BEHIND)
