"""Markers beside the offsets: what counts as a death, and what a healthy record is spared."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.stream.attempts import LIVES, MOST_DOUBLINGS, Attempts, Marker, Place
from stream_dedup.stream.transport import Partition

ONE: Partition = ("documents", 0)
TWO: Partition = ("documents", 1)


class Group:
    """What stands beside the offsets of a group, and the lives of workers that go on from it."""

    def __init__(self) -> None:
        self.places = {ONE: Place(0), TWO: Place(0)}
        self.writes = 0
        self.begin()

    def begin(self) -> None:
        """A life begins: nothing is in memory."""
        self.attempts = Attempts()

    def write(self, places: dict[Partition, Place]) -> None:
        self.writes += bool(places)
        for partition, place in places.items():
            assert place.offset >= self.places[partition].offset, "offsets go back"
            self.places[partition] = place

    def look(self, *partitions: Partition) -> bool:
        unknown = self.attempts.unknown(partitions)
        for partition in unknown:
            self.attempts.find(partition, self.places[partition])
        return bool(unknown)

    def work(self, partition: Partition = ONE, count: int = 5) -> int | None:
        """Begin on records; return the number of them, or None when one is given up."""
        new = self.look(partition)
        offset = self.places[partition].offset
        if not self.attempts.careful:
            if new:
                self.write(self.attempts.begin({partition: offset + count}))
            return count
        self.write(self.attempts.begin_alone(partition, offset))
        return None if self.attempts.verdict(partition) else 1

    def publish(self, count: int, partition: Partition = ONE) -> None:
        offsets = {partition: self.places[partition].offset + count}
        self.write(self.attempts.places(offsets))
        self.attempts.passed(offsets)

    def end_orderly(self) -> None:
        self.write(self.attempts.take_back(self.places))
        self.begin()

    def deaths(self, culprit: int, count: int) -> int:
        """Let workers go on until so many records are done; return how many of them died."""
        died = 0
        while self.places[ONE].offset < count:
            taken = self.work(count=count - self.places[ONE].offset)
            offset = self.places[ONE].offset
            if taken is not None and offset <= culprit < offset + taken:
                died += 1
                self.begin()
            else:
                self.publish(taken or 1)
        return died


def test_a_culprit_is_given_up_after_so_many_lives_with_it_alone() -> None:
    group = Group()

    assert group.deaths(culprit=3, count=10) == 1 + LIVES

    assert Marker.read(group.places[ONE].metadata) is None


def test_whoever_works_in_order_writes_once_for_each_partition() -> None:
    group = Group()
    for _ in range(20):
        for partition in (ONE, TWO):
            taken = group.work(partition)
            assert taken == 5
            group.publish(taken, partition)

    assert group.writes == 40 + 2
    assert {place.metadata for place in group.places.values()} == {""}


@given(st.lists(st.sampled_from(["die", "stop", "publish"]), max_size=60))
def test_a_death_with_many_blames_nobody(script: list[str]) -> None:
    """Kills and stops at any moment, but never again and again with one record alone."""
    group = Group()
    in_a_row = 0
    for step in script:
        taken = group.work()
        assert taken is not None
        if step == "die":
            in_a_row += taken == 1
            if in_a_row >= LIVES:
                step = "publish"  # noqa: PLW2901
            else:
                group.begin()
        if step == "stop":
            group.end_orderly()
        if step == "publish":
            in_a_row = 0
            group.publish(taken)


def test_orderly_ends_leave_what_was_found() -> None:
    group = Group()
    group.work()
    group.begin()
    group.work()
    group.begin()  # died with the record alone
    before = group.places[ONE]

    for _ in range(20):
        assert group.work() == 1
        assert group.places[ONE] != before
        group.end_orderly()
        assert group.places[ONE] == before


def test_what_somebody_else_has_gone_on_from_is_not_taken_back() -> None:
    """As of a commit whose answer was lost, or of a partition that others have had meanwhile."""
    group = Group()
    group.work()
    mine = group.attempts
    group.places[ONE] = Place(5)

    assert mine.take_back(group.places) == {}


def test_the_next_record_is_not_blamed_for_the_last() -> None:
    """The commit has taken effect, and its answer was lost."""
    group = Group()
    group.work()
    for _ in range(LIVES):
        group.begin()
        assert group.work() == 1
    group.begin()
    assert group.work() is None
    group.write(group.attempts.places({ONE: 1}))  # and ``passed`` is never called

    group.attempts.look_again()

    assert group.work() == 1


def test_an_own_marker_is_no_death() -> None:
    """Partitions that go to others and come back, or a publish that failed."""
    group = Group()
    group.work()
    group.attempts.reset()
    assert group.work() == 5
    group.attempts.look_again()
    assert group.work() == 5

    group.begin()
    for _ in range(LIVES + 2):
        assert group.work() == 1
        group.attempts.reset()


def test_one_given_up_behind_another_takes_twice_as_many_lives() -> None:
    """So that a program that dies at everything does not empty a topic."""
    group = Group()
    lives = []
    group.work()
    for _ in range(MOST_DOUBLINGS + 3):
        lives.append(0)
        group.begin()
        while group.work() is not None:
            lives[-1] += 1
            group.begin()
        group.publish(1)

    assert lives == [LIVES << min(row, MOST_DOUBLINGS) for row in range(MOST_DOUBLINGS + 3)]

    group.begin()
    assert group.work() == 1
    group.publish(1)  # one that does no harm
    left = Marker.read(group.places[ONE].metadata)
    assert left is None or not left.row


def test_processes_that_take_a_partition_from_each_other_are_not_dead() -> None:
    """As when they are stopped past their session, in turn."""
    group = Group()
    group.work()
    group.begin()
    one, other = group.attempts, Attempts()
    for _ in range(10):
        for group.attempts in (one, other):
            group.attempts.reset()
            assert group.work() == 1
    standing = Marker.read(group.places[ONE].metadata)
    assert standing is not None
    assert standing.ended == 1


def test_who_dies_even_at_the_dead_letter_leaves_nothing_of_it() -> None:
    group = Group()
    group.work()
    for _ in range(LIVES):
        group.begin()
        group.work()
    group.begin()
    assert group.work() is None
    first = group.attempts.verdict(ONE)
    group.begin()
    assert group.work() is None
    second = group.attempts.verdict(ONE)

    assert first is not None
    assert second is not None
    assert (first.gives_up_bytes, second.gives_up_bytes) == (False, True)


def test_a_marker_stands_where_the_group_has_come_to() -> None:
    """Also of a partition that has gone on for long when another becomes suspect."""
    group = Group()
    group.work(TWO)
    group.begin()
    for _ in range(3):
        taken = group.work(ONE)
        assert taken == 5
        group.publish(taken, ONE)
    group.look(TWO)

    assert group.work(ONE) == 1
    assert group.places[ONE].offset == 15


def test_the_other_partition_is_not_blamed() -> None:
    group = Group()
    group.work(ONE)
    group.work(TWO)
    for _ in range(LIVES):
        group.begin()
        group.look(ONE, TWO)
        assert group.work(ONE) == 1  # and it dies
    group.begin()

    assert group.work(TWO) == 1
    assert group.work(ONE) is None


@pytest.mark.parametrize(
    "metadata",
    [None, "", "\0", "somebody else's", '{"not_json": [[1, 2]]}', "{", "\ud800", '{"end": 1}',
     '{"stream_dedup_attempt": 2, "end": 1, "by": ""}'],
)  # fmt: skip
def test_what_is_no_marker_is_none(metadata: str | None) -> None:
    assert Marker.read(metadata) is None


@pytest.mark.parametrize("zero", ["", "\0"])
def test_a_marker_is_read_as_it_was_written(zero: str) -> None:
    marker = Marker(10**18, "0123abcd", ("0123abcd",) * 26, 9, careful=True)

    assert Marker.read(marker.written() + zero) == marker
    assert len(marker.written()) < 500
