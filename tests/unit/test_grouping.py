"""The loop of groups over a scripted topic and states in memory: each member counts once."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stream_dedup.errors import ServiceError
from stream_dedup.groups import Group, Limits, Member, decode_group, encode, fold_all
from stream_dedup.index.group_store import ABSENT, GroupsLostError, Held, Swap
from stream_dedup.settings import Settings
from stream_dedup.stream.grouping import GroupLoop, settings_of_groups
from stream_dedup.stream.keeper import Keeper
from stream_dedup.stream.patience import GIVE_UP_SECONDS
from stream_dedup.stream.transport import Output, Partition, PublishError, Record
from stream_dedup.types import Status

SETTINGS = settings_of_groups(
    Settings(groups_topic="groups", group_members=2, group_sources=2, batch_documents=5)
)
LIMITS = Limits(2, 2)
#: What may go wrong, once each time it stands in a script.
LOST, LATE, AWAY, EMPTY = "publishing lost", "publishing late", "Redis away", "Redis empty"


class Message(NamedTuple):
    """A record of the members topic, or of the groups topic."""

    value: bytes | None
    partition: int = 0
    offset: int = 0
    topic: str = "documents.members"
    key: bytes | None = b"k"
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp: int = 0


class Log:
    """Members in two partitions, and what has been published."""

    def __init__(self, values: Sequence[bytes | None], script: list[str]) -> None:
        self.messages = [Message(value, n % 2, n // 2) for n, value in enumerate(values)]
        self.script = script
        self.at = self.committed = 0
        self.published: list[Output] = []

    def poll(self) -> Sequence[Record]:
        batch = self.messages[self.at : self.at + 5]
        self.at += len(batch)
        return batch

    def publish(self, outputs: Sequence[Output]) -> None:
        step = self.script.pop() if self.script and self.script[-1] in {LOST, LATE} else None
        if step != LOST:
            self.published += outputs
            self.committed = self.at
        if step is not None:
            self.at = self.committed
            raise PublishError(step)

    def states(self) -> list[Sequence[Record]]:
        """What was published, as a reader of the compacted topic has it."""
        outputs = [output for output in self.published if output.topic == "groups"]
        return [[Message(output.value, timestamp=int(time.time() * 1000))] for output in outputs]

    def lag(self) -> Mapping[Partition, int]:
        return {}

    def joined(self) -> bool:
        return True

    def stay(self) -> None:
        pass

    def unmark(self) -> None:
        pass

    def close(self) -> None:
        pass


class MemoryStates:
    """Does as Redis does, and fails as scripted."""

    def __init__(self, script: list[str]) -> None:
        self.script = script
        self.held: dict[str, Held] = {}
        #: How often everything was lost, as it is and as the process knows; what is complete.
        self.life = self.known = 0
        self.whole: int | None = None

    def enter(self) -> bool:
        self.known = self.life
        return self.whole == self.life

    def begin(self) -> None:
        self.known = self.life

    def complete(self) -> None:
        self._check(complete=False)
        self.whole = self.life

    def read(self, ids: Sequence[str], *, complete: bool = True) -> list[Held]:
        self._fail(complete=complete)
        return [self.held.get(name, ABSENT) for name in ids]

    def swap(self, swaps: Sequence[Swap], *, complete: bool = True) -> dict[int, Held]:
        self._check(complete=complete)
        refused = {}
        for number, swap in enumerate(swaps):
            stands = self.held.get(swap.duplicate_id, ABSENT)
            if stands.revision == swap.expected:
                self.held[swap.duplicate_id] = swap.held
            else:
                refused[number] = stands
        self._fail(complete=complete)  # after it was done, which nobody can tell
        return refused

    def _check(self, *, complete: bool) -> None:
        if self.known != self.life or (complete and self.whole != self.life):
            raise GroupsLostError(EMPTY)

    def _fail(self, *, complete: bool) -> None:
        step = self.script.pop() if self.script and self.script[-1] in {AWAY, EMPTY} else None
        if step == AWAY:
            raise ServiceError(AWAY)
        if step == EMPTY:
            self.held = {}
            self.life += 1
        self._check(complete=complete)


class Clock:
    """Time passes only while somebody sleeps."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return time.time()

    def sleep(self, seconds: float, /) -> None:
        self.now += seconds


def member(number: int, group: int) -> Member:
    return Member(
        duplicate_id=f"{group:024x}",
        original_id=0,
        id=number,
        status=Status.EXACT_DUPLICATE,
        origin=f"o{number % 5}",
    )


