"""Walks many documents through the claim protocol at once, a round of calls at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stream_dedup.errors import ServiceError
from stream_dedup.index.base import Attachment, IndexBatch, Matcher
from stream_dedup.index.claims import Call, Fate, Mode, Outcome, Pause, Sight, Steps
from stream_dedup.index.counts import Effort
from stream_dedup.index.expiry import NEVER
from stream_dedup.index.found import Found
from stream_dedup.index.gathered import Gathered, columns
from stream_dedup.index.keys import Places
from stream_dedup.index.records import Record, RecordFormat
from stream_dedup.index.registrations import Registrations, spelled
from stream_dedup.index.rounds import Round, read_all, read_on
from stream_dedup.index.sightings import Met, Pairs, Sightings
from stream_dedup.index.store import RedisStore
from stream_dedup.runs import begins_of_runs

Rows = npt.NDArray[np.int64]
Claims = npt.NDArray[np.uint64]

#: Seconds within which one of the documents on the contended path is decided, or none ever will be;
#: a process that was stopped meanwhile has few rounds behind it.
UNDECIDED_SECONDS = 60.0
_UNDECIDED_ROUNDS = 16

#: Fates of a claim that nothing was written of.
_UNUSABLE = (Fate.VOID, Fate.TAKEN)
_WITH_RECORD = (Fate.PENDING, Fate.ORIGINAL)
_BYTES = tuple(bytes([fate]) for fate in _WITH_RECORD)
_FATES = {int(fate): fate for fate in Fate}
_NOBODY = np.zeros(0, np.int64)

#: Pairs of a row and a claim whose records are read and compared together.
_PAIRS = 1 << 15


class _Compared(NamedTuple):
    """What rows see of claims: see ``Sight``, a pair each."""

    fates: npt.NDArray[np.uint8]
    near: npt.NDArray[np.bool_]
    same: npt.NDArray[np.bool_]
    preferences: npt.NDArray[np.float64]

    @property
    def are_unsettled(self) -> npt.NDArray[np.bool_]:
        """Which claims cannot be left as they are."""
        matters = self.near | self.same
        passed = (self.fates == Fate.ORIGINAL) | ((self.fates == Fate.PENDING) & ~matters)
        unsettled: npt.NDArray[np.bool_] = ~passed
        return unsettled

    def preferred(self, pairs: Pairs, *, own: bool) -> Rows:
        """Return, for each row that has one, the pair of the original that it belongs to.

        Of its near originals the one that it prefers, the earliest of several; with ``own`` before
        all of them one that is a claim of the row's own document.
        """
        first = self.same & own
        at = np.flatnonzero((self.near | first) & (self.fates == Fate.ORIGINAL))
        order = (pairs.claims[at], self.preferences[at], ~first[at], pairs.rows[at])
        at = at[np.lexsort(order)]
        return at[begins_of_runs(pairs.rows[at])]


class Driver:
    """Carries out the protocol's calls for the documents of one batch."""

    def __init__(
        self, store: RedisStore, batch: IndexBatch, matcher: Matcher, records: RecordFormat
    ) -> None:
        self.store = store
        self.batch = batch
        self._matcher = matcher
        self._places = store.layout.place(batch.prints.keys)
        self._tables = batch.prints.keys.shape[1]
        self._format = records
        self._records = records.encode(batch)
        self._digests = batch.digest_words()
        #: Records of the originals that rows may belong to.
        self._known: dict[int, Record] = {}
        self._capped = self._probes = self._ruled_out = 0
        #: Rows whose claim turned out to be another document's.
        self.taken: set[int] = set()
        self._met = Met()
        #: Keys that are known to be full, and rows most of whose keys are (see ``Bound``).
        self._full = np.zeros((len(batch), self._tables), np.bool_)
        self._deep = np.zeros(len(batch), np.bool_)
        #: What was cut of the latest announcement.
        self._cut = Sightings(_NOBODY, _NOBODY, _NOBODY.astype(np.uint64))

    def effort(self) -> Effort:
        """Return what was done so far."""
        candidates, accepted, rejected = self._met.totals()
        return Effort(
            capped=self._capped,
            probes=self._probes,
            candidates=candidates + self._ruled_out,
            accepted=accepted,
            rejected=rejected + self._ruled_out,
        )

    def announce(self, rows: Rows, claims: Claims, mode: Mode) -> Iterator[tuple[Rows, Sightings]]:
        """Probe every table of each row, put the record where a claim may be inserted.

        Yields what some of the rows saw, until it has been all of them: most at once, those most of
        whose keys are full a few at a time (see ``Bound``).

        Args:
            rows: the rows.
            claims: of all rows.
            mode: whether claims are inserted.
        """
        bound = self.store.bound
        shallow = rows[~self._deep[rows]]
        seen = self._announce(shallow, claims, mode, bound.share)
        yield shallow[~self._deep[shallow]], seen
        deep = rows[self._deep[rows]]
        for start in range(0, len(deep), bound.deep_step):
            some = deep[start : start + bound.deep_step]
            yield some, self._announce(some, claims, mode, bound.most)

    def force(self, claims: Claims, seen: Sightings) -> Sightings:
        """Insert the claims of rows where these saw somebody; return who else is there now."""
        keys, bound = seen.places(), self.store.bound
        limit = bound.most if self._deep[keys[0]].any() else bound.share
        found, rows, tables = self._probe(Round(self.store), keys, claims, Mode.FORCE, limit)
        self._full[rows[found.full], tables[found.full]] = True
        self._capped += len(found.full)
        again, _ = self._sightings(rows, tables, found)
        return again.beyond(seen).beyond(self._cut)

    def may_be_registered(self, rows: Rows) -> Rows:
        """Return the rows that are not known to meet more than a registration returns."""
        return rows[~self._full[rows].any(axis=1)]

    def _announce(self, rows: Rows, claims: Claims, mode: Mode, limit: int) -> Sightings:
        """Probe every table of some rows; those that are to be read further are only marked."""
        round_ = Round(self.store)
        put = rows[:0] if mode == Mode.LOOK else rows
        stands = round_.put(claims[put], [self._records[row] for row in put.tolist()])
        tables = np.tile(np.arange(self._tables), len(rows))
        found, rows, tables = self._probe(
            round_, (np.repeat(rows, self._tables), tables), claims, mode, limit
        )
        self.taken.update(put[stands == Fate.TAKEN].tolist())
        seen, self._cut = self._sightings(rows, tables, found)
        if not len(found.full) and not len(self._cut.rows):
            return seen
        if limit < self.store.bound.most:
            self._deep[self.store.bound.deep(rows[found.full])] = True
            kept = np.flatnonzero(~self._deep[rows])
        else:
            kept = np.arange(len(rows))
        full = np.intersect1d(found.full, kept)
        self._full[rows[full], tables[full]] = True
        cut = np.zeros((len(self.batch), self._tables), np.bool_)
        cut[self._cut.rows, self._cut.tables] = True
        cut[rows[full], tables[full]] = True
        self._capped += int(np.count_nonzero(cut[np.unique(rows[kept])]))
        return seen.of(rows[kept]) if len(kept) < len(rows) else seen

    def _probe(
        self, round_: Round, keys: tuple[Rows, Rows], claims: Claims, mode: Mode, limit: int
    ) -> tuple[Found, Rows, Rows]:
        """Probe keys, a row and a table each; return what was found, and which were probed."""
        rows, tables = keys
        if mode != Mode.LOOK:
            full = self._full[rows, tables]
            if full.any():
                # Whoever looks there again sees the same: the oldest. So the claim is only entered.
                round_.note(self.places(rows[full], tables[full]), claims[rows[full]])
                rows, tables = rows[~full], tables[~full]
        modes = np.full(len(rows), mode, np.uint8)
        found = round_.probe(self.places(rows, tables), claims[rows], modes, limit)
        round_.run()
        read_on(self.store, found)
        self.store.progress()
        self._probes += len(rows)
        return found, rows, tables

    def _sightings(self, rows: Rows, tables: Rows, found: Found) -> tuple[Sightings, Sightings]:
        """Return what rows saw of their candidates, by row, and what else, which is cut."""
        positions, members = found.pairs
        order = np.argsort(positions, kind="stable")
        positions, members = positions[order], members[order]
        kept = self.store.bound.kept(rows[positions], positions, members)
        seen = Sightings(rows[positions], tables[positions], members)
        return (seen, seen.where(~kept)) if kept.all() else (seen.where(kept), seen.where(~kept))

    def commit(self, rows: Rows, claims: Claims) -> npt.NDArray[np.bool_]:
        """Commit claims that saw nobody; say which are originals now, and not void."""
        round_ = Round(self.store)
        standing = round_.settle(claims, np.full(len(claims), Fate.ORIGINAL, np.uint8))
        self._note_ids(round_, rows, claims)
        round_.run()
        self.store.progress()
        committed: npt.NDArray[np.bool_] = standing == Fate.ORIGINAL
        return committed

    def register(self, rows: Rows, claims: Claims, known: Pairs) -> tuple[Rows, Pairs, Rows]:
        """Register rows at once.

        Returns:
            those that are originals now; pairs of a row and a claim that it met and that is not
            among those known to it; rows whose claim cannot be used, void or another document's.
            A row that is in none of them takes the contended path.
        """
        round_ = Round(self.store)
        starts = np.searchsorted(known.rows, rows)
        ends = np.searchsorted(known.rows, rows, side="right")
        passed = [
            spelled(known.claims[start:end]) if end > start else b""
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        ]
        found = self._send_registers(round_, rows, claims, passed)
        round_.run()
        self._count(found)
        self.store.progress()
        which, members = found.pairs
        met = found.fates[which] == Registrations.MET
        unusable = rows[np.isin(found.fates, _UNUSABLE)]
        pairs = Pairs.of(rows[which[met]], members[met])
        return rows[found.fates == Fate.ORIGINAL], pairs, unusable

    def note_ids(self, originals: dict[int, int]) -> None:
        """Enter originals, by row, under their ids: whoever registered them may have died before.

        Most have an entry, which is then as before.
        """
        if originals:
            round_ = Round(self.store)
            claims = np.array(list(originals.values()), np.uint64)
            self._note_ids(round_, np.array(list(originals), np.int64), claims)
            round_.run()

    def renew(self, originals: dict[int, int]) -> dict[int, float]:
        """Return the new time of each original that is renewed, given it for each row."""
        renewed: dict[int, float] = {}
        for row, claim in originals.items():
            time = float(self.batch.times[row])
            known = self._known.get(claim)
            if time > max(renewed.get(claim, NEVER), known.renewed if known else NEVER):
                renewed[claim] = time
        return renewed

    def finish(self, documents: dict[int, Steps]) -> dict[int, Outcome]:
        """Walk each row's steps to their end, all rows side by side.

        Only what decides a document is progress: claims may be voided again and again.

        Raises:
            ServiceError: none of them was decided for a minute.
        """
        outcomes: dict[int, Outcome] = {}
        rounds, progressed = 0, time.monotonic()
        waiting: dict[int, tuple[float, list[Call]]] = {}
        for row, steps in documents.items():
            waiting[row] = (0.0, next(steps))
        while waiting:
            now = time.monotonic()
            ready = {row: calls for row, (at, calls) in waiting.items() if at <= now}
            if not ready:
                time.sleep(min(at for at, _ in waiting.values()) - now)
                continue
            decided = len(outcomes)
            for row, replies in self._carry_out(ready).items():
                try:
                    calls = documents[row].send(replies)
                except StopIteration as end:
                    outcomes[row] = end.value
                    del waiting[row]
                else:
                    pause = sum(call.seconds for call in calls if isinstance(call, Pause))
                    waiting[row] = (time.monotonic() + pause, calls)
            rounds += 1
            if len(outcomes) > decided:
                rounds, progressed = 0, time.monotonic()
                self.store.progress()
            elif rounds >= _UNDECIDED_ROUNDS and time.monotonic() - progressed > UNDECIDED_SECONDS:
                raise ServiceError(_undecided(len(waiting), rounds))
        return outcomes

    def look(self, pairs: Pairs) -> tuple[dict[int, int], set[int]]:
        """Look at pairs of a row and a claim that it saw.

        Returns:
            The preferred near original of each row that has one among these, and the rows that saw
            a claim which cannot be left as it is (see ``is_passed``).
        """
        found: dict[int, int] = {}
        unsettled: set[int] = set()
        for part in pairs.parts(_PAIRS):
            round_ = Round(self.store)
            claims, of = np.unique(part.claims, return_inverse=True)
            values = round_.read(claims)
            round_.run()
            self.store.progress()
            compared = self._compare_values(part, values, of)
            unsettled.update(part.rows[compared.are_unsettled].tolist())
            best = compared.preferred(part, own=False)
            found |= zip(part.rows[best].tolist(), part.claims[best].tolist(), strict=True)
            self._keep_records(part.claims[best], [values[at] for at in of[best].tolist()])
        return found, unsettled

    def give_up(self, rows: Sequence[int], claims: Claims, seen: Sightings | None) -> None:
        """Withdraw the claims of rows that turned out to be duplicates; forget their records.

        Args:
            rows: the duplicates.
            claims: of all rows.
            seen: where they saw somebody, and so were not inserted; none if they were forced in.
        """
        if not rows:
            return
        inserted = np.ones((len(self.batch), self._tables), np.bool_)
        if seen is not None:
            inserted[seen.rows, seen.tables] = False
        ending = np.array(rows, np.int64)
        which, tables = np.nonzero(inserted[ending])
        round_ = Round(self.store)
        round_.withdraw(self.places(ending[which], tables), claims[ending[which]])
        round_.forget(claims[ending])
        round_.run()

    def record_of(self, claim: int) -> Record:
        """Return the record of a claim that was seen."""
        return self._known[claim]

    def own_record(self, row: int) -> Record:
        """Return the record of one of the documents."""
        return self._format.decode(self._records[row])

    def preferences(self, originals: dict[int, Record]) -> dict[int, float]:
        """Say how much each row prefers an original; see ``Matcher.preferences``."""
        rows, records = list(originals), list(originals.values())
        mine = self.batch.prints.evidence.rows(np.array(rows, np.int64))
        scores, _ = self._matcher.compare(mine, self._format.evidence(records))
        times = np.array([record.time for record in records], np.float64)
        ranks = np.array([record.rank for record in records], np.float64)
        found = self._matcher.preferences(scores, times, ranks)
        return dict(zip(rows, found.tolist(), strict=True))

    def again(self, originals: dict[int, Record]) -> list[int]:
        """Return the rows whose original, given by row, is their own document, come before."""
        return [row for row, record in originals.items() if self._is_same(row, record)]

    def attachments(self, originals: dict[int, Record]) -> list[Attachment | None]:
        """Describe the original that each row belongs to; None for an original itself.

        ``originals`` has a record for each row that belongs to one. A row's own document, come
        again, is no duplicate.
        """
        attachments: list[Attachment | None] = [None] * len(self.batch)
        rows = [row for row, record in originals.items() if not self._is_same(row, record)]
        records = [originals[row] for row in rows]
        mine = self.batch.prints.evidence.rows(np.array(rows, np.int64))
        theirs = self._format.evidence(records)
        scores = self._matcher.scores(mine, theirs)
        digests = self.batch.prints.digests
        for row, record, score in zip(rows, records, scores, strict=True):
            exact = record.digest == digests[row]
            attachments[row] = Attachment(record.document_id, record.digest, score, exact)
        return attachments

    def places(self, rows: Rows, tables: Rows) -> Places:
        """Return where the keys of (row, table) are kept."""
        suffixes, scores, partitions = self._places
        return Places(suffixes[rows, tables], scores[rows, tables], partitions[rows, tables])

    def _carry_out(self, wanted: dict[int, list[Call]]) -> dict[int, list[Any]]:
        """Send the calls of all rows in one round."""
        gathered = Gathered()
        replies = {
            row: [gathered.add(row, call) for call in calls] for row, calls in wanted.items()
        }
        round_ = Round(self.store)
        gathered.put = round_.put(
            np.array([claim for _, claim in gathered.puts], np.uint64),
            [self._records[row] for row, _ in gathered.puts],
        )
        rows, tables, claims, modes = columns(gathered.probes, 4)
        asking = rows
        probed = round_.probe(
            self.places(rows, tables),
            claims.astype(np.uint64),
            modes.astype(np.uint8),
            self.store.bound.share,
        )
        rows, claims, fates = columns(gathered.settles, 3)
        gathered.standing = round_.settle(claims.astype(np.uint64), fates.astype(np.uint8))
        committing = fates == Fate.ORIGINAL
        self._note_ids(round_, rows[committing], claims[committing].astype(np.uint64))
        rows, tables, claims = columns(gathered.withdraws, 3)
        round_.withdraw(self.places(rows, tables), claims.astype(np.uint64))
        round_.forget(np.array(gathered.forgets, np.uint64))
        rows, claims = columns(gathered.reads, 2)
        read, of = np.unique(claims.astype(np.uint64), return_inverse=True)
        values = round_.read(read)
        reads = Pairs(rows, claims.astype(np.uint64))
        registers = gathered.registers
        gathered.registered = self._send_registers(
            round_,
            np.array([row for row, _, _ in registers], np.int64),
            np.array([claim for _, claim, _ in registers], np.uint64),
            [spelled(known) for _, _, known in registers],
        )
        round_.run()
        self._count(gathered.registered)
        self._read_on(probed, asking)
        gathered.sights = self._sights(reads, values, of)
        gathered.seen = [[] for _ in gathered.probes]
        positions, members = probed.pairs
        kept = self.store.bound.kept(asking[positions], positions, members)
        for position, claim in zip(positions[kept].tolist(), members[kept].tolist(), strict=True):
            gathered.seen[position].append(claim)
        return {row: [reply() for reply in resolvers] for row, resolvers in replies.items()}

    def _send_registers(
        self, round_: Round, rows: Rows, claims: Claims, known: Sequence[bytes]
    ) -> Registrations:
        records = [self._records[row] for row in rows.tolist()]
        ids = self._places_of_ids(rows) if self.store.layout.ids else None
        places, compared = self._places.rows(rows), self._format.compared
        return round_.register(places, claims, records, known, ids=ids, compared=compared)

    def _count(self, found: Registrations) -> None:
        """Count the probes of registrations, and the candidates that Redis ruled out."""
        self._probes += len(found.fates) * self._tables
        self._ruled_out += found.ruled_out

    def _note_ids(self, round_: Round, rows: Rows, claims: Claims) -> None:
        if self.store.layout.ids:
            round_.note(self._places_of_ids(rows), claims)

    def _places_of_ids(self, rows: Rows) -> Places:
        ids = self.batch.ids
        return self.store.layout.place_ids([ids[row] for row in rows.tolist()])

    def _read_on(self, found: Found, rows: Rows) -> None:
        """Read what the first page of each probe did not hold; count probes, and what is cut."""
        read_on(self.store, found)
        read_all(self.store, found, rows)
        self._probes += len(found.claims)
        self._capped += len(found.full)

    def _keep_records(self, claims: Claims, values: Sequence[bytes]) -> None:
        for claim, value in zip(claims.tolist(), values, strict=True):
            if claim not in self._known:
                self._known[claim] = self._format.decode(value[1:])

    def _sights(self, pairs: Pairs, values: Sequence[bytes], of: Rows) -> list[Sight]:
        compared = self._compare_values(pairs, values, of)
        best = compared.preferred(pairs, own=True)
        self._keep_records(pairs.claims[best], [values[at] for at in of[best].tolist()])
        fates, near, same, preferences = (column.tolist() for column in compared)
        return [
            Sight(_FATES[fate], *rest)
            for fate, *rest in zip(fates, near, same, preferences, strict=True)
        ]

    def _compare_values(self, pairs: Pairs, values: Sequence[bytes], of: Rows) -> _Compared:
        """Compare rows with claims.

        Args:
            pairs: of a row and a claim.
            values: what is kept of claims.
            of: for each pair, which of these is that of its claim.
        """
        fates = np.array([value[0] if value else Fate.ABSENT for value in values], np.uint8)
        comparable = np.isin(fates, _WITH_RECORD)
        chosen = np.flatnonzero(comparable[of])
        columns = self._format.columns([value for value in values if value[:1] in _BYTES])
        rows, others = pairs.rows[chosen], (np.cumsum(comparable) - 1)[of[chosen]]
        batch, matcher = self.batch, self._matcher
        scores, is_near = matcher.compare_rows(
            batch.prints.evidence, rows, columns.evidence, others
        )
        times, renewed = columns.times[others], columns.renewed[others]
        is_near &= matcher.within_window(batch.times[rows], times, renewed)
        self._met.add(pairs, chosen, is_near)
        near, same = np.zeros(len(of), np.bool_), np.zeros(len(of), np.bool_)
        preferences = np.zeros(len(of))
        near[chosen] = is_near
        same[chosen] = (columns.identities[others] == batch.identities[rows]) & (
            columns.digests[others] == self._digests[rows]
        ).all(axis=1)
        preferences[chosen] = matcher.preferences(scores, times, columns.ranks[others])
        return _Compared(fates[of], near, same, preferences)

    def _is_same(self, row: int, record: Record) -> bool:
        return bool(
            record.identity == self.batch.identities[row]
            and record.digest == self.batch.prints.digests[row]
        )


def _undecided(documents: int, rounds: int) -> str:
    """Say that nothing is decided, and what may help."""
    return (
        f"{documents} documents were not decided in {UNDECIDED_SECONDS:.0f} s and {rounds} rounds "
        "of calls: their claims are voided again and again. Check the clocks of Redis and of the "
        "workers, that no worker of an older version sweeps the index, and the load on Redis."
    )
