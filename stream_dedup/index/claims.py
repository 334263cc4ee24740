"""The claim protocol: how one document becomes an original or finds the one it belongs to.

The tables of a document lie on different nodes and workers run side by side, so registering is not
one atomic step. Each attempt is a *claim* with a fresh id and a fate that is written once: pending
becomes ORIGINAL or VOID, and neither changes again. What must hold:

    I1  no two originals are near each other
    I2  a duplicate is attached to a near document that was an original before
    I3  a document that comes again stays what it was: this original, or a duplicate
    I4  an original is present under all of its table keys

    announce  put the record; under each table key see who is there, insert the claim if nobody is
    settle    for each claim seen: a near ORIGINAL makes this document its duplicate; VOID is
              ignored; a near pending one is voided, unless its fate comes first
    force     insert under the keys skipped so far; whoever is new there is settled too
    commit    write ORIGINAL, unless the claim has been voided meanwhile: then withdraw, start again

Where all keys of a document lie in one partition, *register* does announce and commit in one atomic
call, if nobody is met who matters; else it writes nothing, and the long way above is gone.

Why it is right: each key is linearizable, so of two near claims at least one sees the other, and
neither commits before every near claim that it saw has a fate other than ORIGINAL, which can never
change. There are no locks and no leases; time only decides who is polite: the younger of two
claims waits a moment before it voids the older, so that two live workers do not void each other
for ever. A claim whose worker died is voided by the next near document.

This module does no I/O. ``claim_document`` yields lists of calls and is sent their replies, so the
same code runs against Redis, against a model, and under a scheduler that tries every order.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

#: How often a document is tried to be registered at once: the second time with what it met known.
AT_ONCE = 2


class Mode(IntEnum):
    """When a probe inserts the claim."""

    LOOK = 0
    IF_EMPTY = 1
    FORCE = 2


class Fate(IntEnum):
    """What became of a claim; the values are the bytes that stand in its record."""

    ABSENT = 0
    PENDING = ord("P")
    ORIGINAL = ord("O")
    VOID = ord("V")
    #: Only to whoever brings a record of its own: the id is that of another document's claim.
    TAKEN = ord("T")


class Sight(NamedTuple):
    """What a document sees of another claim.

    Attributes:
        fate: its fate, ABSENT when there is no record (yet).
        near: whether it is near the document; False when that cannot be known.
        same: whether it is a claim of this very document (same source, id and text).
        preference: how much the document prefers it to other near originals: the smallest first,
            and of these the earliest claim.
    """

    fate: Fate
    near: bool
    same: bool
    preference: float = 0.0


class Put(NamedTuple):
    """Write the claim's record as pending, unless it has one; return the fate that stands.

    TAKEN: the claim cannot be used, as another worker had the same number and came to the same id.
    """

    claim: int


class Probe(NamedTuple):
    """Return the other claims under the document's key of each table; insert as ``mode`` says."""

    claim: int
    tables: tuple[int, ...]
    mode: Mode


class Read(NamedTuple):
    """Return a ``Sight`` of each claim."""

    claims: tuple[int, ...]


class Settle(NamedTuple):
    """Write the claim's fate unless it has one; return the fate that stands."""

    claim: int
    fate: Fate


class Withdraw(NamedTuple):
    """Remove a claim from the document's keys."""

    claim: int
    tables: tuple[int, ...]


class Register(NamedTuple):
    """Announce and commit at once, unless there is a claim under a key that is not known.

    The reply is a ``Registered``. Only where all keys of a document are in one partition. Where
    Hamming distance decides, a claim whose record shows that it is not near counts as known.

    Attributes:
        claim: the document's claim.
        tables: all tables.
        known: claims that cannot matter any more: void, or not near.
    """

    claim: int
    tables: tuple[int, ...]
    known: tuple[int, ...]


class Registered(NamedTuple):
    """What became of a ``Register``.

    Attributes:
        fate: ORIGINAL, also when it was that before; ABSENT when nothing was written; the fate that
            stands when the claim had been announced before.
        seen: the unknown claims that were met, if so.
    """

    fate: Fate
    seen: tuple[int, ...] = ()


class Forget(NamedTuple):
    """Remove the record of a claim for which ORIGINAL was never asked."""

    claim: int


class Pause(NamedTuple):
    """Do nothing for so many seconds."""

    seconds: float


Call = Put | Probe | Read | Settle | Withdraw | Register | Forget | Pause


