"""The parts of the indexes: the multimap, pairs within a batch, keys, claim ids, records."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from stream_dedup import Document, Settings
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.index.base import duplicate_id, index_batch
from stream_dedup.index.candidates import Bound
from stream_dedup.index.keys import ClaimIds, Layout
from stream_dedup.index.pairs import shares_earlier, sharing_pairs
from stream_dedup.index.records import RecordFormat
from stream_dedup.index.sightings import Met, Pairs, Sightings, parts_of
from stream_dedup.index.table import PrefixTable


class TestPrefixTable:
    @pytest.mark.parametrize("seed", range(20))
    def test_it_equals_a_dict_of_lists(self, seed: int) -> None:
        rng = random.Random(seed)
        table = PrefixTable(capacity=8)
        expected: dict[int, list[int]] = defaultdict(list)
        for _ in range(30):
            # Few distinct keys, and keys that differ in one bit only.
            added = [(rng.randrange(50) << rng.choice([0, 40])) for _ in range(rng.randrange(90))]
            values = [rng.randrange(1 << 20) for _ in added]
            for key, value in zip(added, values, strict=True):
                expected[key].append(value)
            table.add(np.array(added, np.uint64), np.array(values, np.int64))
            asked = [(rng.randrange(60) << rng.choice([0, 40])) for _ in range(40)]

            positions, found = table.find(np.array(asked, np.uint64))

            got: dict[int, list[int]] = defaultdict(list)
            for position, value in zip(positions.tolist(), found.tolist(), strict=True):
                got[position].append(value)
            for position, key in enumerate(asked):
                assert sorted(got[position]) == sorted(expected.get(key, []))

    @pytest.mark.parametrize("seed", range(10))
    def test_what_is_hidden_is_not_found_and_what_is_kept_is_numbered_anew(self, seed: int) -> None:
        rng = np.random.Generator(np.random.PCG64(seed))
        table = PrefixTable(capacity=8)
        keys = rng.integers(0, 40, 300).astype(np.uint64)
        values = rng.integers(0, 100, 300)
        table.add(keys, values)
        hidden = rng.choice(100, 30, replace=False)
        kept = np.ones(100, np.bool_)
        kept[hidden] = False

        def found() -> set[tuple[int, int]]:
            asked = np.arange(40, dtype=np.uint64)
            positions, numbers = table.find(asked)
            return set(zip(positions.tolist(), numbers.tolist(), strict=True))

        table.hide(hidden[:10])
        table.hide(hidden[10:])
        pairs = list(zip(keys.tolist(), values.tolist(), strict=True))
        expected = {(key, value) for key, value in pairs if kept[value]}
        assert found() == expected

        table.keep(kept)

        numbers = np.cumsum(kept) - 1
        assert found() == {(key, int(numbers[value])) for key, value in expected}
        assert len(table) == sum(kept[value] for _, value in pairs)
        table.add(np.array([3], np.uint64), np.array([99]))
        assert (3, 99) in found()

    @pytest.mark.parametrize("seed", range(20))
    def test_what_comes_and_goes_is_found_oldest_first_up_to_a_limit(self, seed: int) -> None:
        rng = random.Random(seed)
        table = PrefixTable(capacity=8)
        expected: dict[int, list[int]] = defaultdict(list)
        for number in range(0, 400, 4):
            added = [rng.randrange(12) for _ in range(4)]
            table.add(np.array(added, np.uint64), np.arange(number, number + 4))
            for value, key in enumerate(added, number):
                expected[key].append(value)
            gone = rng.sample(range(number + 4), rng.choice([0, 1, 4]))
            table.hide(np.array(gone, np.int64))
            expected |= {
                key: [v for v in values if v not in gone] for key, values in expected.items()
            }
            limit = rng.choice([None, 1, 3])

            positions, found = table.find(np.arange(12, dtype=np.uint64), limit)

            for key in range(12):
                assert found[positions == key].tolist() == expected[key][:limit]

    def test_entries_that_are_hidden_are_passed_over_once(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A text that is published and forgotten again and again."""
        steps: list[int] = []
        is_shown = PrefixTable._is_shown

        def counted(*of: Any) -> Any:
            steps.append(1)
            return is_shown(*of)

        monkeypatch.setattr(PrefixTable, "_is_shown", counted)
        table = PrefixTable()
        key = np.zeros(1, np.uint64)
        for number in range(1000):
            table.add(key, np.array([number]))
            assert table.find(key)[1].tolist() == [number]
            table.hide(np.array([number]))

        assert len(steps) < 3 * 1000

    def test_it_knows_its_length(self) -> None:
        table = PrefixTable()
        table.add(np.arange(5, dtype=np.uint64), np.arange(5))

        assert len(table) == 5


