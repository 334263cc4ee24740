"""A batch of documents through the claim protocol: who is claimed when, and what each answer is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from stream_dedup.index.base import Attachment, IndexBatch, Matcher
from stream_dedup.index.choice import preferred_within
from stream_dedup.index.claims import (
    AT_ONCE,
    Mode,
    Outcome,
    Steps,
    claim_document,
    settle_document,
    settle_forced,
    start_again,
)
from stream_dedup.index.counts import ClaimCounts
from stream_dedup.index.driver import Claims, Driver, Rows
from stream_dedup.index.pairs import exact_leaders, near_pairs, shares_earlier
from stream_dedup.index.records import Record, RecordFormat
from stream_dedup.index.sightings import Pairs, Sightings
from stream_dedup.index.store import RedisStore

#: Claims seen that are settled together; bounds what is held of them.
_SIGHTINGS = 1 << 17

#: Settles whom a claim saw, under each of its keys: the protocol's steps from there on.
Settle = Callable[[int, Sequence[Sequence[int]], Callable[[], int], float], Steps]

#: For each row that is near earlier rows of its batch: these, in order.
Neighbours = dict[int, list[int]]


class Claimant(Protocol):
    """Who claims documents in an index.

    Attributes:
        store: the index.
        matcher: says who is near.
        records: how originals are kept.
        windowed: whether originals count for a time only.
        grace: seconds that a younger claim waits for an older one before it voids it.
    """

    store: RedisStore
    matcher: Matcher
    records: RecordFormat
    windowed: bool
    grace: float

    def mint(self, count: int) -> Claims:
        """Return fresh claim ids."""


class Claiming:
    """Decides some documents."""

    def __init__(self, index: Claimant, batch: IndexBatch) -> None:
        self._index = index
        self._batch = batch
        self._tables = batch.prints.keys.shape[1]
        self._driver = Driver(index.store, batch, index.matcher, index.records)
        self._outcomes: dict[int, Outcome] = {}
        #: Outcomes of those that went the long way, step by step.
        self._walked: list[Outcome] = []
        #: Claim of the original that each row is attached to.
        self._attached: dict[int, int] = {}
        #: Rows attached to an original of the same batch.
        self._within: dict[int, int] = {}

    def run(self) -> list[Attachment | None]:
        """Return an attachment for each duplicate, None for each original.

        A document that shares no key with an earlier one of the batch depends on none of them, so
        these are registered first. The others then look for an original. Of those that find none,
        the ones near an earlier one must wait for its fate. So they go in waves: first those that
        depend on none; then whoever is near a new original is its duplicate, and those whose
        earlier neighbours all turned out to be duplicates are the next wave.
        """
        rows = np.flatnonzero(~self._batch.prints.empty)
        leaders = exact_leaders(self._batch, rows, windowed=self._index.windowed)
        distinct = rows[leaders == rows]
        # Ids grow with the rows, whichever wave a row goes in, so the earliest stays the earliest.
        claims = self._mint(len(self._batch))
        shares = shares_earlier(self._batch.prints.keys[distinct])
        self._register(distinct[~shares], claims)
        # Most of a viral post's copies end here, before any two of them are compared.
        self._look(distinct[shares], claims)
        undecided = [row for row in distinct.tolist() if row not in self._outcomes]
        neighbours = self._neighbours(undecided, claims)
        free = [row for row in undecided if row not in neighbours]
        self._drop_settled(neighbours, free, claims)
        self._register(np.array(free, np.int64), claims)
        while neighbours:
            wave = self._attach_to_neighbours(neighbours)
            if wave:
                # They are near a duplicate, so probably near its original, which has come since
                # they looked. Without this a new viral post would go one copy at a time.
                self._look(np.array(sorted([*wave, *neighbours]), np.int64), claims)
                wave = [row for row in wave if row not in self._outcomes]
                self._drop_settled(neighbours, wave, claims)
                self._register(np.array(wave, np.int64), claims)
        return self._attachments(dict(zip(rows.tolist(), leaders.tolist(), strict=True)))

    def _neighbours(self, undecided: list[int], claims: Claims) -> Neighbours:
        """Return, for each row near earlier ones, these in order; the rows in order too.

        Takes the undecided rows, and those whose original has come after the first of these, which
        may be an earlier one.
        """
        if not undecided:
            return {}
        first = claims[undecided[0]]
        later_found = [
            row
            for row, found in self._outcomes.items()
            if not found.is_original and found.original > first
        ]
        rows = np.array(sorted([*undecided, *later_found]), np.int64)
        earlier, later, _ = near_pairs(self._batch, rows, self._index.matcher)
        neighbours: Neighbours = {}
        order = np.argsort(later, kind="stable")
        for row, neighbour in zip(later[order].tolist(), earlier[order].tolist(), strict=True):
            neighbours.setdefault(row, []).append(neighbour)
        return neighbours

    def _look(self, rows: Rows, claims: Claims) -> None:
        """Attach rows to originals that exist already."""
        if len(rows):
            for _, seen in self._driver.announce(rows, claims, Mode.LOOK):
                self._attach(self._driver.look(seen.pairs())[0])

    def _register(self, rows: Rows, claims: Claims) -> None:
        if self._index.store.layout.partitions == 1:
            rows = self._register_at_once(rows, claims)
        if not len(rows):
            return
        for some, seen in self._driver.announce(rows, claims, Mode.IF_EMPTY):
            taken = self._driver.taken.intersection(some.tolist())
            self._go_on_from(some[~np.isin(some, list(taken))], claims, seen.without(taken))
            grace = self._index.grace
            self._finish(
                {row: claim_document(self._tables, self._mint_one, grace, 1) for row in taken}
            )

    def _go_on_from(self, rows: Rows, claims: Claims, seen: Sightings) -> None:
        """Commit the rows that saw nobody; settle whom the others saw."""
        self._commit(rows[~np.isin(rows, seen.rows)], claims)
        for part in seen.parts(_SIGHTINGS):
            self._settle(claims, part)

    def _register_at_once(self, rows: Rows, claims: Claims) -> Rows:
        """Do what ``register_document`` does, for many; return the rows that go the long way."""
        known = Pairs.of(rows[:0], claims[:0])
        trying = self._driver.may_be_registered(rows)
        for _ in range(AT_ONCE):
            if not len(trying):
                break
            registered, pairs, unusable = self._driver.register(trying, claims[trying], known)
            if len(unusable):
                claims[unusable] = self._mint(len(unusable))
            for row, claim in zip(registered.tolist(), claims[registered].tolist(), strict=True):
                self._outcomes[row] = Outcome(claim, is_original=True)
            found, unsettled = self._driver.look(pairs)
            self._attach(found)
            known = known.plus(pairs)
            met = np.unique(pairs.rows)
            trying = np.union1d(met[~np.isin(met, [*found, *unsettled])], unusable)
        return np.array([row for row in rows.tolist() if row not in self._outcomes], np.int64)

    def _attach(self, found: dict[int, int]) -> None:
        for row, original in found.items():
            self._outcomes[row] = Outcome(original, is_original=False)

    def _commit(self, rows: Rows, claims: Claims) -> None:
        """Commit rows that stand under all of their keys and have nobody left to settle."""
        if not len(rows):
            return
        committed = self._driver.commit(rows, claims[rows])
        steps: dict[int, Steps] = {}
        for row, stands in zip(rows.tolist(), committed.tolist(), strict=True):
            claim = int(claims[row])
            if stands:
                self._outcomes[row] = Outcome(claim, is_original=True)
            else:
                steps[row] = start_again(claim, self._tables, self._mint_one, self._index.grace)
        self._finish(steps)

    def _settle(self, claims: Claims, seen: Sightings) -> None:
        """Settle whom rows saw when they were announced, force them in and commit.

        They do what the protocol would (read, withdraw, forget; read, force, read, commit), but all
        together. Only who met a claim that is void, or near and not decided, goes on one by one.
        """
        found, unsettled = self._driver.look(seen.pairs())
        self._driver.give_up(list(found), claims, seen)
        self._attach(found)
        self._go_on(settle_document, claims, seen.of(unsettled - found.keys()))
        passing = seen.without([*found, *unsettled])
        if not len(passing.rows):
            return
        fresh = self._driver.force(claims, passing)
        found, unsettled = self._driver.look(fresh.pairs())
        self._driver.give_up(list(found), claims, None)
        self._attach(found)
        self._go_on(settle_forced, claims, fresh.of(unsettled - found.keys()))
        rows = np.unique(passing.rows)
        self._commit(rows[~np.isin(rows, [*found, *unsettled])], claims)

    def _go_on(self, settle: Settle, claims: Claims, seen: Sightings) -> None:
        """Go on one by one, all rows side by side."""
        self._finish(
            {
                row: settle(int(claims[row]), tables, self._mint_one, self._index.grace)
                for row, tables in seen.by_row(self._tables).items()
            }
        )

    def _finish(self, steps: dict[int, Steps]) -> None:
        finished = self._driver.finish(steps)
        self._walked += finished.values()
        self._outcomes |= finished

    def _attach_to_neighbours(self, neighbours: Neighbours) -> list[int]:
        """Attach rows to their earliest neighbour that is an original; return the next wave."""
        wave = []
        for row in list(neighbours):
            for neighbour in neighbours[row]:
                if neighbour in neighbours:
                    break
                outcome = self._outcomes.get(neighbour)
                if outcome is not None and outcome.is_original:
                    self._within[row] = neighbour
                    del neighbours[row]
                    break
            else:
                wave.append(row)
        for row in wave:
            del neighbours[row]
        return wave

    def _drop_settled(self, neighbours: Neighbours, wave: list[int], claims: Claims) -> None:
        """Drop the rows that found their original, unless an earlier one may still come."""
        unsettled = set(wave)
        for row, earlier in list(neighbours.items()):
            found = self._outcomes.get(row)
            if found is None or any(
                one in unsettled and claims[one] < found.original for one in earlier
            ):
                unsettled.add(row)
                self._outcomes.pop(row, None)
            else:
                del neighbours[row]

    def _attachments(self, leaders: dict[int, int]) -> list[Attachment | None]:
        originals = {}
        for row, leader in leaders.items():
            outcome = self._outcomes.get(leader)
            if outcome is None:
                within = self._within[leader]
                originals[row] = self._driver.own_record(within)
                self._attached[row] = self._outcomes[within].original
            elif not outcome.is_original:
                originals[row] = self._driver.record_of(outcome.original)
                self._attached[row] = outcome.original
            elif row != leader:
                originals[row] = self._driver.own_record(leader)
                self._attached[row] = outcome.original
        if not self._index.matcher.first:
            self._prefer_within(leaders, originals)
        again = self._driver.again(originals)
        self._driver.note_ids({row: self._attached[row] for row in again})
        return self._driver.attachments(originals)

    def renewed(self) -> dict[int, float]:
        """Return the new time of each original that duplicates have renewed."""
        return self._driver.renew(self._attached) if self._index.records.renews else {}

    def _prefer_within(self, leaders: dict[int, int], originals: dict[int, Record]) -> None:
        """Attach rows to an original of the same batch, where they prefer it to the one found."""
        is_original = np.zeros(len(self._batch), np.bool_)
        is_original[[row for row, one in self._outcomes.items() if one.is_original]] = True
        distinct = np.array([row for row, leader in leaders.items() if row == leader], np.int64)
        pairs = near_pairs(self._batch, distinct, self._index.matcher)
        within = preferred_within(self._batch, leaders, is_original, pairs, self._index.matcher)
        preferences = self._driver.preferences(originals)
        for row, preferred in within.items():
            if row not in originals:  # an original itself, come again
                continue
            found = self._outcomes.get(leaders[row])
            one = (preferred.preference, self._outcomes[preferred.row].original)
            if found is None or found.is_original or one < (preferences[row], found.original):
                originals[row] = self._driver.own_record(preferred.row)
                self._attached[row] = self._outcomes[preferred.row].original

    def _mint(self, count: int) -> Claims:
        return self._index.mint(count)

    def _mint_one(self) -> int:
        return int(self._mint(1)[0])

    def counted(self, before: ClaimCounts) -> ClaimCounts:
        """Add what these claims went through to the counts before."""
        mine = ClaimCounts(
            voided=sum(outcome.voided for outcome in self._walked),
            retried=sum(outcome.attempts - 1 for outcome in self._walked),
            **self._driver.effort()._asdict(),
        )
        return before.plus(mine)
