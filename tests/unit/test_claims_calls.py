"""The claim protocol call by call: what follows which reply, and what it counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stream_dedup.index.claims import (
    AT_ONCE,
    Fate,
    Forget,
    Mode,
    Outcome,
    Pause,
    Probe,
    Put,
    Read,
    Register,
    Registered,
    Settle,
    Sight,
    Steps,
    Withdraw,
    claim_document,
    register_document,
    settle_document,
    settle_forced,
    start_again,
)

GRACE = 0.125
NEAR = Sight(Fate.ORIGINAL, near=True, same=False)
FAR = Sight(Fate.ORIGINAL, near=False, same=False)
PENDING = Sight(Fate.PENDING, near=True, same=False)
FAR_PENDING = Sight(Fate.PENDING, near=False, same=False)
ABSENT = Sight(Fate.ABSENT, near=False, same=False)
VOID = Sight(Fate.VOID, near=False, same=False)


def mint_from(first: int) -> Callable[[], int]:
    """Return what mints ``first``, and from there on ten more each time."""
    claims = iter(range(first, 1000, 10))
    return lambda: next(claims)


def play(steps: Steps, *script: tuple[list[Any], list[Any]]) -> Outcome:
    """Expect the calls of the script, give its replies; return how it ends."""
    calls = next(steps)
    for number, (expected, replies) in enumerate(script, 1):
        assert calls == expected, f"calls {number}"
        try:
            calls = steps.send(replies)
        except StopIteration as end:
            assert number == len(script), "it ended too early"
            outcome: Outcome = end.value
            return outcome
    pytest.fail(f"it goes on with {calls}")


def claim(first: int = 50) -> Steps:
    return claim_document(3, mint_from(first), GRACE)


def announced(seen: list[list[int]], one: int = 50) -> tuple[list[Any], list[Any]]:
    return [Put(one), Probe(one, (0, 1, 2), Mode.IF_EMPTY)], [None, seen]


def read(sights: dict[int, Sight]) -> tuple[list[Any], list[Any]]:
    return [Read(tuple(sights))], [list(sights.values())]


def forced(tables: tuple[int, ...], seen: list[list[int]]) -> tuple[list[Any], list[Any]]:
    return [Probe(50, tables, Mode.FORCE)], [seen]


def voided(*claims: int) -> tuple[list[Any], list[Any]]:
    return [Settle(one, Fate.VOID) for one in claims], [Fate.VOID] * len(claims)


PAUSED = ([Pause(GRACE)], [None])
COMMITTED = ([Settle(50, Fate.ORIGINAL)], [Fate.ORIGINAL])
FOUND_VOID = ([Settle(50, Fate.ORIGINAL)], [Fate.VOID])
ALONE: list[list[int]] = [[], [], []]


class TestClaiming:
    def test_who_meets_nobody_commits(self) -> None:
        assert play(claim(), announced(ALONE), COMMITTED) == Outcome(50, True, 1, 0)

    def test_who_meets_a_near_original_leaves(self) -> None:
        outcome = play(
            claim(),
            announced([[7], [], [7]]),
            read({7: NEAR}),
            ([Withdraw(50, (1,)), Forget(50)], [None, None]),
        )

        assert outcome == Outcome(7, False, 1, 0)

    def test_who_comes_again_finds_itself(self) -> None:
        outcome = play(
            claim(),
            announced([[3, 7], [], []]),
            read({3: NEAR, 7: FAR._replace(same=True)}),
            ([Withdraw(50, (1, 2)), Forget(50)], [None, None]),
        )

        assert outcome == Outcome(7, True, 1, 0)

    @pytest.mark.parametrize(
        ("preferences", "expected"), [((0.0, 0.0), 4), ((2.0, 1.0), 9), ((1.0, 2.0), 4)]
    )
    def test_the_preferred_original_then_the_earliest(
        self, preferences: tuple[float, float], expected: int
    ) -> None:
        four, nine = (NEAR._replace(preference=one) for one in preferences)

        outcome = play(
            claim(),
            announced([[9, 4, 2], [], []]),
            read({2: FAR, 4: four, 9: nine}),
            ([Withdraw(50, (1, 2)), Forget(50)], [None, None]),
        )

        assert outcome.original == expected

    def test_who_is_not_near_is_passed_and_not_read_again(self) -> None:
        outcome = play(
            claim(),
            announced([[7], [8], []]),
            read({7: FAR, 8: FAR_PENDING}),
            forced((0, 1), [[7], [8]]),
            COMMITTED,
        )

        assert outcome == Outcome(50, True, 1, 0)

    def test_void_claims_are_withdrawn_where_they_were_seen(self) -> None:
        play(
            claim(),
            announced([[7, 8], [], [8]]),
            read({7: VOID, 8: VOID}),
            ([Withdraw(7, (0,)), Withdraw(8, (0, 2))], [None, None]),
            forced((0, 2), [[], []]),
            COMMITTED,
        )

    def test_an_original_seen_only_by_force_is_found(self) -> None:
        outcome = play(
            claim(),
            announced([[7], [], []]),
            read({7: FAR}),
            forced((0,), [[7, 8]]),
            read({8: NEAR}),
            ([Withdraw(50, (1, 2, 0)), Forget(50)], [None, None]),
        )

        assert outcome == Outcome(8, False, 1, 0)

    def test_the_older_voids_the_younger_at_once(self) -> None:
        outcome = play(
            claim(),
            announced([[60], [61], []]),
            read({60: PENDING, 61: PENDING}),
            voided(60, 61),
            read({60: VOID, 61: VOID}),
            ([Withdraw(60, (0,)), Withdraw(61, (1,))], [None, None]),
            forced((0, 1), [[], []]),
            COMMITTED,
        )

        assert outcome == Outcome(50, True, 1, 2)

    @pytest.mark.parametrize("other", [40, 50])
    def test_the_younger_waits_once_and_then_voids(self, other: int) -> None:
        outcome = play(
            claim(),
            announced([[other], [], []]),
            read({other: PENDING}),
            PAUSED,
            read({other: PENDING}),
            voided(other),
            read({other: VOID}),
            ([Withdraw(other, (0,))], [None]),
            forced((0,), [[]]),
            COMMITTED,
        )

        assert outcome == Outcome(50, True, 1, 1)

    def test_who_has_no_record_yet_is_waited_for_however_young(self) -> None:
        play(
            claim(),
            announced([[60], [], []]),
            read({60: ABSENT}),
            PAUSED,
            read({60: ABSENT}),
            voided(60),
            read({60: VOID}),
            ([Withdraw(60, (0,))], [None]),
            forced((0,), [[]]),
            COMMITTED,
        )

    def test_first_the_younger_then_a_pause_for_the_older(self) -> None:
        play(
            claim(),
            announced([[40, 60], [], []]),
            read({40: PENDING, 60: PENDING}),
            voided(60),
            read({40: PENDING, 60: VOID}),
            ([Withdraw(60, (0,))], [None]),
            PAUSED,
            read({40: NEAR}),
            ([Withdraw(50, (1, 2)), Forget(50)], [None, None]),
        )

    def test_a_pending_claim_of_the_same_document_matters(self) -> None:
        play(
            claim(),
            announced([[40], [], []]),
            read({40: FAR_PENDING._replace(same=True)}),
            PAUSED,
            read({40: FAR._replace(same=True)}),
            ([Withdraw(50, (1, 2)), Forget(50)], [None, None]),
        )

    def test_who_was_voided_withdraws_and_begins_again(self) -> None:
        outcome = play(
            claim(),
            announced([[60], [], []]),
            read({60: PENDING}),
            voided(60),
            read({60: VOID}),
            ([Withdraw(60, (0,))], [None]),
            forced((0,), [[]]),
            FOUND_VOID,
            ([Withdraw(50, (1, 2, 0))], [None]),
            announced([[], [], [7]], one=60),
            read({7: NEAR}),
            ([Withdraw(60, (0, 1)), Forget(60)], [None, None]),
        )

        assert outcome == Outcome(7, False, 2, 1)


class TestGoingOn:
    def test_after_a_first_announcement(self) -> None:
        steps = settle_document(50, [[60], [], []], mint_from(70), GRACE)

        outcome = play(
            steps,
            read({60: PENDING}),
            voided(60),
            read({60: VOID}),
            ([Withdraw(60, (0,))], [None]),
            forced((0,), [[]]),
            FOUND_VOID,
            ([Withdraw(50, (1, 2, 0))], [None]),
            announced([[75], [], []], one=70),
            read({75: PENDING}),
            voided(75),
            read({75: VOID}),
            ([Withdraw(75, (0,))], [None]),
            ([Probe(70, (0,), Mode.FORCE)], [[[]]]),
            ([Settle(70, Fate.ORIGINAL)], [Fate.ORIGINAL]),
        )

        assert outcome == Outcome(70, True, 2, 2)

    def test_after_the_first_announcement_alone(self) -> None:
        steps = settle_document(50, [[7], [], []], mint_from(70), GRACE)

        outcome = play(steps, read({7: FAR}), forced((0,), [[]]), COMMITTED)

        assert outcome == Outcome(50, True, 1, 0)

    def test_after_a_commit_that_found_its_claim_void(self) -> None:
        outcome = play(
            start_again(50, 3, mint_from(60), GRACE),
            ([Withdraw(50, (0, 1, 2))], [None]),
            announced(ALONE, one=60),
            ([Settle(60, Fate.ORIGINAL)], [Fate.ORIGINAL]),
        )

        assert outcome == Outcome(60, True, 2, 0)


class TestForced:
    def test_who_saw_nobody_that_was_not_there_before_commits(self) -> None:
        outcome = play(settle_forced(50, ALONE, mint_from(60), GRACE), COMMITTED)

        assert outcome == Outcome(50, True, 1, 0)

    def test_an_original_that_has_come_is_found_and_the_claim_withdrawn_everywhere(self) -> None:
        outcome = play(
            settle_forced(50, [[], [8], []], mint_from(60), GRACE),
            read({8: NEAR}),
            ([Withdraw(50, (0, 1, 2)), Forget(50)], [None, None]),
        )

        assert outcome == Outcome(8, False, 1, 0)

    def test_who_finds_its_claim_void_starts_again(self) -> None:
        outcome = play(
            settle_forced(50, [[8], [], []], mint_from(60), GRACE),
            read({8: FAR}),
            ([Settle(50, Fate.ORIGINAL)], [Fate.VOID]),
            ([Withdraw(50, (0, 1, 2))], [None]),
            announced(ALONE, one=60),
            ([Settle(60, Fate.ORIGINAL)], [Fate.ORIGINAL]),
        )

        assert outcome == Outcome(60, True, 2, 0)


def registered(reply: Registered, known: tuple[int, ...] = ()) -> tuple[list[Any], list[Any]]:
    return [Register(50, (0, 1, 2), known)], [reply]


MET = Registered(Fate.ABSENT, (7, 8))


class TestRegistering:
    def register(self) -> Steps:
        return register_document(3, mint_from(50), GRACE)

    def test_at_once(self) -> None:
        outcome = play(self.register(), registered(Registered(Fate.ORIGINAL)))

        assert outcome == Outcome(50, True, 1, 0)

    def test_who_met_an_original_writes_nothing(self) -> None:
        outcome = play(self.register(), registered(MET), read({7: FAR, 8: NEAR}))

        assert outcome == Outcome(8, False, 1, 0)

    def test_who_met_others_tries_once_more(self) -> None:
        outcome = play(
            self.register(),
            registered(MET),
            read({7: FAR, 8: FAR_PENDING}),
            registered(Registered(Fate.ORIGINAL), (7, 8)),
        )

        assert outcome == Outcome(50, True, 1, 0)

    def test_and_then_goes_the_long_way(self) -> None:
        assert AT_ONCE == 2
        outcome = play(
            self.register(),
            registered(MET),
            read({7: FAR, 8: FAR}),
            registered(Registered(Fate.ABSENT, (9,)), (7, 8)),
            read({9: FAR}),
            announced(ALONE),
            COMMITTED,
        )

        assert outcome == Outcome(50, True, 1, 0)

    @pytest.mark.parametrize("sight", [VOID, ABSENT, PENDING, FAR_PENDING._replace(same=True)])
    def test_at_once_if_a_claim_cannot_be_left_as_it_is(self, sight: Sight) -> None:
        play(
            self.register(), registered(MET), read({7: FAR, 8: sight}), announced(ALONE), COMMITTED
        )

    @pytest.mark.parametrize("fate", [Fate.ABSENT, Fate.PENDING])
    def test_at_once_if_nothing_was_told(self, fate: Fate) -> None:
        play(self.register(), registered(Registered(fate)), announced(ALONE), COMMITTED)

    @pytest.mark.parametrize("fate", [Fate.VOID, Fate.TAKEN])
    def test_with_another_claim_if_this_one_cannot_be_used(self, fate: Fate) -> None:
        again = [Register(60, (0, 1, 2), ())], [Registered(Fate.ORIGINAL)]
        outcome = play(self.register(), registered(Registered(fate)), again)

        assert outcome.original == 60

    def test_the_long_way_with_another_claim_if_this_one_is_taken(self) -> None:
        calls, (_, seen) = announced(ALONE)
        again, _ = announced(ALONE, 60)
        outcome = play(
            self.register(),
            registered(Registered(Fate.ABSENT)),
            (calls, [Fate.TAKEN, seen]),
            (again, [Fate.PENDING, seen]),
            ([Settle(60, Fate.ORIGINAL)], [Fate.ORIGINAL]),
        )

        assert outcome.original == 60


def test_a_claim_that_is_taken_is_left_where_it_stands() -> None:
    calls, (_, seen) = announced(ALONE)
    again, _ = announced(ALONE, 60)
    settled = ([Settle(60, Fate.ORIGINAL)], [Fate.ORIGINAL])
    outcome = play(claim(), (calls, [Fate.TAKEN, seen]), (again, [Fate.PENDING, seen]), settled)

    assert outcome.original == 60


def test_the_modes_and_fates_are_those_of_the_functions() -> None:
    assert [int(one) for one in (Mode.LOOK, Mode.IF_EMPTY, Mode.FORCE)] == [0, 1, 2]
    assert bytes([Fate.PENDING, Fate.ORIGINAL, Fate.VOID, Fate.TAKEN]) == b"POVT"
    assert (Sight(Fate.VOID, False, False).preference, Registered(Fate.VOID).seen) == (0.0, ())
    assert Outcome(1, True) == (1, True, 1, 0)