@pytest.mark.parametrize("seed", range(20))
def test_sharing_pairs_are_those_that_share_a_key_in_the_same_column(seed: int) -> None:
    keys = np.random.Generator(np.random.PCG64(seed)).integers(0, 9, (30, 3), dtype=np.uint64)
    expected = {
        (one, other)
        for other in range(len(keys))
        for one in range(other)
        if (keys[one] == keys[other]).any()
    }

    earlier, later = sharing_pairs(keys)

    pairs = list(zip(earlier.tolist(), later.tolist(), strict=True))
    assert pairs == sorted(expected)


class TestLayout:
    layout = Layout.design("sd", partitions=8, prefix_bits=[53, 25, 4], originals=1_000_000)

    def test_it_spells_table_and_leading_bits(self) -> None:
        keys = np.array([[0x1A2B3C4D5E6F7, 0x1ABCDEF, 0xF]], np.uint64)

        places = self.layout.place(keys)

        assert self.layout.set_bits == 16
        spelled = [suffix.decode() for suffix in places.suffixes[0]]
        assert spelled == ["t00:0d15", "t01:d5e6", "t02:000f"]
        assert [int(score) for score in places.scores[0]] == [0x13C4D5E6F7, 0x1EF, 0]

    def test_key_and_score_together_are_the_table_key(self) -> None:
        rng = np.random.Generator(np.random.PCG64(1))
        keys = rng.integers(0, 1 << 53, (500, 1), dtype=np.uint64)
        layout = Layout.design("sd", partitions=64, prefix_bits=[53], originals=10_000_000)

        places = layout.place(keys)

        rest = 53 - layout.set_bits
        for key, suffix, score in zip(
            keys[:, 0].tolist(), places.suffixes[:, 0], places.scores[:, 0], strict=True
        ):
            assert (int(suffix.decode()[4:], 16) << rest) + int(score) == key

    def test_a_sorted_set_has_one_partition(self) -> None:
        rng = np.random.Generator(np.random.PCG64(2))
        keys = rng.integers(0, 1 << 20, (5000, 1), dtype=np.uint64)
        layout = Layout.design("sd", partitions=16, prefix_bits=[20], originals=20_000)

        places = layout.place(keys)

        names = list(
            zip(places.suffixes[:, 0].tolist(), places.partitions[:, 0].tolist(), strict=True)
        )
        assert len(set(names)) == len({suffix for suffix, _ in names})
        assert set(places.partitions.ravel().tolist()) == set(range(16))

    def test_partitions_get_equal_shares(self) -> None:
        claims = np.arange(100_000, dtype=np.uint64) << np.uint64(10)

        partitions, buckets = self.layout.record_places(claims)

        assert np.bincount(partitions).min() > 0.95 * 100_000 / 8
        assert len(set(buckets.tolist())) > 0.99 * self.layout.buckets


class TestClaimIds:
    def test_they_grow_with_time_and_within_a_millisecond(self) -> None:
        ids = ClaimIds(worker=3)
        times = [1.6e9, 1.6e9, 1.6e9 + 0.0005, 1.6e9 + 5]

        minted = np.concatenate([ids.mint(now, 1500) for now in times])

        assert (np.diff(minted.astype(np.int64)) > 0).all()

    def test_they_never_repeat_when_the_clock_steps_back(self) -> None:
        ids = ClaimIds(worker=3)

        minted = [int(claim) for now in (1.7e9, 1.6e9, 1.7e9) for claim in ids.mint(now, 100)]

        assert len(set(minted)) == 300
        assert minted == sorted(minted)

    def test_workers_do_not_share_them(self) -> None:
        minted = [set(ClaimIds(worker).mint(1.7e9, 5000).tolist()) for worker in range(20)]

        assert len(set().union(*minted)) == 20 * 5000


class TestRecords:
    def test_a_record_comes_back_as_it_went(self) -> None:
        documents = [Document("näme", "one two three four", 12.5, "s"), Document(7, "five six")]
        batch = index_batch(documents, Fingerprinter(Settings()).fingerprint(["a b c", "d e f"]))

        form = RecordFormat(256)

        records = [form.decode(data) for data in form.encode(batch)]

        assert [record.document_id for record in records] == ["näme", 7]
        assert [record.time for record in records] == [12.5, 0.0]
        assert [record.digest for record in records] == batch.prints.digests
        assert [record.identity for record in records] == batch.identities.tolist()
        assert b"".join(record.sketch for record in records) == batch.prints.sketches.tobytes()

    @pytest.mark.parametrize(
        "document_id",
        [
            "",
            "n\xe4me",
            "x" * 40,
            "x" * 300,
            "x" * 1024,
            7,
            200,
            -3,
            -200,
            2**40,
            2**64 - 1,
            -(2**63),
        ],
    )
    def test_what_a_later_version_adds_at_the_end_is_passed_over(
        self, document_id: str | int
    ) -> None:
        document = Document(document_id, "one two three four", 12.5)
        batch = index_batch([document], Fingerprinter(Settings()).fingerprint([document.text]))
        form = RecordFormat(256)
        (data,) = form.encode(batch)

        assert form.decode(data + b"\x00more\xff") == form.decode(data)

    def test_a_short_one_is_refused(self) -> None:
        with pytest.raises(ValueError, match="too short"):
            RecordFormat(256).decode(b"x" * 40)

    def test_one_without_an_id_is_refused(self) -> None:
        with pytest.raises(ValueError, match="no document id"):
            RecordFormat(256).decode(bytes(8 + 8 + 16 + 256) + b"\xc1rest")


