"""Redis that went back in time: restarted from an older snapshot, or emptied."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import pytest
from prometheus_client import REGISTRY

from stream_dedup import Deduplicator, Document, ServiceError, Settings, Status
from stream_dedup.index.keys import ClaimIds
from stream_dedup.index.redis import RedisIndex
from tests.services.redis import RedisCluster, RedisServer


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer(local=True) as server:
        yield server


def documents(name: str, count: int) -> list[Document]:
    """Make documents that are not near each other."""
    texts = [" ".join(f"{name}{n}x{place}" for place in range(30)) for n in range(count)]
    return [Document(f"{name}{n}", text, source=f"{name}{n}") for n, text in enumerate(texts)]


def copies(originals: Sequence[Document]) -> list[Document]:
    """Copy documents under other ids."""
    return [Document(f"copy of {one.id}", one.text, source="copies") for one in originals]


def snapshot(server: RedisServer) -> None:
    with server.client() as client:
        client.save()


def go_back(server: RedisServer) -> None:
    """Lose what came after the latest snapshot."""
    server.kill()
    server.start()


def decided(worker: Deduplicator, batch: Sequence[Document]) -> Counter[Status]:
    """Decide, again where Redis did not answer, as a worker of a stream does."""
    for _ in range(5):
        try:
            return Counter(decision.status for decision in worker.decide(batch))
        except ServiceError:
            continue
    pytest.fail("the batch was not decided")


@pytest.mark.parametrize("partitions", [1, 4])
def test_no_copy_of_what_was_decided_after_it_becomes_a_second_original(
    server: RedisServer, partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers would mint the same claim ids: one entered after the snapshot, one later."""
    settings = Settings(redis_url=server.url, partitions=partitions, expected_originals=1000)
    with ExitStack() as stack:

        def start() -> Deduplicator:
            worker = Deduplicator(settings, index=RedisIndex.connect(settings))
            stack.callback(worker.close)
            return worker

        before = start()
        assert decided(before, documents("kept", 5))[Status.ORIGINAL] == 5
        snapshot(server)
        running = start()
        assert decided(running, documents("lost", 5))[Status.ORIGINAL] == 5
        go_back(server)
        late = start()
        stop_clock(monkeypatch)

        for number in range(3):
            first, second = documents(f"x{number}-", 50), documents(f"y{number}-", 50)
            assert decided(running, first)[Status.ORIGINAL] == 50
            assert decided(late, second)[Status.ORIGINAL] == 50
            for worker in (before, running, late):
                assert set(decided(worker, copies([*first, *second]))) == {Status.EXACT_DUPLICATE}
        assert set(decided(running, copies(documents("kept", 5)))) == {Status.EXACT_DUPLICATE}
        # What was lost is new again, once.
        assert decided(running, copies(documents("lost", 5)))[Status.ORIGINAL] == 5


def lost_writes() -> float:
    """Count how often lost writes were noticed."""
    found = REGISTRY.get_sample_value("stream_dedup_redis_errors_total", {"kind": "lost_writes"})
    assert found is not None
    return found


def test_an_index_that_was_emptied_begins_anew_and_says_so(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings(redis_url=server.url, expected_originals=1000)
    before = lost_writes()
    with Deduplicator(settings, index=RedisIndex.connect(settings)) as worker:
        assert decided(worker, documents("a", 5))[Status.ORIGINAL] == 5
        with server.client() as client:
            client.flushall()
        assert decided(worker, documents("a", 5))[Status.ORIGINAL] == 5
        assert set(decided(worker, copies(documents("a", 5)))) == {Status.EXACT_DUPLICATE}

    assert lost_writes() == before + 1
    assert "Redis has lost writes" in caplog.text
    assert "begins anew, empty" in caplog.text


def test_a_worker_that_was_idle_meanwhile_notices_it_too(server: RedisServer) -> None:
    settings = Settings(redis_url=server.url, expected_originals=1000)
    with Deduplicator(settings, index=RedisIndex.connect(settings)) as idle:
        with server.client() as client:
            client.flushall()
        with Deduplicator(settings, index=RedisIndex.connect(settings)) as later:
            assert decided(later, documents("a", 5))[Status.ORIGINAL] == 5
            before = lost_writes()
            assert set(decided(idle, copies(documents("a", 5)))) == {Status.EXACT_DUPLICATE}
            assert lost_writes() == before + 1


def test_one_node_of_a_cluster_that_went_back_is_noticed() -> None:
    with RedisCluster(masters=3) as cluster:
        settings = Settings(redis_url=cluster.url, partitions=16, expected_originals=1000)
        with Deduplicator(settings, index=RedisIndex.connect(settings)) as worker:
            assert decided(worker, documents("kept", 20))[Status.ORIGINAL] == 20
            node = cluster.masters[1]
            snapshot(node)
            assert decided(worker, documents("cut", 20))[Status.ORIGINAL] == 20
            before = lost_writes()
            go_back(node)
            wait_for(cluster.is_whole)

            assert decided(worker, documents("new", 20))[Status.ORIGINAL] == 20
            assert lost_writes() == before + 1
            for name in ("kept", "new"):
                assert set(decided(worker, copies(documents(name, 20)))) == {Status.EXACT_DUPLICATE}


def test_to_enter_twice_by_a_lost_reply_does_no_harm(server: RedisServer) -> None:
    settings = Settings(redis_url=server.url, expected_originals=1000)
    index = RedisIndex.connect(settings)
    store, known = index.store, index.store.incarnation
    assert known is not None
    entering = ("enter", "of another configuration", "", "0", "0", known.token)
    *_, number, _, begins = store._ask(*entering)
    assert (number, begins) == (known.number + 1, 0)
    with Deduplicator(settings, index=index) as worker:
        before = lost_writes()
        assert decided(worker, documents("a", 5))[Status.ORIGINAL] == 5
        assert lost_writes() == before


def test_who_has_lost_its_number_to_another_goes_on_with_a_new_one(server: RedisServer) -> None:
    settings = Settings(redis_url=server.url, expected_originals=1000)
    index = RedisIndex.connect(settings)
    store, known = index.store, index.store.incarnation
    assert known is not None
    store.client.hset(f"{store.layout.index_key}:w", str(known.number), b"somebody")
    with Deduplicator(settings, index=index) as worker:
        assert decided(worker, documents("a", 5))[Status.ORIGINAL] == 5
        assert store.incarnation is not None
        assert store.incarnation.number == known.number + 1


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def stop_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all workers mint at one moment, as some do by chance where many documents come."""
    moment, mint = time.time(), ClaimIds.mint
    monkeypatch.setattr(ClaimIds, "mint", lambda ids, _, count=1: mint(ids, moment, count))