class Outcome(NamedTuple):
    """How the protocol ended for a document.

    Attributes:
        original: claim id of the original: the document's own, or the one it is a duplicate of.
        is_original: whether the document is that original.
        attempts: claims it took; more than one when some were voided.
        voided: claims of others that this document voided.
    """

    original: int
    is_original: bool
    attempts: int = 1
    voided: int = 0


#: Yields calls to be carried out, is sent their replies in the same order.
Steps = Generator[list[Call], list[Any], Outcome]


def claim_document(tables: int, mint: Callable[[], int], grace: float, attempts: int = 0) -> Steps:
    """Register one document, or find its original, in as many attempts as it takes.

    Args:
        tables: number of tables.
        mint: returns a fresh claim id, greater than all it returned before.
        grace: seconds that a younger claim waits for an older one.
        attempts: attempts made before.
    """
    everywhere = tuple(range(tables))
    voided = 0
    while True:
        claim = mint()
        attempts += 1
        stands, seen = yield [Put(claim), Probe(claim, everywhere, Mode.IF_EMPTY)]
        if stands is Fate.TAKEN:
            continue  # and nothing is withdrawn: the id stands there for the other document
        attempt = _Attempt(claim, grace, tables, attempts, voided)
        outcome = yield from attempt.run(seen)
        if outcome is not None:
            return outcome
        voided = attempt.voided


def register_document(tables: int, mint: Callable[[], int], grace: float) -> Steps:
    """Register one document, or find its original, where all its keys are in one partition.

    Nothing of a duplicate is ever written, and an original comes to be in one step. What has met a
    claim that still may become a near original goes the long way.
    """
    claim = mint()
    everywhere = tuple(range(tables))
    known: tuple[int, ...] = ()
    tries = AT_ONCE
    while tries:
        tries -= 1
        (registered,) = yield [Register(claim, everywhere, known)]
        if registered.fate is Fate.ORIGINAL:
            return Outcome(claim, is_original=True)
        if registered.fate in {Fate.VOID, Fate.TAKEN}:  # and nothing of it was written
            claim = mint()
            continue
        if not registered.seen:
            break
        (sights,) = yield [Read(registered.seen)]
        seen = dict(zip(registered.seen, sights, strict=True))
        found = _original_among(seen)
        if found is not None:
            return found
        if not all(_is_passed(sight) for sight in sights):
            break
        known += registered.seen
    stands, seen_by_table = yield [Put(claim), Probe(claim, everywhere, Mode.IF_EMPTY)]
    if stands is Fate.TAKEN:
        return (yield from claim_document(tables, mint, grace, attempts=1))
    return (yield from settle_document(claim, seen_by_table, mint, grace))


def settle_document(
    claim: int, seen: Sequence[Sequence[int]], mint: Callable[[], int], grace: float
) -> Steps:
    """Go on after the first announcement: ``seen`` is what its probe returned."""
    attempt = _Attempt(claim, grace, len(seen), attempts=1, voided=0)
    outcome = yield from attempt.run(seen)
    if outcome is None:
        outcome = yield from claim_document(len(seen), mint, grace, attempts=1)
        outcome = outcome._replace(voided=outcome.voided + attempt.voided)
    return outcome


def settle_forced(
    claim: int, seen: Sequence[Sequence[int]], mint: Callable[[], int], grace: float
) -> Steps:
    """Go on after the forced announcement: ``seen`` is whom it came upon that was not there before.

    All of those before can be left as they are, and the claim stands under all of its keys.
    """
    attempt = _Attempt(claim, grace, len(seen), attempts=1, voided=0)
    everywhere = tuple(range(len(seen)))
    outcome = yield from attempt.commit(everywhere, seen, everywhere)
    if outcome is None:
        outcome = yield from claim_document(len(seen), mint, grace, attempts=1)
        outcome = outcome._replace(voided=outcome.voided + attempt.voided)
    return outcome


def start_again(claim: int, tables: int, mint: Callable[[], int], grace: float) -> Steps:
    """Go on after a commit that found its claim void."""
    # The record stays, void: a late repeat of the commit must still find it.
    yield [Withdraw(claim, tuple(range(tables)))]
    return (yield from claim_document(tables, mint, grace, attempts=1))


