"""Documents that are registered in one call: what it writes and tells, and what a repeat does."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from unittest import mock

import numpy as np
import pytest
from redis.client import Pipeline

from stream_dedup import Settings
from stream_dedup.fingerprint.fingerprinter import Fingerprints
from stream_dedup.fingerprint.simhash import SimHash
from stream_dedup.index.base import IndexBatch
from stream_dedup.index.claims import Fate
from stream_dedup.index.records import RecordFormat
from stream_dedup.index.redis import RedisIndex
from stream_dedup.index.registrations import Registrations, spelled
from stream_dedup.index.rounds import Round
from stream_dedup.index.store import RedisStore
from stream_dedup.index.upkeep import Upkeep
from stream_dedup.types import Method

PAGE = 4


@pytest.fixture
def index(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[RedisStore]:
    monkeypatch.setattr("stream_dedup.index.found.PAGE", PAGE)
    with closing(RedisIndex.connect(Settings(redis_url=redis_url))) as opened:
        yield opened.store


def register(
    store: RedisStore,
    keys: Sequence[int],
    claim: int,
    known: Sequence[int] = (),
    *,
    record: bytes = b"record",
    compared: tuple[int, ...] = (),
) -> tuple[int, list[int]]:
    """Register a document with these first table keys; return its byte and whom it met."""
    tables = len(store.layout.prefix_bits)
    row = np.full((1, tables), 1_000_000 + claim, np.uint64)
    row[0, : len(keys)] = keys
    round_ = Round(store)
    claims = np.array([claim], np.uint64)
    places = store.layout.place(row)
    found = round_.register(places, claims, [record], [spelled(known)], compared=compared)
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


def test_each_of_many_in_a_round_hears_of_its_own(index: RedisStore) -> None:
    count, tables = 300, len(index.layout.prefix_bits)  # a call takes 128 of them, and counts anew
    keys = np.arange(count * tables, dtype=np.uint64).reshape(count, tables)

    def all_of(first: int) -> Registrations:
        round_, claims = Round(index), np.arange(first, first + count, dtype=np.uint64)
        found = round_.register(
            index.layout.place(keys), claims, [b"record"] * count, [b""] * count
        )
        round_.run()
        return found

    assert set(all_of(1).fates) == {Fate.ORIGINAL}
    met = all_of(1001)
    assert set(met.fates) == {Registrations.MET}
    assert [column.tolist() for column in met.pairs] == [
        list(range(count)),
        list(range(1, count + 1)),
    ]


def test_a_repeat_changes_nothing(index: RedisStore) -> None:
    for _ in range(2):
        assert register(index, [7], 1) == (Fate.ORIGINAL, [])

    assert index.originals == {0: 1}
    assert register(index, [7], 2) == (Registrations.MET, [1])


def test_a_claim_that_was_voided_stays_void_and_is_not_entered(index: RedisStore) -> None:
    round_ = Round(index)
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


HAMMING = 3
SIMHASH = Settings(method=Method.SIMHASH, hamming=HAMMING)


def with_sketch(form: RecordFormat, sketch: int) -> bytes:
    """Return a record whose other bits all differ from those of its neighbours in memory."""
    head = b"\xff" * (form.compared[0] - 1)
    return head + sketch.to_bytes(form.sketch_bytes, "little") + b"\xff"


def register_by(
    store: RedisStore, form: RecordFormat, keys: Sequence[int], claim: int, record: bytes
) -> tuple[int, list[int]]:
    return register(store, keys, claim, record=record, compared=form.compared)


def documents(fingerprints: Sequence[int]) -> IndexBatch:
    """Make documents with these fingerprints, each different from all others."""
    sketches = np.array(fingerprints, "<u8").view(np.uint8).reshape(-1, 8)
    count = len(fingerprints)
    digests = [fingerprint.to_bytes(16, "little") for fingerprint in fingerprints]
    keys = SimHash(SIMHASH).keys(sketches)
    return IndexBatch(
        ids=list(fingerprints),
        identities=np.array(fingerprints, np.uint64),
        times=np.zeros(count),
        prints=Fingerprints(np.zeros(count, np.bool_), digests, keys, sketches),
        ranks=np.full(count, np.inf),
    )


def flipped(sketch: int, bits: Sequence[int]) -> int:
    return sketch ^ sum(1 << bit for bit in bits)


@pytest.mark.parametrize("renews", [False, True])
@pytest.mark.parametrize("width", [64, 128])
def test_who_is_farther_by_hamming_distance_is_passed_over_and_who_is_not_is_told(
    index: RedisStore, width: int, renews: bool
) -> None:
    form = RecordFormat(width // 8, renews=renews, hamming=HAMMING)
    generator = np.random.default_rng(1)
    for number in range(width):
        # Each bit in turn is the one that makes it far, on fingerprints and claim ids of all kinds.
        others = generator.permutation([bit for bit in range(width) if bit != number])
        bits = [number, *others[: generator.integers(HAMMING, width)].tolist()]
        sketch = int.from_bytes(generator.bytes(width // 8), "little")
        first, second, third = sorted(generator.integers(1, 2**63, 3).tolist())
        near, far = flipped(sketch, bits[:HAMMING]), flipped(sketch, bits)
        key = [number]

        one = register_by(index, form, key, first, with_sketch(form, sketch))
        met = register_by(index, form, key, second, with_sketch(form, near))
        passed = register_by(index, form, key, third, with_sketch(form, far))

        assert one == (Fate.ORIGINAL, [])
        assert met == (Registrations.MET, [first])
        assert passed == (Fate.ORIGINAL, [])


def test_who_has_no_record_or_is_void_is_told_however_far(index: RedisStore) -> None:
    form = RecordFormat(8, hamming=HAMMING)
    zeros, ones = with_sketch(form, 0), with_sketch(form, 2**64 - 1)
    for claim in (1, 2):
        assert register_by(index, form, [claim], claim, zeros)[0] == Fate.ORIGINAL
    round_ = Upkeep(index)
    round_.forget(np.array([1], np.uint64))
    round_.retire(np.array([2], np.uint64))
    round_.run()

    assert register_by(index, form, [1], 3, ones) == (Registrations.MET, [1])
    assert register_by(index, form, [2], 3, ones) == (Registrations.MET, [2])


def test_a_pending_claim_that_is_far_is_passed_over(index: RedisStore) -> None:
    form = RecordFormat(8, hamming=HAMMING)
    keys = np.full((1, len(index.layout.prefix_bits)), 7, np.uint64)
    places = index.layout.place(keys).flat()
    round_ = Round(index)
    round_.put(np.array([1], np.uint64), [with_sketch(form, 0)])
    count = keys.shape[1]
    round_.probe(places, np.ones(count, np.uint64), np.ones(count, np.uint8))
    round_.run()

    near, far = with_sketch(form, 7), with_sketch(form, 15)
    assert register_by(index, form, [7], 2, near) == (Registrations.MET, [1])
    assert register_by(index, form, [7], 3, far) == (Fate.ORIGINAL, [])


@pytest.mark.parametrize("renew", [False, True])
def test_who_meets_others_by_chance_takes_one_round_trip(redis_url: str, renew: bool) -> None:
    window = 3600.0 if renew else None
    settings = {"redis_url": redis_url, "renew": renew, "window": window}
    near, far = 0b111, 0b1111
    with (
        closing(RedisIndex.connect(SIMHASH.model_copy(update=settings))) as index,
        mock.patch.object(
            Pipeline, "execute", autospec=True, side_effect=Pipeline.execute
        ) as trips,
    ):
        assert index.claim(documents([0])) == [None]
        assert trips.call_count == 1
        assert index.claim(documents([far << 60])) == [None]
        assert trips.call_count == 2
        (attachment,) = index.claim(documents([near]))
        assert attachment is not None
        assert attachment.original_id == 0
        assert trips.call_count > 3


def test_decisions_are_those_of_comparing_with_all_originals(redis_url: str) -> None:
    rng = random.Random(5)
    originals: list[int] = []
    settings = SIMHASH.model_copy(update={"redis_url": redis_url})
    with closing(RedisIndex.connect(settings)) as index:
        for _ in range(50):
            centre = rng.getrandbits(64)
            some = {flipped(centre, rng.sample(range(64), rng.randrange(8))) for _ in range(12)}
            stream = [*some, *rng.sample(originals, min(len(originals), 2))]
            rng.shuffle(stream)
            while stream:
                batch = [stream.pop() for _ in range(rng.randint(1, len(stream)))]
                expected = []
                for one in batch:
                    near = (o for o in originals if (o ^ one).bit_count() <= HAMMING)
                    original = next(near, one)
                    expected.append(None if original == one else original)
                    if expected[-1] is None and one not in originals:
                        originals.append(one)
                found = index.claim(documents(batch))
                assert [None if a is None else a.original_id for a in found] == expected
    assert len(originals) > 150
