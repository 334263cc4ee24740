"""The claim protocol keeps its invariants in every order of events that is tried."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import pytest

from stream_dedup.index import claims
from stream_dedup.index.claims import Fate, Mode, Outcome, Probe, Settle
from tests.models.claims import Schedule, Store

SCHEDULES = 20_000

Broken = Callable[[pytest.MonkeyPatch], None]
Altered = Callable[[list[Any]], Generator[list[Any], list[Any], list[Any]]]


def test_no_schedule_breaks_an_invariant() -> None:
    broken = {seed: found for seed in range(SCHEDULES) if (found := Schedule(seed).run())}

    assert not broken


def test_the_schedules_reach_the_rare_paths() -> None:
    retried = voided = duplicates = 0
    for seed in range(1_000):
        schedule = Schedule(seed)
        schedule.run()
        outcomes = [task.outcome for task in schedule.finished if task.outcome]
        retried += sum(outcome.attempts > 1 for outcome in outcomes)
        voided += sum(outcome.voided for outcome in outcomes)
        duplicates += sum(not outcome.is_original for outcome in outcomes)

    assert min(retried, voided, duplicates) > 20


def ignore_pending(patch: pytest.MonkeyPatch) -> None:
    """Take a claim without a fate for one that does not matter."""
    patch.setattr(claims, "_matters", lambda sight: sight.fate is Fate.ABSENT)


def alter_replies(patch: pytest.MonkeyPatch, altered: Altered) -> None:
    """Let an attempt have the replies that ``altered`` gives to its calls, where it gives any."""
    run = claims._Attempt.run

    def broken(
        attempt: Any, seen: Sequence[Sequence[int]]
    ) -> Generator[list[Any], list[Any], Outcome | None]:
        steps = run(attempt, seen)
        calls = next(steps)
        while True:
            replies = yield from altered(calls)
            try:
                calls = steps.send(replies)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]

    patch.setattr(claims._Attempt, "run", broken)


def skip_force(patch: pytest.MonkeyPatch) -> None:
    """Commit without inserting where others were."""

    def altered(calls: list[Any]) -> Generator[list[Any], list[Any], list[Any]]:
        forced = [c for c in calls if isinstance(c, Probe) and c.mode is Mode.FORCE]
        return [[[] for _ in forced[0].tables]] if forced else (yield calls)

    alter_replies(patch, altered)


def commit_void_claims(patch: pytest.MonkeyPatch) -> None:
    """Take a claim for an original although it was voided."""

    def altered(calls: list[Any]) -> Generator[list[Any], list[Any], list[Any]]:
        replies = yield calls
        if any(isinstance(c, Settle) and c.fate is Fate.ORIGINAL for c in calls):
            replies = [Fate.ORIGINAL]
        return replies

    alter_replies(patch, altered)


def forget_own_records(patch: pytest.MonkeyPatch) -> None:
    """Do not recognise a claim of the same document."""
    sight = Store.sight
    patch.setattr(Store, "sight", lambda *args: sight(*args)._replace(same=False))


@pytest.mark.parametrize(
    "breaking",
    [ignore_pending, skip_force, commit_void_claims, forget_own_records],
)
def test_a_broken_protocol_is_caught(breaking: Broken, monkeypatch: pytest.MonkeyPatch) -> None:
    breaking(monkeypatch)

    assert any(Schedule(seed).run() for seed in range(SCHEDULES))