def test_a_duplicate_id_follows_from_the_original_alone() -> None:
    digest = bytes(range(16))

    assert duplicate_id("doc-1", digest) == "9258cf02ac3478edd7d6f8d6"
    assert duplicate_id(1, digest) != duplicate_id("1", digest)


@pytest.mark.parametrize("seed", range(10))
def test_shares_earlier_marks_the_later_rows_of_sharing_pairs(seed: int) -> None:
    keys = np.random.Generator(np.random.PCG64(seed)).integers(0, 20, (30, 3), dtype=np.uint64)
    expected = set(sharing_pairs(keys)[1].tolist())

    marked = np.flatnonzero(shares_earlier(keys))

    assert set(marked.tolist()) == expected


@pytest.mark.parametrize("seed", range(20))
def test_a_limited_search_finds_the_oldest_entries_of_each_key(seed: int) -> None:
    random = np.random.default_rng(seed)
    table = PrefixTable(1 << 12)
    keys = random.integers(0, 40, 3_000).astype(np.uint64)
    for start in range(0, len(keys), 250):
        part = keys[start : start + 250]
        table.add(part, np.arange(start, start + len(part)))
    hidden = random.choice(len(keys), 200, replace=False)
    table.hide(hidden)
    limit = int(random.integers(1, 90))

    asked = np.arange(45, dtype=np.uint64)
    positions, found = table.find(asked, limit)

    for at, key in enumerate(asked.tolist()):
        entries = np.setdiff1d(np.flatnonzero(keys == key), hidden)
        assert found[positions == at].tolist() == entries[:limit].tolist()


def test_a_share_of_each_key_is_read_and_more_where_most_keys_are_full() -> None:
    bound = Bound(most=4096, tables=16)

    assert (bound.share, bound.deep_step) == (256, 16)
    assert bound.deep(np.repeat([3, 5, 8], [8, 9, 16])).tolist() == [5, 8]
    assert Bound(most=16, tables=27).share == 1


@pytest.mark.parametrize("seed", range(20))
def test_what_is_kept_are_the_first_different_ones_by_rank(seed: int) -> None:
    random = np.random.default_rng(seed)
    bound = Bound(most=int(random.integers(4, 30)), tables=4)
    keys = np.sort(random.integers(0, 12, 300))
    members = np.concatenate(
        [np.sort(random.choice(60, n, replace=False)) for n in np.bincount(keys, minlength=12)]
    )
    documents = keys // 4
    order = random.permutation(12)  # keys side by side in any order, each oldest first
    mixed = np.concatenate([np.flatnonzero(keys == key) for key in order])

    kept = bound.kept(documents[mixed], keys[mixed], members[mixed])

    for document in range(3):
        ranks: dict[int, int] = {}
        for key in range(4 * document, 4 * document + 4):
            for rank, member in enumerate(members[keys == key].tolist()):
                ranks[member] = min(rank, ranks.get(member, rank))
        wanted = sorted(ranks, key=lambda one: (ranks[one], one))[: bound.most]
        mine = documents[mixed] == document
        assert set(members[mixed][mine & kept].tolist()) == set(wanted)
        assert not set(members[mixed][mine & ~kept].tolist()) & set(wanted)


def test_parts_keep_a_row_together() -> None:
    rows = np.repeat(np.arange(5), [3, 1, 6, 2, 2])

    parts = [rows[part].tolist() for part in parts_of(rows, 4)]

    assert [row for part in parts for row in part] == rows.tolist()
    assert [sorted(set(part)) for part in parts] == [[0, 1], [2], [3, 4]]


def test_what_was_seen_before_is_not_beyond_it() -> None:
    def sightings(*seen: tuple[int, int, int]) -> Sightings:
        rows, tables, claims = np.array(seen, np.int64).reshape(-1, 3).T
        return Sightings(rows, tables, claims.astype(np.uint64))

    before = sightings((0, 0, 7), (0, 1, 8), (1, 0, 7))
    now = sightings((0, 1, 7), (0, 1, 9), (1, 0, 8), (1, 2, 8), (2, 0, 7))

    fresh = now.beyond(before)

    assert list(zip(fresh.rows, fresh.tables, fresh.claims, strict=True)) == [
        (0, 1, 9),
        (1, 0, 8),
        (1, 2, 8),
        (2, 0, 7),
    ]


def test_who_is_met_again_counts_once() -> None:
    met = Met()
    met.add(
        Pairs(np.array([0, 0, 1]), np.array([7, 8, 7], np.uint64)), np.array([1]), np.array([False])
    )
    met.add(
        Pairs(np.array([0, 1]), np.array([8, 7], np.uint64)),
        np.array([0, 1]),
        np.array([False, True]),
    )

    assert met.totals() == (3, 1, 1)
