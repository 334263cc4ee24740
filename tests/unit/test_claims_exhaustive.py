"""The claim protocol keeps its invariants in every order of events, for a few documents."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import Any

import pytest

from stream_dedup.index import claims
from stream_dedup.index.claims import (
    Call,
    Fate,
    Forget,
    Mode,
    Outcome,
    Probe,
    Put,
    Read,
    Settle,
    Steps,
    Withdraw,
    claim_document,
    settle_document,
    start_again,
)
from tests.models import claims as model
from tests.models.claims import Schedule, Store, World
from tests.models.exhaustive import Claim, Protocol, Setup, check

#: Two near documents that share both of two keys, or one of two.
EQUAL = World([(0, 0), (0, 0)], {frozenset((0, 1))})
NEAR = World([(0, 0), (0, 1)], {frozenset((0, 1))})
#: 0 and 1 are near, 1 and 2 are near, each pair by a key of its own; 0 and 2 are not.
CHAIN = World([(0, 1), (0, 0), (1, 0)], {frozenset((0, 1)), frozenset((1, 2))})
#: Three near documents, each pair by a key of its own.
TRIANGLE = World(
    [(0, 0, 0), (0, 1, 1), (2, 0, 1)],
    {frozenset((0, 1)), frozenset((1, 2)), frozenset((0, 2))},
)
#: Two near documents, and a third that only shares their keys.
CROWD = World([(0, 0), (0, 0), (0, 0)], {frozenset((0, 1))})

SETUPS = {
    "two equal, calls repeated": Setup(EQUAL, (0, 1), late=1),
    "two near, calls repeated, clocks skewed": Setup(NEAR, (0, 1), late=1, skewed=True),
    "chain of three": Setup(CHAIN, (0, 1, 2)),
    "two near, one redelivered": Setup(NEAR, (0, 0, 1), listed=True),
    "two near, both redelivered": Setup(NEAR, (0, 0, 1, 1), listed=True, most=3),
    "triangle in three tables": Setup(TRIANGLE, (0, 1, 2), listed=True, most=3),
    "two near, calls repeated twice": Setup(NEAR, (0, 1), listed=True, late=2, most=2),
    "crowd": Setup(CROWD, (0, 1, 2), listed=True, most=3),
    "all at once": Setup(CHAIN, (0, 0, 1, 2), listed=True, late=1, at_once=(0, 1, 2)),
    "one at once, two equal": Setup(EQUAL, (0, 1), listed=True, late=1, at_once=(0,)),
    "one at once, clocks skewed": Setup(
        NEAR, (0, 1), listed=True, skewed=True, late=1, at_once=(0,)
    ),
    "one at once, redelivered": Setup(NEAR, (0, 0, 1), listed=True, most=3, at_once=(0,)),
    "middle of a chain at once": Setup(CHAIN, (0, 1, 2), listed=True, most=3, at_once=(1,)),
    "two of a triangle at once": Setup(TRIANGLE, (0, 1, 2), listed=True, most=3, at_once=(0, 2)),
    "crowd, one of two near at once": Setup(CROWD, (0, 1, 2), listed=True, most=3, at_once=(1,)),
}

STATES = 2_000_000

Change = Callable[[list[Call]], Generator[list[Call], list[Any], list[Any]]]
Breaking = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.timeout(900)
def test_no_order_of_events_breaks_an_invariant() -> None:
    states = 0
    for name, setup in SETUPS.items():
        start = time.perf_counter()
        report = check(setup)
        seconds = time.perf_counter() - start
        print(f"{name}: {report.states:,} states, {seconds:.1f} s, {report.alone} steps alone")  # noqa: T201
        assert not report.violation, "\n".join(report.trace)
        states += report.states

    assert states >= STATES


def as_the_index(tables: int, mint: Callable[[], int], grace: float) -> Steps:
    """Announce and commit by itself, as the index does for a whole batch, and go on from there."""
    claim = mint()
    _, seen = yield [Put(claim), Probe(claim, tuple(range(tables)), Mode.IF_EMPTY)]
    if any(seen):
        return (yield from settle_document(claim, seen, mint, grace))
    (fate,) = yield [Settle(claim, Fate.ORIGINAL)]
    if fate is Fate.ORIGINAL:
        return Outcome(claim, is_original=True)
    return (yield from start_again(claim, tables, mint, grace))


@pytest.mark.parametrize("start", [claim_document, as_the_index])
def test_a_shape_goes_on_as_every_history_that_has_it(
    start: Callable[[int, Callable[[], int], float], Steps], monkeypatch: pytest.MonkeyPatch
) -> None:
    protocols = [Protocol(tables) for tables in range(5)]

    def shadowed(tables: int, mint: Callable[[], int], grace: float) -> Steps:
        protocol, minted = protocols[tables], [0]
        steps = start(tables, lambda: minted.append(mint()) or minted[-1], grace)  # type: ignore[func-returns-value]
        calls, claim = next(steps), 0
        while True:
            if minted[-1] != claim:
                claim = minted[-1]
                at = protocol.begin(claim)
            assert protocol.named(protocol.shapes[at[0]].calls, at[1]) == tuple(calls)
            replies = yield calls
            at = protocol.after(*at, compared(calls, replies))
            try:
                calls = steps.send(replies)
            except StopIteration as end:
                ended: Outcome = end.value
                break
        outcome = protocol.named(protocol.shapes[at[0]].outcome, at[1])
        assert outcome[:2] == ended[:2]
        return ended

    monkeypatch.setattr(model, "claim_document", shadowed)

    assert not any(Schedule(seed).run() for seed in range(1_000))


def compared(calls: list[Call], replies: list[Any]) -> tuple[Any, ...]:
    """Turn replies into those of the checker."""
    turned: list[Any] = []
    for call, reply in zip(calls, replies, strict=True):
        match call:
            case Probe():
                turned.append(tuple(tuple(Claim(claim) for claim in seen) for seen in reply))
            case Read():
                turned.append(tuple(reply))
            case _:
                turned.append(reply)
    return tuple(turned)


def meddle(patch: pytest.MonkeyPatch, owner: Any, name: str, change: Change) -> None:
    """Let ``change`` carry out the calls of a generator function of the protocol."""
    function = getattr(owner, name)

    def meddled(*args: Any, **kwargs: Any) -> Steps:
        steps = function(*args, **kwargs)
        replies = None
        while True:
            try:
                calls = steps.send(replies)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            replies = yield from change(calls)

    patch.setattr(owner, name, meddled)


def insert_without_looking(patch: pytest.MonkeyPatch) -> None:
    probe = Store.probe

    def broken(store: Store, document: int, claim: int, table: int, mode: Mode) -> list[int]:
        found = probe(store, document, claim, table, Mode.FORCE)
        return [] if mode is Mode.IF_EMPTY else found

    patch.setattr(Store, "probe", broken)


def look_and_insert_in_two_calls(patch: pytest.MonkeyPatch) -> None:
    def change(calls: list[Call]) -> Generator[list[Call], list[Any], list[Any]]:
        probe = calls[-1]
        if not isinstance(probe, Probe) or probe.mode is not Mode.IF_EMPTY:
            return (yield calls)
        replies = yield [*calls[:-1], probe._replace(mode=Mode.LOOK)]
        empty = tuple(t for t, seen in zip(probe.tables, replies[-1], strict=True) if not seen)
        yield [Probe(probe.claim, empty, Mode.FORCE)]
        return replies

    meddle(patch, claims, "claim_document", change)


def skip_the_forced_insert(patch: pytest.MonkeyPatch) -> None:
    def change(calls: list[Call]) -> Generator[list[Call], list[Any], list[Any]]:
        match calls:
            case [Probe(_, tables, Mode.FORCE)]:
                return [((),) * len(tables)]
        return (yield calls)

    meddle(patch, claims._Attempt, "run", change)


def read_fates_only_before_the_forced_insert(patch: pytest.MonkeyPatch) -> None:
    def change(calls: list[Call]) -> Generator[list[Call], list[Any], list[Any]]:
        replies = yield calls
        match calls:
            case [Probe(_, tables, Mode.FORCE)]:
                return [((),) * len(tables)]
        return replies

    meddle(patch, claims._Attempt, "run", change)


def commit_before_the_forced_insert(patch: pytest.MonkeyPatch) -> None:
    def change(calls: list[Call]) -> Generator[list[Call], list[Any], list[Any]]:
        match calls:
            case [Probe(claim, _, Mode.FORCE)]:
                yield [Settle(claim, Fate.ORIGINAL)]
        return (yield calls)

    meddle(patch, claims._Attempt, "run", change)


def ignore_pending_claims(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(claims, "_matters", lambda sight: sight.fate is Fate.ABSENT)


def take_absent_claims_for_void(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(claims, "_matters", lambda s: s.fate is Fate.PENDING and (s.near or s.same))


def ignore_claims(patch: pytest.MonkeyPatch, ignored: Callable[[int, int], bool]) -> None:
    settle = claims._Attempt._settle

    def broken(self: Any, tables: Any, seen: Any, inserted: Any) -> Any:
        left = [[c for c in found if not ignored(c, self.claim)] for found in seen]
        return settle(self, tables, left, inserted)

    patch.setattr(claims._Attempt, "_settle", broken)


def ignore_younger_claims(patch: pytest.MonkeyPatch) -> None:
    ignore_claims(patch, lambda claim, own: claim > own)


def ignore_older_claims(patch: pytest.MonkeyPatch) -> None:
    ignore_claims(patch, lambda claim, own: claim < own)


def overwrite_fates(patch: pytest.MonkeyPatch) -> None:
    """Void a claim even if it is an original by now."""
    settle = Store.settle

    def broken(store: Store, claim: int, fate: Fate) -> Fate:
        if fate is Fate.VOID:
            store.fates.pop(claim, None)
        return settle(store, claim, fate)

    patch.setattr(Store, "settle", broken)


def overwrite_records(patch: pytest.MonkeyPatch) -> None:
    calls = Store.calls

    def broken(store: Store, document: int, call: Call) -> Any:
        if isinstance(call, Put):
            store.fates.pop(call.claim, None)
        return calls(store, document, call)

    patch.setattr(Store, "calls", broken)


def commit_voided_claims(patch: pytest.MonkeyPatch) -> None:
    def change(calls: list[Call]) -> Generator[list[Call], list[Any], list[Any]]:
        replies = yield calls
        match calls:
            case [Settle(_, Fate.ORIGINAL)]:
                return [Fate.ORIGINAL]
        return replies

    meddle(patch, claims._Attempt, "run", change)


def forget_void_claims(patch: pytest.MonkeyPatch) -> None:
    def change(calls: list[Call]) -> Generator[list[Call], list[Any], list[Any]]:
        replies = yield calls
        if all(isinstance(call, Withdraw) for call in calls):
            yield [Forget(call.claim) for call in calls if isinstance(call, Withdraw)]
        return replies

    meddle(patch, claims._Attempt, "_settle", change)


def forget_own_void_claims(patch: pytest.MonkeyPatch) -> None:
    def change(calls: list[Call]) -> Generator[list[Call], list[Any], list[Any]]:
        replies = yield calls
        match calls:
            case [Settle(claim, Fate.ORIGINAL)] if replies[0] is Fate.VOID:
                yield [Forget(claim)]
        return replies

    meddle(patch, claims._Attempt, "run", change)


def forget_originals(patch: pytest.MonkeyPatch) -> None:
    def change(calls: list[Call]) -> Generator[list[Call], list[Any], list[Any]]:
        replies = yield calls
        match calls:
            case [Settle(claim, Fate.ORIGINAL)]:
                yield [Forget(claim)]
        return replies

    meddle(patch, claims._Attempt, "run", change)


def withdraw_whoever_was_to_be_voided(patch: pytest.MonkeyPatch) -> None:
    def change(calls: list[Call]) -> Generator[list[Call], list[Any], list[Any]]:
        replies = yield calls
        void = [c.claim for c in calls if isinstance(c, Settle) and c.fate is Fate.VOID]
        if void:
            yield [Withdraw(claim, (0, 1)) for claim in void]
        return replies

    meddle(patch, claims._Attempt, "run", change)


def wait_for_ever(patch: pytest.MonkeyPatch) -> None:
    def change(calls: list[Call]) -> Generator[list[Call], list[Any], list[Any]]:
        if all(isinstance(c, Settle) and c.fate is Fate.VOID for c in calls):
            return [Fate.PENDING] * len(calls)
        return (yield calls)

    meddle(patch, claims._Attempt, "run", change)


def attach_to_pending_claims(patch: pytest.MonkeyPatch) -> None:
    attach = claims._Attempt._attach

    def broken(self: Any, known: Any, inserted: Any) -> Any:
        pending = {c for c, sight in known.items() if sight.fate is Fate.PENDING}
        taken = {c: s._replace(fate=Fate.ORIGINAL) if c in pending else s for c, s in known.items()}
        return attach(self, taken, inserted)

    patch.setattr(claims._Attempt, "_attach", broken)


def forget_own_documents(patch: pytest.MonkeyPatch) -> None:
    """Do not recognise a claim of the same record."""
    sight = Store.sight
    patch.setattr(Store, "sight", lambda *args: sight(*args)._replace(same=False))


TWO = Setup(EQUAL, (0, 1))
TWO_IN_ORDER = Setup(EQUAL, (0, 1), listed=True)
SHARING_ONE = Setup(NEAR, (0, 1))
AGAIN = Setup(EQUAL, (0, 0))
REPEATED_TWICE = Setup(NEAR, (0, 1), listed=True, late=2, most=2)


@pytest.mark.parametrize("setup", [TWO, TWO_IN_ORDER, SHARING_ONE, AGAIN, REPEATED_TWICE])
def test_the_protocol_holds_where_broken_ones_are_caught(setup: Setup) -> None:
    assert not check(setup).violation


@pytest.mark.parametrize(
    ("breaking", "setup", "invariant"),
    [
        (insert_without_looking, TWO_IN_ORDER, "I1"),
        (look_and_insert_in_two_calls, TWO_IN_ORDER, "I1"),
        (skip_the_forced_insert, TWO_IN_ORDER, "I4"),
        (read_fates_only_before_the_forced_insert, TWO_IN_ORDER, "I1"),
        (commit_before_the_forced_insert, TWO_IN_ORDER, "I4"),
        (ignore_pending_claims, TWO_IN_ORDER, "I1"),
        (take_absent_claims_for_void, TWO, "I1"),
        (ignore_younger_claims, TWO_IN_ORDER, "I1"),
        (ignore_older_claims, TWO_IN_ORDER, "I1"),
        (overwrite_fates, TWO_IN_ORDER, "I2"),
        (overwrite_records, SHARING_ONE, "I4"),
        (commit_voided_claims, TWO_IN_ORDER, "I2"),
        (forget_void_claims, SHARING_ONE, "I4"),
        (forget_own_void_claims, REPEATED_TWICE, "I4"),
        (forget_originals, TWO_IN_ORDER, "I2"),
        (withdraw_whoever_was_to_be_voided, TWO_IN_ORDER, "I4"),
        (wait_for_ever, TWO_IN_ORDER, "progress"),
        (attach_to_pending_claims, TWO_IN_ORDER, "I2"),
        (forget_own_documents, AGAIN, "I3"),
    ],
)
def test_a_broken_protocol_is_caught(
    breaking: Breaking, setup: Setup, invariant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaking(monkeypatch)

    report = check(setup)

    print(f"{report.violation}, after {len(report.trace) - 2} steps")  # noqa: T201
    assert report.violation.startswith(invariant)
    assert report.trace[-1] == report.violation
