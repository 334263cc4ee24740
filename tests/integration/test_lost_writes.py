"""Redis that went back in time: restarted from an older snapshot, emptied, one node of a Cluster."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pytest

from stream_dedup import Deduplicator, Document, ServiceError, Settings, Status
from stream_dedup.index.keys import ClaimIds
from stream_dedup.index.redis import RedisIndex
from tests.services.redis import RedisServer


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


def stop_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all workers mint at one moment, as some do by chance where many documents come."""
    moment, mint = time.time(), ClaimIds.mint
    monkeypatch.setattr(ClaimIds, "mint", lambda ids, _, count=1: mint(ids, moment, count))
