"""States of groups in Redis, one node and a Cluster: swapped once, and missed when gone."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from stream_dedup import metrics
from stream_dedup.errors import ConfigurationMismatch, ServiceError
from stream_dedup.groups import Limits, Member, decode_group, encode, fold_all
from stream_dedup.index import group_store
from stream_dedup.index.connection import nodes_of
from stream_dedup.index.group_store import ABSENT, GroupsLostError, GroupStore, Held, Swap
from stream_dedup.settings import Settings
from stream_dedup.stream.keeper import Keeper
from stream_dedup.types import Status
from tests.services.redis import RedisServer

ONE, OTHER = "5f0c3b8a91d2e4467c1a0b9f", "00000001" + "0" * 16
LIMITS = Limits(3, 3)


class At:
    """The place of a record, and what it holds."""

    topic = "members"
    key = None
    headers = ()

    def __init__(
        self, partition: int, offset: int, value: bytes | None = None, timestamp: int = 0
    ) -> None:
        self.partition, self.offset, self.value = partition, offset, value
        self.timestamp = timestamp


@pytest.fixture(params=["node", "cluster"])
def settings(request: pytest.FixtureRequest) -> Settings:
    url = request.getfixturevalue("redis_url" if request.param == "node" else "redis_cluster_url")
    return Settings(redis_url=url, partitions=16, group_members=3, group_sources=3)


@pytest.fixture
def store(settings: Settings) -> Iterator[GroupStore]:
    store = GroupStore.connect(settings)
    store.begin()
    store.complete()
    yield store
    store.close()


def keeper(settings: Settings, store: GroupStore, *published: Sequence[Any]) -> Keeper:
    return Keeper(settings, store, lambda: published, time)


def generated(count: int, groups: int = 40) -> list[tuple[Any, Member]]:
    """Members of some groups in two partitions, as a topic has them."""
    rng = random.Random(5)
    members = []
    for number in range(count):
        group = rng.randrange(groups)
        member = Member(
            duplicate_id=f"{group * 2654435761 % 2**32:08x}{'0' * 16}",
            original_id=f"ä-{group}",
            id=number,
            status=rng.choice([Status.NEAR_DUPLICATE, Status.EXACT_DUPLICATE]),
            time=rng.choice([None, number / 3]),
            origin=rng.choice(["", *"abcdef"]),
            similarity=rng.random(),
        )
        members.append((At(group % 2, number), member))
    return members


class TestStates:
    def test_a_state_is_put_only_in_the_place_of_the_one_expected(self, store: GroupStore) -> None:
        assert store.swap([Swap(ONE, 0, Held(2, b"b")), Swap(OTHER, 0, Held(1, b"o"))]) == {}

        assert store.swap([Swap(OTHER, 1, Held(2, b"p")), Swap(ONE, 0, Held(1, b"a"))]) == {
            1: Held(2, b"b")
        }
        assert store.swap([Swap(ONE, 1, Held(3, b"c"))]) == {0: Held(2, b"b")}
        assert store.swap([Swap(ONE, 2, Held(2**40, b"c" * 5000))]) == {}

        assert store.read([OTHER, "f" * 24, ONE]) == [
            Held(2, b"p"),
            ABSENT,
            Held(2**40, b"c" * 5000),
        ]

    def test_a_state_may_have_an_end(self, store: GroupStore) -> None:
        store.swap([Swap(ONE, 0, Held(1, b"a"), ttl=0.05), Swap(OTHER, 0, Held(1, b"a"), ttl=99.0)])

        time.sleep(0.2)

        assert store.read([ONE, OTHER]) == [ABSENT, Held(1, b"a")]

    def test_many_states_in_several_calls(
        self, store: GroupStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(group_store, "_ROWS", 2)
        names = [f"{number:08x}" + "0" * 16 for number in range(100)]
        states = [Held(number + 1, str(number).encode()) for number in range(100)]
        swaps = [Swap(name, 0, state) for name, state in zip(names, states, strict=True)]

        assert store.swap(swaps[:50]) == {}
        assert store.swap(swaps) == dict(enumerate(states[:50]))
        assert store.read(names) == states

    def test_lost_states_are_missed(self, settings: Settings, store: GroupStore) -> None:
        store.swap([Swap(ONE, 0, Held(1, b"a"))])
        empty(store)

        with pytest.raises(GroupsLostError):
            store.read([ONE])
        with pytest.raises(GroupsLostError):
            store.swap([Swap(ONE, 1, Held(2, b"b"))])
        store.begin()
        assert store.read([ONE], complete=False) == [ABSENT]

    def test_states_that_are_lost_while_they_are_put_back_are_missed(
        self, store: GroupStore
    ) -> None:
        empty(store)
        store.begin()
        with pytest.raises(GroupsLostError):
            store.read([ONE])
        store.swap([Swap(ONE, 0, Held(1, b"a"))], complete=False)
        empty(store)

        with pytest.raises(GroupsLostError):
            store.swap([Swap(OTHER, 0, Held(1, b"a"))], complete=False)
        with pytest.raises(GroupsLostError):
            store.complete()
        assert not store.enter()
        with pytest.raises(GroupsLostError):
            store.read([ONE])

    def test_two_processes_may_put_states_back_at_once(
        self, settings: Settings, store: GroupStore
    ) -> None:
        empty(store)
        other = GroupStore.connect(settings)
        store.begin()
        other.begin()
        other.swap([Swap(ONE, 0, Held(1, b"a"))], complete=False)
        other.complete()

        assert store.swap([Swap(ONE, 0, Held(1, b"a"))], complete=False) == {0: Held(1, b"a")}
        store.complete()

        assert store.read([ONE]) == other.read([ONE]) == [Held(1, b"a")]
        other.close()

    def test_states_that_another_process_put_back_are_missed_too(
        self, settings: Settings, store: GroupStore
    ) -> None:
        empty(store)
        other = GroupStore.connect(settings)
        assert not other.enter()
        other.begin()
        other.complete()
        assert other.read([ONE]) == [ABSENT]

        with pytest.raises(GroupsLostError):
            store.read([ONE])
        assert store.enter()
        assert store.read([ONE]) == [ABSENT]
        other.close()

    def test_another_number_of_partitions_is_refused(
        self, settings: Settings, store: GroupStore
    ) -> None:
        other = GroupStore.connect(settings.model_copy(update={"partitions": 8}))

        with pytest.raises(ConfigurationMismatch, match="over 16 partitions, not over 8"):
            other.enter()
        other.close()

    def test_too_few_replicas(self, settings: Settings) -> None:
        settings = settings.model_copy(update={"wait_replicas": 1, "wait_timeout": 0.02})
        store = GroupStore.connect(settings)
        store.begin()
        store.complete()

        with pytest.raises(ServiceError, match="0 of 1 replicas"):
            store.swap([Swap(ONE, 0, Held(1, b"a"))])
        store.close()


class TestFolding:
    def test_the_same_states_as_without_a_server(
        self, settings: Settings, store: GroupStore
    ) -> None:
        members = generated(1000)
        keep = keeper(settings, store)
        for start in range(0, 1000, 90):
            keep.fold(members[start : start + 90])

        found = states(store, members)
        for group in found.values():
            assert len(group.applied) == 1
            group.applied = {}
        assert found == fold_all((member for _, member in members), LIMITS)

    def test_members_that_come_again_change_nothing(
        self, settings: Settings, store: GroupStore
    ) -> None:
        """Two processes, one of them behind and not aware of it, as after a rebalance."""
        members = generated(600)
        zombie, owner = keeper(settings, store), keeper(settings, store)
        rng = random.Random(2)
        done = 0
        while done < 600:
            zombie.fold(members[: rng.randrange(done + 1)])
            ahead = min(600, done + rng.randrange(1, 80))
            published = owner.fold(members[rng.randrange(done + 1) : ahead])
            done = ahead
            assert all(decode_group(value).revision for value in published.values())

        found = states(store, members)
        truth = fold_all((member for _, member in members), LIMITS)
        assert {n: (g.size, g.sources, g.latest_members) for n, g in found.items()} == {
            n: (g.size, g.sources, g.latest_members) for n, g in truth.items()
        }

    def test_two_that_fold_one_group_at_once(self, settings: Settings, store: GroupStore) -> None:
        """The state changes between reading and putting: it is read and folded again."""
        members = generated(200, groups=3)
        keep = keeper(settings, store)
        rival = keeper(settings, store)

        class Meddling:
            """Folds something else just before each first swap."""

            meddled = 0

            def swap(self, swaps: Sequence[Swap], **_: Any) -> dict[int, Held]:
                if Meddling.meddled < 2:
                    Meddling.meddled += 1
                    rival.fold(members[: 100 * Meddling.meddled])
                return store.swap(swaps)

            def __getattr__(self, name: str) -> Any:
                return getattr(store, name)

        keep._states = Meddling()
        keep.fold(members)

        truth = fold_all((member for _, member in members), LIMITS)
        sizes = {name: group.size for name, group in states(store, members).items()}
        assert sizes == {name: group.size for name, group in truth.items()}


class TestRestoring:
    def test_what_was_published_is_put_back_unless_there_is_newer(
        self, settings: Settings, store: GroupStore
    ) -> None:
        members = generated(300)
        keep = keeper(settings, store)
        published = [keep.fold(members[start : start + 50]) for start in range(0, 300, 50)]
        complete = states(store, members)
        topic = [[At(0, n, value) for n, value in enumerate(batch.values())] for batch in published]
        empty(store)

        assert not store.enter()
        keep = keeper(settings, store, *topic)
        keep.open()

        assert states(store, members) == complete
        assert keep.restore() == 0
        assert keep.fold(members[250:]) == published[-1]

    def test_states_that_have_had_their_time_stay_away(
        self, settings: Settings, store: GroupStore
    ) -> None:
        settings = settings.model_copy(update={"group_ttl": 60.0})
        groups = fold_all((member for _, member in generated(100, groups=2)), LIMITS)
        old, new = (encode(group) for group in groups.values())
        now = int(time.time() * 1000)
        records = [At(0, 0, old, now - 61_000), At(0, 1, None, now), At(0, 2, new, now - 59_000)]

        assert keeper(settings, store, records).restore() == 1
        assert [bool(held.value) for held in store.read(list(groups))] == [False, True]

    def test_messages_that_are_no_states_are_passed_over(
        self, settings: Settings, store: GroupStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        groups = fold_all((member for _, member in generated(100, groups=2)), LIMITS)
        good = [encode(group) for group in groups.values()]
        name, revision = next(iter(groups)).encode(), b'"revision":'
        deep = b'{"other":' + b"[" * 10_000 + b"]" * 10_000 + b","
        foreign = [
            good[0].replace(b"{", deep, 1),
            *(b"", b"\xff", b"null", b"[1]", b'{"size": 1}'),
            good[0].replace(name, name + b"\\n"),
            *(good[0].replace(revision, revision + more) for more in (b"-", b"0.", b"9" * 20)),
        ]
        before = metrics.foreign_states_total._value.get()
        records = [At(0, n, value) for n, value in enumerate([good[0], *foreign, good[1]])]

        assert keeper(settings, store, records).restore() == 2
        assert [held.value for held in store.read(list(groups))] == good
        assert metrics.foreign_states_total._value.get() == before + len(foreign)
        assert "members/0/1 of groups_topic is passed over" in caplog.text


def states(store: GroupStore, members: Sequence[tuple[Any, Member]]) -> dict[str, Any]:
    names = list(dict.fromkeys(member.duplicate_id for _, member in members))
    return {
        name: decode_group(held.value) for name, held in zip(names, store.read(names), strict=True)
    }


def empty(store: GroupStore) -> None:
    """Lose the data of every node; the Functions stay."""
    for node in nodes_of(store._client):
        node.flushall()


def test_the_documented_user_can_keep_groups() -> None:
    page = (Path(__file__).parents[2] / "docs" / "groups.md").read_text()
    rules = re.findall(r"`(\+fcall[^`]*)`", page)[0].replace("NAMESPACE", "sd").split()
    with RedisServer() as server:
        GroupStore.connect(Settings(redis_url=server.url)).enter()
        with server.client() as client:
            client.acl_setuser("groups", enabled=True, passwords=["+pw"], reset=True)
            client.execute_command("ACL", "SETUSER", "groups", *rules)  # type: ignore[no-untyped-call]
        url = server.url.replace("redis://", "redis://groups:pw@")
        store = GroupStore.connect(Settings(redis_url=url))
        assert not store.enter()
        store.begin()
        store.complete()

        assert store.swap([Swap(ONE, 0, Held(1, b"a"), 5.0), Swap(OTHER, 0, Held(1, b"a"))]) == {}
        assert store.read([ONE]) == [Held(1, b"a")]
        store.close()
