"""A primary of the Cluster dies under load: what each durability level keeps."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator

import pytest

from stream_dedup import Decision, Deduplicator, Document, ServiceError, Settings, Status
from stream_dedup.generate import StreamShape, generate
from stream_dedup.index.redis import RedisIndex
from tests.services.redis import RedisCluster, RedisServer

SHAPE = StreamShape(documents=6_000, duplicate_share=0.5, edits=1, words=140, distance=2_000)
BATCH = 100
#: Batch before which the primary is killed.
KILLED_BEFORE = 20
#: Longest time that a batch may take: a failover, and the dead node's return as a replica.
PATIENCE = 90.0


@pytest.fixture
def cluster() -> Iterator[RedisCluster]:
    with RedisCluster(replicas=1) as cluster:
        yield cluster


@pytest.mark.parametrize("replicas", [0, 1])
def test_a_failover_stops_the_stream_for_a_moment_only(
    cluster: RedisCluster, replicas: int, capsys: pytest.CaptureFixture[str]
) -> None:
    urls = ",".join(master.url for master in cluster.masters)
    settings = Settings(
        redis_url=urls, partitions=32, wait_replicas=replicas, wait_timeout=0.5, redis_timeout=2
    )
    stream = list(generate(SHAPE))
    documents = [Document(made.id, made.text, source=made.id) for made in stream]
    decisions: list[Decision] = []
    longest = 0.0

    with Deduplicator(settings, index=RedisIndex.connect(settings)) as deduplicator:
        for number in range(0, len(documents), BATCH):
            if number == KILLED_BEFORE * BATCH:
                cluster.masters[1].kill()
            started = time.monotonic()
            decisions += decide(deduplicator, documents[number : number + BATCH], cluster)
            longest = max(longest, time.monotonic() - started)

    groups: dict[str, list[Decision]] = defaultdict(list)
    for made, decision in zip(stream, decisions, strict=True):
        assert made.truth is not None
        groups[made.truth.group].append(decision)
    originals = [sum(d.status is Status.ORIGINAL for d in group) for group in groups.values()]
    names = {d.duplicate_id for d in decisions if d.status is Status.ORIGINAL}
    with capsys.disabled():
        again = sum(originals) - len(groups)
        print(f"\nwait_replicas={replicas}: {again} second originals, {longest:.1f} s without one")  # noqa: T201 - a figure
    assert {d.duplicate_id for d in decisions} == names
    assert min(originals) == 1
    if replicas:
        assert max(originals) == 1


def decide(
    deduplicator: Deduplicator, batch: list[Document], cluster: RedisCluster
) -> list[Decision]:
    """Decide a batch, as often as it takes; bring the dead node back once another has its place."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return deduplicator.decide(batch)
        except ServiceError:
            assert time.monotonic() < deadline
            if is_primary(cluster.replicas[1]) and not cluster.masters[1].is_ready():
                cluster.masters[1].start()


def is_primary(node: RedisServer) -> bool:
    """Tell whether a node takes writes."""
    with node.client() as client:
        return bool(client.info("replication")["role"] == "master")