class _Attempt:
    """One claim on its way, after its announcement."""

    def __init__(self, claim: int, grace: float, tables: int, attempts: int, voided: int) -> None:
        self.claim = claim
        self.grace = grace
        self.tables = tables
        self.attempts = attempts
        self.voided = voided
        #: Claims that no longer matter: void, or not near.
        self.passed: set[int] = set()

    def run(
        self, seen: Sequence[Sequence[int]]
    ) -> Generator[list[Call], list[Any], Outcome | None]:
        """Settle, force and commit; None when the claim was voided and withdrawn."""
        inserted = tuple(table for table, claims in enumerate(seen) if not claims)
        skipped = tuple(table for table, claims in enumerate(seen) if claims)
        outcome = yield from self._settle(skipped, [seen[table] for table in skipped], inserted)
        if outcome is not None:
            return outcome
        seen_again: Sequence[Sequence[int]] = ()
        if skipped:
            (seen_again,) = yield [Probe(self.claim, skipped, Mode.FORCE)]
        return (yield from self.commit(skipped, seen_again, inserted + skipped))

    def commit(
        self,
        tables: tuple[int, ...],
        seen: Sequence[Sequence[int]],
        everywhere: tuple[int, ...],
    ) -> Generator[list[Call], list[Any], Outcome | None]:
        """Settle whom the claim saw in some tables when it was forced in there, and commit."""
        outcome = yield from self._settle(tables, seen, everywhere)
        if outcome is not None:
            return outcome
        (fate,) = yield [Settle(self.claim, Fate.ORIGINAL)]
        if fate is Fate.ORIGINAL:
            return Outcome(self.claim, is_original=True, attempts=self.attempts, voided=self.voided)
        # The record stays, void: a late repeat of the commit above must still find it.
        yield [Withdraw(self.claim, everywhere)]
        return None

    def _settle(
        self, tables: tuple[int, ...], seen: Sequence[Sequence[int]], inserted: tuple[int, ...]
    ) -> Generator[list[Call], list[Any], Outcome | None]:
        """Bring every claim seen to a fate, or find the original among them."""
        open_claims = tuple(sorted({c for claims in seen for c in claims} - self.passed))
        waited = False
        while open_claims:
            (sights,) = yield [Read(open_claims)]
            known = dict(zip(open_claims, sights, strict=True))
            outcome = yield from self._attach(known, inserted)
            if outcome is not None:
                return outcome
            void = [claim for claim, sight in known.items() if sight.fate is Fate.VOID]
            if void:
                yield [Withdraw(claim, _where(claim, tables, seen)) for claim in void]
            open_claims = tuple(claim for claim, sight in known.items() if _matters(sight))
            self.passed.update(known.keys() - set(open_claims))
            if not open_claims:
                break
            impolite = [c for c in open_claims if waited or self._older_than(c, known[c])]
            if impolite:
                yield [Settle(claim, Fate.VOID) for claim in impolite]
                self.voided += len(impolite)
            elif not waited:
                yield [Pause(self.grace)]
                waited = True
        return None

    def _attach(
        self, known: dict[int, Sight], inserted: tuple[int, ...]
    ) -> Generator[list[Call], list[Any], Outcome | None]:
        """End as a duplicate of the preferred near original, if there is one."""
        found = _original_among(known)
        if found is None:
            return None
        yield [Withdraw(self.claim, inserted), Forget(self.claim)]
        return found._replace(attempts=self.attempts, voided=self.voided)

    def _older_than(self, claim: int, sight: Sight) -> bool:
        return sight.fate is Fate.PENDING and self.claim < claim


def _original_among(known: Mapping[int, Sight]) -> Outcome | None:
    """Return the preferred near original of a document, or its own claim, if it is one."""
    originals = [c for c, s in known.items() if s.fate is Fate.ORIGINAL and (s.near or s.same)]
    if not originals:
        return None
    same = [claim for claim in originals if known[claim].same]
    original = min(same or originals, key=lambda claim: (known[claim].preference, claim))
    return Outcome(original, bool(same))


def _matters(sight: Sight) -> bool:
    """Say whether a claim without a final fate could still become a near original."""
    return sight.fate is Fate.ABSENT or (sight.fate is Fate.PENDING and (sight.near or sight.same))


def _is_passed(sight: Sight) -> bool:
    """Say whether a claim can be left as it is: there for ever, and not near.

    One that is void can not: whoever meets it withdraws it.
    """
    return sight.fate is not Fate.VOID and not _matters(sight)


def _where(claim: int, tables: tuple[int, ...], seen: Sequence[Sequence[int]]) -> tuple[int, ...]:
    return tuple(t for t, claims in zip(tables, seen, strict=True) if claim in claims)
