"""A batch is decided as if its documents came one by one, whatever they share and resemble."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest

from stream_dedup import Settings
from stream_dedup.index.base import Index, IndexBatch, Matcher
from stream_dedup.index.memory import MemoryIndex
from stream_dedup.index.redis import RedisIndex
from stream_dedup.verify.verifier import SketchVerifier
from tests.models.redis_claims import RECORDS, WorldMethod, batch_of

#: Five bands, so that many documents share one without being near.
SETTINGS = Settings(rows=2)
TABLES = 5
WORLDS = 400


class World:
    """Documents with few table keys, of which some pairs that share one are near."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        count = self.rng.randint(2, 14)
        alphabet = self.rng.randint(2, 6)
        keys = [[self.rng.randrange(alphabet) for _ in range(TABLES)] for _ in range(count)]
        # Keys of no other world, so that an index can be used for many.
        self.batch = batch_of(np.array(keys, np.uint64) + np.uint64(seed * 100 + 1))
        share = self.rng.random()
        pairs = [(a, b) for a in range(count) for b in range(a) if self.meet(a, b)]
        near = [pair for pair in pairs if self.rng.random() < share]
        self.near = {*near, *((b, a) for a, b in near)}

    def meet(self, one: int, other: int) -> bool:
        keys = self.batch.prints.keys
        return bool((keys[one] == keys[other]).any())

    def batches(self) -> Iterator[IndexBatch]:
        """Cut the stream at random."""
        start = 0
        while start < len(self.batch):
            end = start + self.rng.randint(1, len(self.batch))
            yield self.batch.rows(range(start, end))
            start = end

    def expected(self) -> list[int | None]:
        """Return the earliest near original of each document, None for an original."""
        originals: list[int] = []
        answers = []
        for row in range(len(self.batch)):
            found = next((one for one in originals if (row, one) in self.near), None)
            answers.append(found)
            if found is None:
                originals.append(row)
        return answers


def decided(index: Index, world: World) -> list[int | None]:
    """Return the original of each document, as the index says."""
    attachments = [one for batch in world.batches() for one in index.claim(batch)]
    return [None if one is None else int(one.original_id) for one in attachments]


def test_on_redis(redis_url: str) -> None:
    wrong = []
    with closing(RedisIndex.connect(SETTINGS.model_copy(update={"redis_url": redis_url}))) as index:
        index.records = RECORDS
        for seed in range(WORLDS):
            world = World(seed)
            verifier = SketchVerifier(WorldMethod(world.near), by_hamming=False)
            index.matcher = Matcher(verifier, None)
            if decided(index, world) != world.expected():
                wrong.append(seed)

    assert wrong == []


def test_in_memory() -> None:
    wrong = []
    for seed in range(WORLDS):
        world = World(seed)
        verifier = SketchVerifier(WorldMethod(world.near), by_hamming=False)
        with closing(MemoryIndex(verifier)) as index:
            if decided(index, world) != world.expected():
                wrong.append(seed)

    assert wrong == []


@pytest.mark.parametrize("seed", range(3))
def test_the_worlds_reach_every_case(seed: int) -> None:
    worlds = [World(number) for number in range(seed * 100, seed * 100 + 100)]
    answers = [world.expected() for world in worlds]

    assert sum(answer.count(None) > 2 for answer in answers) > 50
    assert sum(len(answer) - answer.count(None) > 2 for answer in answers) > 30