def run(values: Sequence[bytes | None], script: Sequence[str] = ()) -> Log:
    """Go on until everything is committed."""
    steps = list(script)
    log = Log(values, steps)
    states, clock = MemoryStates(steps), Clock()
    keeper = Keeper(SETTINGS, states, log.states, clock)
    keeper.open()
    done = lambda: log.committed == len(values)  # noqa: E731
    GroupLoop(SETTINGS, log, keeper, clock, stopping=done).run()
    return log


def last_states(log: Log) -> dict[str, Group]:
    found = {}
    for output in log.published:
        if output.topic == "groups":
            group = decode_group(output.value or b"")
            assert output.by_key
            assert output.key == group.duplicate_id.encode()
            group.applied = {}
            found[group.duplicate_id] = group
    return found


class TestExactlyOnce:
    @example([0] * 6, [EMPTY, EMPTY, EMPTY, LATE])  # lost again when all was put back
    @given(
        st.lists(st.integers(0, 4), min_size=1, max_size=40),
        st.lists(st.sampled_from([LOST, LATE, AWAY, EMPTY]), max_size=12),
    )
    def test_each_member_counts_once_whatever_goes_wrong(
        self, groups: list[int], script: list[str]
    ) -> None:
        members = [member(number, group) for number, group in enumerate(groups)]

        log = run([encode(one) for one in members], script)

        assert last_states(log) == fold_all(members, LIMITS)

    def test_a_group_is_published_once_for_a_batch(self) -> None:
        log = run([encode(member(number, number % 2)) for number in range(10)])

        assert [output.key for output in log.published] == [b"%024x" % n for n in (0, 1, 1, 0)]

    def test_what_is_no_member_is_a_dead_letter(self) -> None:
        log = run([b"hello", None, b"{}", encode(member(1, 1)), b"\xff"])

        letters = [o for o in log.published if o.topic == "documents.dead-letter"]
        reasons = [dict(letter.headers)["dead-letter-reason"] for letter in letters]
        assert reasons == [b"not_json", b"tombstone", b"wrong_type", b"not_json"]
        assert len(last_states(log)) == 1


class TestRefusals:
    def test_a_state_that_is_refused_halts_nobody(self) -> None:
        """Its member is a dead letter, and stands in the state in Redis all the same."""
        values = [encode(member(number, number % 2)) for number in range(6)]
        log, clock, states = Refusing(values, []), Clock(), MemoryStates([])
        keeper = Keeper(SETTINGS, states, log.states, clock)
        keeper.open()
        GroupLoop(SETTINGS, log, keeper, clock, stopping=lambda: log.committed == len(values)).run()

        letters = [o for o in log.published if o.topic == "documents.dead-letter"]
        assert {dict(one.headers)["dead-letter-reason"] for one in letters} == {b"refused"}
        assert {one.record.partition for one in letters} == {1}
        assert clock.now == 0
        assert set(last_states(log)) == {f"{0:024x}"}
        assert len(states.held) == 2


class Refusing(Log):
    """Takes no state of the second group."""

    def publish(self, outputs: Sequence[Output]) -> None:
        refused = {
            (one.record.topic, one.record.partition, one.record.offset): "large"
            for one in outputs
            if one.topic == "groups" and one.key == b"%024x" % 1
        }
        if refused:
            self.at = self.committed
            raise PublishError(LOST, refused)
        super().publish(outputs)


class TestEnd:
    def test_it_gives_up_when_redis_stays_away(self) -> None:
        class Away(MemoryStates):
            def read(self, ids: Sequence[str], *, complete: bool = True) -> list[Held]:
                raise ServiceError(AWAY)

        log, clock = Log([encode(member(1, 1))], []), Clock()
        keeper = Keeper(SETTINGS, Away([]), log.states, clock)

        with pytest.raises(ServiceError, match=AWAY):
            GroupLoop(SETTINGS, log, keeper, clock).run()
        assert GIVE_UP_SECONDS <= clock.now < 2 * GIVE_UP_SECONDS

    def test_it_ends_while_redis_is_away_when_asked_to(self) -> None:
        log, clock = Log([encode(member(1, 1))], [AWAY]), Clock()
        states: Any = MemoryStates([AWAY])
        states.whole = states.life
        keeper = Keeper(SETTINGS, states, log.states, clock)

        loop = GroupLoop(SETTINGS, log, keeper, clock, stopping=lambda: log.at > 0)
        loop.run()

        assert log.published == []
