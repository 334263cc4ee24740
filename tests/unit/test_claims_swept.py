"""Forgetting and sweeps beside claims, in random orders of events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from stream_dedup.index.claims import Call, Fate
from tests.models.claims import Store
from tests.models.sweeping import PARTITIONS, SweptSchedule, SweptStore

SCHEDULES = 2_000


def test_no_schedule_with_sweeps_breaks_an_invariant() -> None:
    found, retired = [], 0
    for seed in range(SCHEDULES):
        schedule = SweptSchedule(seed)
        found += [f"seed {seed}: {violation}" for violation in schedule.run()]
        retired += len(schedule.store.retired)

    assert found == []
    assert retired > SCHEDULES // 10


def test_a_last_sweep_leaves_nothing_but_originals() -> None:
    for seed in range(500):
        schedule = SweptSchedule(seed)
        schedule.run()
        schedule.sweep_all()

        fates = schedule.store.fates
        entered = {claim for members in schedule.store.entries.values() for claim in members}
        assert set(fates.values()) <= {Fate.ORIGINAL}, seed
        assert entered <= set(fates), seed


class PutsBehindTheFence(SweptStore):
    """A claim that was swept gets a record again."""

    def calls(self, document: int, call: Call) -> Iterator[Any]:
        """Carry out a call, whatever the fence."""
        return Store.calls(self, document, call)


class CommitsBehindTheFence(SweptStore):
    """A claim that was swept becomes an original."""

    def settle(self, claim: int, fate: Fate) -> Fate:
        """Write any fate where there is none."""
        if claim not in self.fates and claim in self.documents:
            self.fates[claim] = fate
        return super().settle(claim, fate)


class SweepsTheOpenOnly(SweptStore):
    """Entries are taken from claims that are pending still."""

    def sweep(self, fence: int) -> Iterator[None]:
        """Withdraw first."""
        for members in list(self.entries.values()):
            standing = {c for c in members if self.fates.get(c) is Fate.ORIGINAL}
            members.difference_update({c for c in members if c < fence} - standing)
            yield
        self.fences = [max(fence, self.fences[partition]) for partition in range(PARTITIONS)]


@pytest.mark.parametrize(
    "store",
    [PutsBehindTheFence, CommitsBehindTheFence, SweepsTheOpenOnly],
    ids=lambda s: s.__name__,
)
def test_a_sweep_with_a_mistake_breaks_an_invariant(store: type[SweptStore]) -> None:
    assert any(SweptSchedule(seed, store).run() for seed in range(SCHEDULES))
