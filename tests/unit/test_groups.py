"""Folding members into groups: sizes, bounds, and members that come again."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.groups import (
    MAX_ORIGIN_CHARACTERS,
    Group,
    Limits,
    Member,
    decode_group,
    encode,
    fold_all,
)
from stream_dedup.types import Decision, Document, Method, Status

NAME = "5f0c3b8a91d2e4467c1a0b9f"
LIMITS = Limits(members=3, sources=4)


def member(number: int, status: Status = Status.NEAR_DUPLICATE, **fields: Any) -> Member:
    return Member(duplicate_id=NAME, original_id="a", id=number, status=status, **fields)


def folded(members: list[Member], limits: Limits = LIMITS) -> Group:
    return fold_all(members, limits)[NAME]


class TestSizes:
    def test_the_original_counts_whether_it_says_so_or_not(self) -> None:
        duplicates = [member(1), member(2, Status.EXACT_DUPLICATE)]
        silent = folded(duplicates)
        said = folded([duplicates[0], member(0, Status.ORIGINAL), duplicates[1]])

        assert (silent.size, silent.exact_duplicates, silent.near_duplicates) == (3, 1, 1)
        assert (said.size, said.exact_duplicates, said.near_duplicates) == (3, 1, 1)
        assert (silent.revision, said.revision) == (2, 3)

    def test_times_are_the_earliest_and_the_latest_whatever_the_order(self) -> None:
        group = folded([member(1, time=5.0), member(2), member(3, time=-1.5), member(4, time=2.0)])

        assert (group.first_seen, group.last_seen) == (-1.5, 5.0)

    def test_a_group_without_times_and_origins_names_none(self) -> None:
        assert set(fields_of(folded([member(1)]))) == {
            "duplicate_id",
            "original_id",
            "size",
            "exact_duplicates",
            "near_duplicates",
            "revision",
            "first_members",
        }

    def test_a_member_is_made_of_a_document_and_its_decision(self) -> None:
        document = Document(7, "text", 12.5, "topic/0/1", "o" * 999)
        decision = Decision(
            Status.NEAR_DUPLICATE, NAME, "a", Method.FUSED, "f" * 16, 0.75, hamming_distance=3
        )

        made = Member.of(document, decision)

        assert made == member(
            7, time=12.5, origin="o" * MAX_ORIGIN_CHARACTERS, similarity=0.75, hamming_distance=3
        )
        assert made.listed().id == 7


class TestBounds:
    def test_the_first_and_the_latest_members_are_listed(self) -> None:
        group = folded([member(number) for number in range(10)])

        assert [one.id for one in group.first_members] == [0, 1, 2]
        assert [one.id for one in group.latest_members] == [7, 8, 9]

    def test_a_small_group_lists_each_member_once(self) -> None:
        group = folded([member(number) for number in range(5)])

        assert [one.id for one in group.first_members + group.latest_members] == [0, 1, 2, 3, 4]

    def test_other_limits_hold_from_the_next_member_on(self) -> None:
        group = folded([member(n, origin=str(n)) for n in range(20)])

        group.fold(member(20), Limits(5, 4))
        assert [one.id for one in group.first_members] == [0, 1, 2]
        group.fold(member(21, origin="x"), Limits(1, 2))
        assert [one.id for one in group.first_members + group.latest_members] == [0, 21]
        assert len(group.sources) == 2
        assert sum(s.count - s.over for s in group.sources) + group.other_sources == 21
        group.fold(member(22, origin="x"), Limits(0, 0))
        assert group.first_members + group.latest_members + group.sources == []
        assert group.other_sources == 22

    def test_a_viral_group_takes_constant_bytes(self) -> None:
        """100,000 copies from 5,000 origins take no more than the first 1,000."""
        rng = random.Random(1)
        group = Group.begin(member(0))
        limits = Limits(10, 20)
        sizes = []
        for number in range(100_000):
            origin = f"site-{int(rng.paretovariate(0.7)) % 5000:04}"
            one = member(number + 1_000_000, origin=origin, time=1e9 + number, similarity=0.9375)
            assert group.apply(one, 3, number + 1_000_000, limits)
            if number % 1000 == 999:
                sizes.append(len(encode(group)))

        assert group.size == 100_001
        # Counts have more digits, and that is all.
        assert max(sizes) <= sizes[0] + 20 * 2 * 3 + 100
        assert max(sizes) < 5000

    @given(st.lists(st.integers(0, 12), min_size=1, max_size=300), st.integers(1, 6))
    def test_frequent_origins_are_listed(self, origins: list[int], places: int) -> None:
        members = [member(0, origin=str(origin)) for origin in origins]

        group = folded(members, Limits(0, places))

        listed = {source.origin for source in group.sources}
        assert len(listed) <= places
        for origin, count in Counter(str(origin) for origin in origins).items():
            assert origin in listed or count <= len(origins) / places

    @given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), max_size=200))
    def test_counts_are_within_their_bounds_however_the_limit_changes(
        self, steps: list[tuple[int, int]]
    ) -> None:
        truth: Counter[str] = Counter()
        group = Group.begin(member(0))
        for number, places in steps:
            group.fold(member(0, origin=str(number)), Limits(0, places))
            truth[str(number)] += 1

            for source in group.sources:
                assert source.count - source.over <= truth[source.origin] <= source.count
            certain = sum(source.count - source.over for source in group.sources)
            assert certain + group.other_sources == truth.total()
            counts = [source.count for source in group.sources]
            assert counts == sorted(counts, reverse=True)


class TestRedelivery:
    @given(st.data())
    def test_a_prefix_that_comes_again_changes_nothing(self, data: st.DataObject) -> None:
        """However often a reader of two partitions goes back, the state is that of one reading."""
        logs = {p: [member(10 * p + n, origin=str(n)) for n in range(6)] for p in (0, 1)}
        order = data.draw(st.permutations([0] * 6 + [1] * 6))
        group, truth = Group.begin(member(0)), Group.begin(member(0))
        at = {0: 0, 1: 0}
        for partition in order:
            back = data.draw(st.integers(0, at[partition]))
            for offset in range(back, at[partition] + 1):
                applied = group.apply(logs[partition][offset], partition, offset, LIMITS)
                assert applied == (offset == at[partition])
            truth.fold(logs[partition][at[partition]], LIMITS)
            at[partition] += 1

        truth.applied = {"0": 5, "1": 5}
        assert group == truth
        assert decode_group(encode(group)) == group


class TestEncoding:
    def test_a_state_that_was_written_can_be_folded_on(self) -> None:
        members = [member(n, origin=f"o{n % 5}", time=float(n)) for n in range(20)]
        one = Group.begin(members[0])
        for offset, each in enumerate(members):
            one.apply(each, 0, offset, LIMITS)
            one = decode_group(encode(one))

        other = folded(members)
        other.applied = {"0": 19}
        assert one == other

    @pytest.mark.parametrize("name", ["", "x" * 24, NAME[:-1], NAME.upper()])
    def test_a_name_that_is_none_is_refused(self, name: str) -> None:
        value = encode(member(1)).replace(NAME.encode(), name.encode())

        with pytest.raises(ValueError, match="duplicate_id"):
            decode_group(value.replace(b'"id":1', b'"size":1'))


def fields_of(group: Group) -> list[str]:

    return list(json.loads(encode(group)))
