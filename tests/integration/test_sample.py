"""Samples of an index in Redis: what they find, who takes them, and what they may."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from prometheus_client import REGISTRY
from redis import RedisCluster
from stream_dedup_workers.sampling import Report

from stream_dedup import Deduplicator, Document, Method, Settings
from stream_dedup.index import sample as module
from stream_dedup.index.redis import RedisIndex
from stream_dedup.index.sample import Node, Sample, Sampler
from tests.services.redis import RedisServer

Make = Callable[..., Sampler]

TABLES = 16


@pytest.fixture(params=["redis_url", "redis_cluster_url"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param)
    return found


def fill(settings: Settings, count: int, text: str = "all of them begin with other words") -> None:
    with Deduplicator(settings, index=RedisIndex.connect(settings)) as deduplicator:
        documents = [Document(n, f"{n} {n * n} {n + 7} {text} {n * 31}") for n in range(count)]
        deduplicator.decide(documents)


@pytest.fixture
def sampler(url: str) -> Iterator[Make]:
    """Return what makes an index of so many originals, and a sampler of it."""
    opened = []

    def make(originals: int, *, interval: float = 1000.0, **values: object) -> Sampler:
        settings = Settings.model_validate({"redis_url": url, "partitions": 4} | values)
        fill(settings, originals)
        index = RedisIndex.connect(settings)
        opened.append(index)
        return Sampler(index.store.client, index.store.layout, interval, seed=1)

    yield make
    for index in opened:
        index.close()


def test_a_small_index_is_counted_whole(sampler: Make) -> None:
    found = sampler(40, expected_originals=1000).take()

    assert found.originals == 40
    tables = {str(number) for number in range(TABLES)}
    assert found.entries.keys() == {*tables, "ids"}
    assert set(found.entries.values()) == {40.0}
    assert found.mean >= 1
    assert max(found.longest.values()) >= found.mean


def test_a_large_one_is_estimated(sampler: Make) -> None:
    found = sampler(3000, expected_originals=20_000).take()

    # 1,024 or 2,048 sets in each table, a quarter to an eighth of them sampled.
    assert sum(found.entries.values()) / (TABLES + 1) == pytest.approx(3000, rel=0.1)
    assert all(1500 < entries < 5000 for entries in found.entries.values())


def test_an_empty_one_has_nothing(sampler: Make) -> None:
    found = sampler(0).take()

    assert (found.originals, found.mean, found.longest) == (0, 0.0, {})
    assert set(found.entries.values()) == {0.0}


def test_the_longest_are_followed(sampler: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = sampler(200, expected_originals=1000)
    before = whole.take()
    # From now on hardly any is drawn.
    monkeypatch.setattr(module, "SETS", 1)

    after = whole.take()

    assert max(after.longest.values()) == max(before.longest.values())


def test_memory_is_that_of_each_node_that_takes_writes(sampler: Make) -> None:
    one = sampler(1)

    found = one.take()

    assert found.nodes is not None
    assert len(found.nodes) == (3 if isinstance(one._client, RedisCluster) else 1)
    assert all(node.used > 500_000 for node in found.nodes)
    assert all(node.limit >= 0 for node in found.nodes)


class TestTurns:
    def test_one_of_many_has_it(self, sampler: Make) -> None:
        one = sampler(1)
        other = Sampler(one._client, one._layout, 1000)

        assert [one.turn(), other.turn(), one.turn()] == [True, False, False]

    def test_it_comes_back_after_the_interval(self, sampler: Make) -> None:
        one = sampler(1, interval=0.001)

        assert one.turn()
        assert any(one.turn() for _ in range(1000))

    def test_the_others_read_what_it_left(self, sampler: Make) -> None:
        one = sampler(3, expected_originals=1000)
        other = Sampler(one._client, one._layout, 1000)
        assert other.latest() is None

        found = one.take()

        assert other.latest() == found

    def test_what_another_version_left_is_passed_over(self, sampler: Make) -> None:
        one = sampler(3)
        one._client.set(f"{one._layout.index_key}:sample", b'{"time":1}')

        assert one.latest() is None
        assert one.take().originals == 3


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


def test_a_full_redis_can_be_sampled_by_all(server: RedisServer) -> None:
    settings = Settings(redis_url=server.url)
    fill(settings, 3)
    with closing(RedisIndex.connect(settings)) as index:
        one = Sampler(index.store.client, index.store.layout, 1000)
        with server.client() as client:
            client.config_set("maxmemory", 1)

        assert [one.turn(), one.turn()] == [True, True]
        found = one.take()

    assert found.originals == 3
    assert found.nodes is not None
    assert found.nodes[0].limit == 1


def test_a_user_who_may_not_ask_for_memory_gets_the_rest(server: RedisServer) -> None:
    fill(Settings(redis_url=server.url), 3)
    rules = ["+@all", "-info", "~sd:*", "on", ">pw"]
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "narrow", *rules)  # type: ignore[no-untyped-call]
    settings = Settings(redis_url=server.url.replace("redis://", "redis://narrow:pw@"))
    with closing(RedisIndex.connect(settings)) as index:
        found = Sampler(index.store.client, index.store.layout, 1000).take()

    assert found.originals == 3
    assert found.nodes is None


class TestReport:
    def value(self, name: str, **labels: str) -> float | None:
        return REGISTRY.get_sample_value(f"stream_dedup_{name}", labels)

    def sample(self, *nodes: Node) -> Sample:
        return Sample(9.5, 500, {"0": 480.0, "ids": 500.0}, 15.5, {"a": 40, "b": 3}, list(nodes))

    def test_every_metric_is_set(self) -> None:
        settings = Settings(expected_originals=1000, method=Method.SIMHASH)

        Report(settings).tell(self.sample(Node(30, 100), Node(50, 100)))

        assert self.value("index_originals") == 500
        assert self.value("index_planned_originals") == 1000
        assert self.value("index_entries", table="0") == 480
        assert self.value("index_entries", table="ids") == 500
        assert self.value("index_fullest_key_entries") == 40
        assert self.value("index_mean_key_entries") == 15.5
        assert self.value("index_sample_timestamp_seconds") == 9.5
        assert self.value("redis_memory_bytes", kind="used") == 80
        assert self.value("redis_memory_bytes", kind="max") == 200
        assert self.value("redis_fullest_node_ratio") == 0.5
        planned = self.value("redis_memory_bytes", kind="planned")
        assert planned is not None
        assert 100_000 < planned < 1_000_000
        # Prefixes of about 32 bits for 500 originals.
        candidates = self.value("index_planned_candidates")
        assert candidates is not None
        assert 0 < candidates < 0.1

    def test_one_node_without_a_limit_leaves_none(self) -> None:
        Report(Settings()).tell(self.sample(Node(30, 100), Node(50, 0)))

        assert self.value("redis_memory_bytes", kind="max") == 0
        assert self.value("redis_fullest_node_ratio") == 0.3
