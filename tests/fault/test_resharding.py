"""Slots move between the nodes of a Redis Cluster while workers claim: no wrong decision."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import cycle, islice

import pytest

from stream_dedup import Decision, Deduplicator, Document, ServiceError, Settings, Status
from stream_dedup.generate import GeneratedDocument, StreamShape, generate
from stream_dedup.index.audit import audit
from stream_dedup.index.redis import RedisIndex
from tests.services.redis import RedisCluster
from tests.services.slots import move_slot, slot_of_partition

PARTITIONS = 8
SLOTS = 16384
#: Few buckets and many documents, so that a slot holds enough keys to be caught in mid-move.
SHAPE = StreamShape(documents=12_000, duplicate_share=0.5, edits=1, words=140, distance=3_000)


@pytest.fixture
def cluster() -> Iterator[RedisCluster]:
    with RedisCluster(masters=2) as cluster:
        yield cluster


def test_resharding_under_load_makes_no_second_original(cluster: RedisCluster) -> None:
    settings = Settings(redis_url=cluster.url, partitions=PARTITIONS)
    stream = list(generate(SHAPE))
    mover = Mover(cluster, settings)

    with Deduplicator(settings, index=RedisIndex.connect(settings)) as deduplicator, mover:
        decisions = decide(deduplicator, stream)

    groups: dict[str, list[Decision]] = defaultdict(list)
    for made, decision in zip(stream, decisions, strict=True):
        assert made.truth is not None
        groups[made.truth.group].append(decision)
    assert mover.moved >= 4
    for members in groups.values():
        assert len({decision.duplicate_id for decision in members}) == 1
        assert sum(decision.status is Status.ORIGINAL for decision in members) == 1
    assert audit(settings).violations == []


def decide(deduplicator: Deduplicator, stream: list[GeneratedDocument]) -> list[Decision]:
    """Decide in batches; one that is refused while a slot moves is tried again."""
    documents = iter(stream)
    decisions: list[Decision] = []
    while batch := [Document(d.id, d.text, source=d.id) for d in islice(documents, 100)]:
        deadline = time.monotonic() + 60
        while True:
            try:
                decisions += deduplicator.decide(batch)
                break
            except ServiceError:
                assert time.monotonic() < deadline
    return decisions


class Mover:
    """Moves the slots of the index back and forth, a few keys at a time, until it is left."""

    def __init__(self, cluster: RedisCluster, settings: Settings) -> None:
        self.moved = 0
        self._masters = cluster.masters
        self._owners: dict[int, int] = {}
        self._namespace = settings.redis_namespace
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        rng = random.Random(5)
        for partition in cycle(range(PARTITIONS)):
            if self._stop.wait(rng.random() * 0.2):
                return
            slot = slot_of_partition(self._namespace, partition)
            owner = self._owners.setdefault(slot, int(slot >= SLOTS // 2))
            move_slot(slot, self._masters[owner], self._masters[1 - owner])
            self._owners[slot] = 1 - owner
            self.moved += 1
