"""Walks many documents through the claim protocol at once, a round of calls at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stream_dedup.errors import ServiceError
from stream_dedup.index.base import Attachment, IndexBatch, Matcher, id_hashes
from stream_dedup.index.claims import Call, Fate, Mode, Outcome, Pause, Sight, Steps
from stream_dedup.index.counts import Effort
from stream_dedup.index.expiry import NEVER
from stream_dedup.index.found import Found
from stream_dedup.index.gathered import Gathered, Seen, columns
from stream_dedup.index.keys import Places
from stream_dedup.index.records import Record, RecordFormat
from stream_dedup.index.registrations import Registrations
from stream_dedup.index.rounds import Round, read_on
from stream_dedup.index.store import RedisStore
from stream_dedup.runs import begins_of_runs

Rows = npt.NDArray[np.int64]
Claims = npt.NDArray[np.uint64]

#: Seconds within which one of the documents on the contended path is decided, or none ever will be;
#: a process that was stopped meanwhile has few rounds behind it.
UNDECIDED_SECONDS = 60.0
_UNDECIDED_ROUNDS = 16

#: Fates of a claim that nothing was written of.
_UNUSABLE = {Fate.VOID, Fate.TAKEN}
_WITH_RECORD = (Fate.PENDING, Fate.ORIGINAL)


class Sightings(NamedTuple):
    """Claims that documents came upon: a row, a table and a claim each, oldest first."""

    rows: Rows
    tables: Rows
    claims: Claims

    def without(self, rows: Collection[int]) -> Sightings:
        """Leave some rows out."""
        kept = ~np.isin(self.rows, list(rows))
        return Sightings(self.rows[kept], self.tables[kept], self.claims[kept])

    def pairs(self) -> list[tuple[int, int]]:
        """Return each row and claim once."""
        order = np.lexsort((self.claims, self.rows))
        rows, claims = self.rows[order], self.claims[order]
        first = begins_of_runs(rows, claims)
        return list(zip(rows[first].tolist(), claims[first].tolist(), strict=True))

    def by_row(self, tables: int) -> dict[int, Seen]:
        """Return, for each row, what it saw under each of its keys."""
        seen: dict[int, Seen] = {}
        for row, table, claim in zip(*(column.tolist() for column in self), strict=True):
            if row not in seen:
                seen[row] = [[] for _ in range(tables)]
            seen[row][table].append(claim)
        return seen


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
        self._known: dict[int, Record] = {}
        self._capped = self._probes = self._ruled_out = 0
        #: Rows whose claim turned out to be another document's.
        self.taken: set[int] = set()
        #: Pairs of a row and a claim that it came upon, and whether those compared are near: who
        #: goes the long way sees the same ones again.
        self._met: set[tuple[int, int]] = set()
        self._verified: dict[tuple[int, int], bool] = {}

    def effort(self) -> Effort:
        """Return what was done so far."""
        accepted = sum(self._verified.values())
        return Effort(
            capped=self._capped,
            probes=self._probes,
            candidates=len(self._met) + self._ruled_out,
            accepted=accepted,
            rejected=len(self._verified) - accepted + self._ruled_out,
        )

    def announce(self, rows: Rows, claims: Claims, modes: npt.NDArray[np.uint8]) -> Sightings:
        """Probe every table of each row, put the record where a claim may be inserted."""
        round_ = Round(self.store)
        inserting = modes != Mode.LOOK
        put = rows[inserting]
        stands = round_.put(claims[inserting], [self._records[row] for row in put.tolist()])
        tables = self._tables
        found = round_.probe(
            self.places(np.repeat(rows, tables), np.tile(np.arange(tables), len(rows))),
            np.repeat(claims, tables),
            np.repeat(modes, tables),
        )
        round_.run()
        if Fate.TAKEN in stands:
            self.taken.update(put[stands == Fate.TAKEN].tolist())
        self._read_on(found)
        self.store.progress()
        positions, members = found.pairs
        which, where = np.divmod(positions, tables)
        return Sightings(rows[which], where, members)

    def commit(self, rows: Rows, claims: Claims) -> npt.NDArray[np.bool_]:
        """Commit claims that saw nobody; say which are originals now, and not void."""
        round_ = Round(self.store)
        standing = round_.settle(claims, np.full(len(claims), Fate.ORIGINAL, np.uint8))
        self._note_ids(round_, rows, claims)
        round_.run()
        self.store.progress()
        committed: npt.NDArray[np.bool_] = standing == Fate.ORIGINAL
        return committed

    def register(
        self, rows: Rows, claims: Claims, known: dict[int, list[int]]
    ) -> tuple[Rows, list[tuple[int, int]], Rows]:
        """Register rows at once.

        Returns:
            those that are originals now; pairs of a row and a claim that it met and that is not
            among those known to it; rows whose claim cannot be used, void or another document's.
            A row that is in none of them takes the contended path.
        """
        round_ = Round(self.store)
        found = self._send_registers(
            round_, rows, claims, [known.get(row, ()) for row in rows.tolist()]
        )
        round_.run()
        self._count(found)
        self.store.progress()
        met = found.fates == Registrations.MET
        which, members = found.pairs
        told = met[which]
        pairs = zip(rows[which[told]].tolist(), members[told].tolist(), strict=True)
        unusable = rows[:0]
        if not _UNUSABLE.isdisjoint(found.fates.tobytes()):
            unusable = rows[(found.fates == Fate.VOID) | (found.fates == Fate.TAKEN)]
        return rows[found.fates == Fate.ORIGINAL], list(pairs), unusable

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

    def look(self, pairs: Sequence[tuple[int, int]]) -> tuple[dict[int, int], set[int]]:
        """Look at pairs of a row and a claim that it saw.

        Returns:
            The preferred near original of each row that has one among these, and the rows that saw
            a claim which cannot be left as it is (see ``is_passed``).
        """
        round_ = Round(self.store)
        values = self._values(round_, pairs)
        round_.run()
        self.store.progress()
        fates = self._keep_records(values())
        unsettled = {row for row, claim in pairs if fates[claim] not in _WITH_RECORD}
        pairs = [pair for pair in pairs if fates[pair[1]] in _WITH_RECORD]
        found: dict[int, tuple[float, int]] = {}
        for (row, claim), near, preference in zip(pairs, *self._compare_pairs(pairs), strict=True):
            if not near:
                continue
            if fates[claim] is Fate.ORIGINAL:
                one = (preference, claim)
                found[row] = min(one, found.get(row, one))
            else:
                unsettled.add(row)
        return {row: claim for row, (_, claim) in found.items()}, unsettled

    def give_up(self, rows: Sequence[int], claims: Claims, seen: Sightings) -> None:
        """Withdraw the claims of rows that turned out to be duplicates; forget their records."""
        inserted = np.ones((len(self.batch), self._tables), np.bool_)
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
        found = self._compare(np.array(rows, np.int64), records)[1]
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
        probed = round_.probe(
            self.places(rows, tables), claims.astype(np.uint64), modes.astype(np.uint8)
        )
        rows, claims, fates = columns(gathered.settles, 3)
        gathered.standing = round_.settle(claims.astype(np.uint64), fates.astype(np.uint8))
        committing = fates == Fate.ORIGINAL
        self._note_ids(round_, rows[committing], claims[committing].astype(np.uint64))
        rows, tables, claims = columns(gathered.withdraws, 3)
        round_.withdraw(self.places(rows, tables), claims.astype(np.uint64))
        round_.forget(np.array(gathered.forgets, np.uint64))
        values = self._values(round_, gathered.reads)
        registers = gathered.registers
        gathered.registered = self._send_registers(
            round_,
            np.array([row for row, _, _ in registers], np.int64),
            np.array([claim for _, claim, _ in registers], np.uint64),
            [known for _, _, known in registers],
        )
        round_.run()
        self._count(gathered.registered)
        self._read_on(probed)
        gathered.sights = self._sights(gathered.reads, values())
        gathered.seen = [[] for _ in gathered.probes]
        for position, claim in zip(*(column.tolist() for column in probed.pairs), strict=True):
            gathered.seen[position].append(claim)
        return {row: [reply() for reply in resolvers] for row, resolvers in replies.items()}

    def _send_registers(
        self, round_: Round, rows: Rows, claims: Claims, known: Sequence[Sequence[int]]
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
        return self.store.layout.place_ids(id_hashes([ids[row] for row in rows.tolist()]))

    def _read_on(self, found: Found) -> None:
        """Read what the first page of each probe did not hold; count probes, and what is cut."""
        read_on(self.store, found)
        self._probes += len(found.claims)
        self._capped += found.capped

    def _values(
        self, round_: Round, pairs: Sequence[tuple[int, int]]
    ) -> Callable[[], dict[int, bytes]]:
        """Read the claims of pairs; the returned function gives them once the round is done."""
        self._met.update(pairs)
        claims = sorted({claim for _, claim in pairs})
        values = round_.read(np.array(claims, np.uint64))
        return lambda: dict(zip(claims, values, strict=True))

    def _keep_records(self, values: dict[int, bytes]) -> dict[int, Fate]:
        """Decode what was read of claims; return their fates."""
        fates = {claim: Fate(value[0]) if value else Fate.ABSENT for claim, value in values.items()}
        for claim, fate in fates.items():
            if fate in _WITH_RECORD and claim not in self._known:
                self._known[claim] = self._format.decode(values[claim][1:])
        return fates

    def _sights(self, pairs: Sequence[tuple[int, int]], values: dict[int, bytes]) -> list[Sight]:
        fates = self._keep_records(values)
        comparable = [pair for pair in pairs if fates[pair[1]] in _WITH_RECORD]
        compared = zip(*self._compare_pairs(comparable), strict=True)
        found = dict(zip(comparable, compared, strict=True))
        sights = []
        for row, claim in pairs:
            if (row, claim) not in found:
                sights.append(Sight(fates[claim], near=False, same=False))
                continue
            is_near, preference = found[row, claim]
            same = self._is_same(row, self._known[claim])
            sights.append(Sight(fates[claim], is_near, same, preference))
        return sights

    def _compare_pairs(self, pairs: Sequence[tuple[int, int]]) -> tuple[list[bool], list[float]]:
        rows = np.array([row for row, _ in pairs], np.int64)
        near, preferences = self._compare(rows, [self._known[claim] for _, claim in pairs])
        is_near = near.tolist()
        self._verified.update(zip(pairs, is_near, strict=True))
        return is_near, preferences.tolist()

    def _compare(
        self, rows: Rows, records: Sequence[Record]
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.float64]]:
        """Say which pairs of a row and a record are near, and how much the row prefers it."""
        times = np.array([record.time for record in records], np.float64)
        ranks = np.array([record.rank for record in records], np.float64)
        mine, theirs = self.batch.prints.evidence.rows(rows), self._format.evidence(records)
        scores, near = self._matcher.compare(mine, theirs)
        renewed = None
        if self._format.renews:
            renewed = np.array([record.renewed for record in records], np.float64)
        near &= self._matcher.within_window(self.batch.times[rows], times, renewed)
        return near, self._matcher.preferences(scores, times, ranks)

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
