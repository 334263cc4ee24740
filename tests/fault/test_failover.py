"""A primary of the Cluster dies under load: what each durability level keeps."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator

import pytest
from redis.crc import key_slot

from stream_dedup import Decision, Deduplicator, Document, ServiceError, Settings, Status
from stream_dedup.generate import StreamShape, generate
from stream_dedup.index.redis import RedisIndex
from tests.services.redis import RedisCluster, RedisServer

SHAPE = StreamShape(documents=6_000, duplicate_share=0.5, edits=1, words=140, distance=2_000)
BATCH = 100
#: Batch before which the replica falls behind, and the one before which its primary dies.
HELD_BEFORE, KILLED_BEFORE = 15, 20
#: Longest time that a batch may take: a failover, and the dead node's return as a replica.
PATIENCE = 90.0
#: Bytes that clog the way to a replica that does not read: more than the kernel buffers.
_CLOG = 64 * 1024 * 1024


@pytest.fixture
def cluster() -> Iterator[RedisCluster]:
    with RedisCluster(replicas=1) as cluster:
        yield cluster


class Disaster:
    """The second primary dies. ``behind``: its replica does not have its last writes."""

    def __init__(self, cluster: RedisCluster) -> None:
        self._primary, self._replica = cluster.masters[1], cluster.replicas[1]
        self.behind = self.struck = False

    def hold_back(self) -> None:
        """Let the replica fall behind."""
        self.behind = True
        self._replica.pause()
        with self._primary.client() as client:
            slots = client.execute_command("CLUSTER", "SLOTS")  # type: ignore[no-untyped-call]
            first = next(slot[0] for slot in slots if slot[2][1] == self._primary.port)
            client.set(key_in_slot(first), b"x" * _CLOG)

    def strike(self) -> None:
        """Kill the primary, and let the replica read what has reached it."""
        if not self.struck:
            self.struck = True
            self._primary.kill()
            if self.behind:
                self._replica.resume()

    def mend(self) -> None:
        """Bring the dead node back once the other has its place."""
        if self.struck and is_primary(self._replica) and not self._primary.is_ready():
            self._primary.start()


def key_in_slot(first: int) -> str:
    """Name a key that the owner of the third of the slots that begins here has."""
    names = (f"clog-{number}" for number in range(1000))
    return next(n for n in names if first <= key_slot(n.encode()) < first + 5000)


@pytest.mark.parametrize("replicas", [0, 1])
def test_a_failover_stops_the_stream_for_a_moment_only(
    cluster: RedisCluster, replicas: int, capsys: pytest.CaptureFixture[str]
) -> None:
    disaster = Disaster(cluster)

    second = second_originals(cluster, replicas, disaster, capsys)

    assert disaster.struck
    if replicas:
        assert second == 0


@pytest.mark.parametrize("replicas", [0, 1])
def test_what_a_replica_lacks_is_lost_unless_it_was_waited_for(
    cluster: RedisCluster, replicas: int, capsys: pytest.CaptureFixture[str]
) -> None:
    disaster = Disaster(cluster)
    disaster.behind = True

    second = second_originals(cluster, replicas, disaster, capsys)

    assert disaster.struck
    assert second == 0 if replicas else second > 0


def second_originals(
    cluster: RedisCluster, replicas: int, disaster: Disaster, capsys: pytest.CaptureFixture[str]
) -> int:
    """Decide a stream through the disaster; count the originals beyond one of each group."""
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
            if number == HELD_BEFORE * BATCH and disaster.behind:
                disaster.hold_back()
            if number == KILLED_BEFORE * BATCH:
                disaster.strike()
            started = time.monotonic()
            decisions += decide(deduplicator, documents[number : number + BATCH], disaster)
            longest = max(longest, time.monotonic() - started)

    groups: dict[str, list[Decision]] = defaultdict(list)
    for made, decision in zip(stream, decisions, strict=True):
        assert made.truth is not None
        groups[made.truth.group].append(decision)
    originals = [sum(d.status is Status.ORIGINAL for d in group) for group in groups.values()]
    names = {d.duplicate_id for d in decisions if d.status is Status.ORIGINAL}
    assert {d.duplicate_id for d in decisions} == names
    assert min(originals) == 1
    again = sum(originals) - len(groups)
    with capsys.disabled():
        state = "behind" if disaster.behind else "in step"
        print(  # noqa: T201 - figures
            f"\nwait_replicas={replicas}, replica {state}: {again} second originals of "
            f"{len(groups)}, {longest:.1f} s without a decision"
        )
    return again


def decide(deduplicator: Deduplicator, batch: list[Document], disaster: Disaster) -> list[Decision]:
    """Decide a batch, as often as it takes."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return deduplicator.decide(batch)
        except ServiceError:
            assert time.monotonic() < deadline
            # Before its time only if nothing can be decided while the replica is behind.
            disaster.strike()
            disaster.mend()


def is_primary(node: RedisServer) -> bool:
    """Tell whether a node takes writes."""
    with node.client() as client:
        return bool(client.info("replication")["role"] == "master")
