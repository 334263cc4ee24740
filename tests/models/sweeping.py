"""Random schedules of the claim protocol beside forgetting and sweeps.

As ``tests.models.redis_claims`` on the model's store, with two more actors that take atomic steps
among those of the workers: one makes an original void, one sweeps as ``stream_dedup.index.sweep``
does. A sweep takes any claim for too old, also those of workers that are alive and go on later:
nothing may depend on time.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from stream_dedup.index.claims import Call, Fate, Put, Sight
from tests.models.claims import Store, World
from tests.models.redis_claims import RedisSchedule, Step

#: Partitions over which records are spread.
PARTITIONS = 2


class SweptStore(Store):
    """A store with fences; ``retired`` are the claims that were originals once."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.fences = [0] * PARTITIONS
        self.retired: set[int] = set()

    def is_fenced(self, claim: int) -> bool:
        """Say whether a claim is behind the fence of its partition."""
        return claim < self.fences[claim % PARTITIONS]

    def settle(self, claim: int, fate: Fate) -> Fate:
        """Write a fate; behind the fence a claim without a record is void."""
        if claim not in self.fates and self.is_fenced(claim):
            return Fate.VOID
        return super().settle(claim, fate)

    def sight(self, document: int, claim: int) -> Sight:
        """Look at a claim."""
        if claim not in self.fates and self.is_fenced(claim):
            return Sight(Fate.VOID, near=False, same=False)
        return super().sight(document, claim)

    def calls(self, document: int, call: Call) -> Iterator[Any]:
        """Carry out a call; behind the fence no claim gets a record."""
        if isinstance(call, Put) and self.is_fenced(call.claim):
            yield None
        else:
            yield from super().calls(document, call)

    def retire(self, claim: int) -> None:
        """Make an original void."""
        if self.fates.get(claim) is Fate.ORIGINAL:
            self.fates[claim] = Fate.VOID
            self.retired.add(claim)

    def sweep(self, fence: int) -> Iterator[None]:
        """Sweep in atomic steps; a caller may stop at any of them."""
        stay: set[int] = set()
        for partition in range(PARTITIONS):
            self.fences[partition] = max(self.fences[partition], fence)
            yield
            for claim in sorted(c for c in self.fates if c % PARTITIONS == partition):
                if claim in self.fates and self.is_fenced(claim):
                    if self.fates[claim] is Fate.ORIGINAL:
                        stay.add(claim)
                    else:
                        del self.fates[claim]
                yield
        for members in list(self.entries.values()):
            members -= {claim for claim in members if claim < fence and claim not in stay}
            yield


class SweptSchedule(RedisSchedule):
    """Runs one random schedule to its end, with forgetting and sweeps among the steps."""

    store: SweptStore

    def __init__(self, seed: int, store: type[SweptStore] = SweptStore) -> None:
        super().__init__(seed)
        self.store = store(self.world)
        self._disturbing = random.Random(seed)
        self._sweeps: list[Iterator[None]] = []

    def sweep_all(self) -> None:
        """Sweep once more, when all is over."""
        known = {
            *self.store.fates,
            *(one for those in self.store.entries.values() for one in those),
        }
        for _ in self.store.sweep(max(known, default=0) + 1):
            pass

    def _count(self, step: Step) -> Step:
        """Let the others take steps before this one."""
        if self.taken < PATIENCE:
            self._disturb()
        return super()._count(step)

    def _disturb(self) -> None:
        rng, store = self._disturbing, self.store
        if rng.random() < 0.05 and store.fates:
            store.retire(rng.choice(sorted(store.fates)))
        if rng.random() < 0.05 and len(self._sweeps) < 2 and store.documents:
            self._sweeps.append(store.sweep(rng.choice(sorted(store.documents)) + 1))
        for _ in range(rng.choice([0, 1, 3])):
            if self._sweeps:
                sweep = rng.choice(self._sweeps)
                if next(sweep, self) is self or rng.random() < 0.02:  # over, or killed
                    self._sweeps.remove(sweep)

    def _wrong_answers(self) -> Iterator[str]:
        """Yield answers that were never right; an original may have gone since."""
        for task in self.finished:
            assert task.outcome is not None
            original, document = task.outcome.original, task.document
            standing = self.store.fates.get(original) is Fate.ORIGINAL
            if not standing and original not in self.store.retired:
                yield f"I2: document {document} belongs to {original}, no original"
            elif not self.world.are_near(document, self.store.documents[original]):
                yield f"I2: document {document} is not near its original {original}"


#: Calls after which a schedule goes on undisturbed, so that it ends.
PATIENCE = 2_000
