"""Walks many documents through the claim protocol at once, a round of calls at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from stream_dedup.index.base import Attachment, IndexBatch, Matcher
from stream_dedup.index.claims import (
    Call,
    Fate,
    Forget,
    Mode,
    Outcome,
    Pause,
    Probe,
    Put,
    Read,
    Settle,
    Sight,
    Steps,
    Withdraw,
)
from stream_dedup.index.keys import Places
from stream_dedup.index.records import Record, RecordFormat
from stream_dedup.index.store import Found, RedisStore, Round

Rows = npt.NDArray[np.int64]
Claims = npt.NDArray[np.uint64]

#: Claims seen under each table key of a document.
Seen = list[list[int]]


class Driver:
    """Carries out the protocol's calls for the documents of one batch.

    Attributes:
        capped: probes that had more candidates than they return.
    """

    def __init__(
        self, store: RedisStore, batch: IndexBatch, matcher: Matcher, records: RecordFormat
    ) -> None:
        self.store = store
        self.batch = batch
        self.capped = 0
        self._matcher = matcher
        self._places = store.layout.place(batch.prints.keys)
        self._tables = batch.prints.keys.shape[1]
        self._format = records
        self._records = records.encode(batch)
        self._known: dict[int, Record] = {}

    def announce(self, rows: Rows, claims: Claims, modes: npt.NDArray[np.uint8]) -> dict[int, Seen]:
        """Probe every table of each row, put the record where a claim may be inserted.

        Returns what was seen, for the rows that saw anything.
        """
        round_ = self.store.round()
        inserting = modes != Mode.LOOK
        put = rows[inserting]
        round_.put(claims[inserting], [self._records[row] for row in put.tolist()])
        tables = self._tables
        found = round_.probe(
            self.places(np.repeat(rows, tables), np.tile(np.arange(tables), len(rows))),
            np.repeat(claims, tables),
            np.repeat(modes, tables),
        )
        round_.run()
        self._read_on(found)
        seen: dict[int, Seen] = {}
        positions, members = found.pairs
        which, where = np.divmod(positions, tables)
        for row, table, claim in zip(
            rows[which].tolist(), where.tolist(), members.tolist(), strict=True
        ):
            if row not in seen:
                seen[row] = [[] for _ in range(tables)]
            seen[row][table].append(claim)
        return seen

    def commit(self, claims: Claims) -> npt.NDArray[np.bool_]:
        """Commit claims that saw nobody; say which are originals now, and not void."""
        round_ = self.store.round()
        standing = round_.settle(claims, np.full(len(claims), Fate.ORIGINAL, np.uint8))
        round_.run()
        committed: npt.NDArray[np.bool_] = standing == Fate.ORIGINAL
        return committed

    def finish(self, documents: dict[int, Steps]) -> dict[int, Outcome]:
        """Walk each row's steps to their end, all rows side by side."""
        outcomes: dict[int, Outcome] = {}
        waiting: dict[int, tuple[float, list[Call]]] = {}
        for row, steps in documents.items():
            waiting[row] = (0.0, next(steps))
        while waiting:
            now = time.monotonic()
            ready = {row: calls for row, (at, calls) in waiting.items() if at <= now}
            if not ready:
                time.sleep(min(at for at, _ in waiting.values()) - now)
                continue
            for row, replies in self._carry_out(ready).items():
                try:
                    calls = documents[row].send(replies)
                except StopIteration as end:
                    outcomes[row] = end.value
                    del waiting[row]
                else:
                    pause = sum(call.seconds for call in calls if isinstance(call, Pause))
                    waiting[row] = (time.monotonic() + pause, calls)
        return outcomes

    def look(self, seen: dict[int, Seen]) -> dict[int, int]:
        """Return the preferred near original of each row that has one among the claims seen."""
        pairs = [(r, c) for r, tables in seen.items() for c in {c for t in tables for c in t}]
        round_ = self.store.round()
        sights = self._read(round_, pairs)
        round_.run()
        found: dict[int, tuple[float, int]] = {}
        for (row, claim), sight in zip(pairs, sights(), strict=True):
            if sight.fate is Fate.ORIGINAL and sight.near:
                one = (sight.preference, claim)
                found[row] = min(one, found.get(row, one))
        return {row: claim for row, (_, claim) in found.items()}

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
        gathered = _Gathered()
        replies = {
            row: [gathered.add(row, call) for call in calls] for row, calls in wanted.items()
        }
        round_ = self.store.round()
        round_.put(
            np.array([claim for _, claim in gathered.puts], np.uint64),
            [self._records[row] for row, _ in gathered.puts],
        )
        rows, tables, claims, modes = _columns(gathered.probes, 4)
        probed = round_.probe(
            self.places(rows, tables), claims.astype(np.uint64), modes.astype(np.uint8)
        )
        claims, fates = _columns(gathered.settles, 2)
        gathered.standing = round_.settle(claims.astype(np.uint64), fates.astype(np.uint8))
        rows, tables, claims = _columns(gathered.withdraws, 3)
        round_.withdraw(self.places(rows, tables), claims.astype(np.uint64))
        round_.forget(np.array(gathered.forgets, np.uint64))
        sights = self._read(round_, gathered.reads)
        round_.run()
        self._read_on(probed)
        gathered.sights = sights()
        gathered.seen = [[] for _ in gathered.probes]
        for position, claim in zip(*(column.tolist() for column in probed.pairs), strict=True):
            gathered.seen[position].append(claim)
        return {row: [reply() for reply in resolvers] for row, resolvers in replies.items()}

    def _read_on(self, found: Found) -> None:
        """Read what the first page of each probe did not hold, and count what is cut."""
        self.store.read_on(found)
        self.capped += found.capped

    def _read(self, round_: Round, pairs: Sequence[tuple[int, int]]) -> Callable[[], list[Sight]]:
        """Read claims for rows; the returned function gives the sights once the round is done."""
        claims = sorted({claim for _, claim in pairs})
        values = round_.read(np.array(claims, np.uint64))
        return lambda: self._sights(pairs, dict(zip(claims, values, strict=True)))

    def _sights(self, pairs: Sequence[tuple[int, int]], values: dict[int, bytes]) -> list[Sight]:
        for claim, value in values.items():
            if value[:1] in (b"P", b"O"):
                self._known[claim] = self._format.decode(value[1:])
        comparable = [(row, claim) for row, claim in pairs if values[claim][:1] in (b"P", b"O")]
        rows = np.array([row for row, _ in comparable], np.int64)
        near, preferences = self._compare(rows, [self._known[claim] for _, claim in comparable])
        found = dict(
            zip(comparable, zip(near.tolist(), preferences.tolist(), strict=True), strict=True)
        )
        sights = []
        for row, claim in pairs:
            fate = Fate(values[claim][0]) if values[claim] else Fate.ABSENT
            if (row, claim) not in found:
                sights.append(Sight(fate, near=False, same=False))
                continue
            is_near, preference = found[row, claim]
            same = self._is_same(row, self._known[claim])
            sights.append(Sight(fate, is_near, same, preference))
        return sights

    def _compare(
        self, rows: Rows, records: Sequence[Record]
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.float64]]:
        """Say which pairs of a row and a record are near, and how much the row prefers it."""
        times = np.array([record.time for record in records], np.float64)
        ranks = np.array([record.rank for record in records], np.float64)
        mine, theirs = self.batch.prints.evidence.rows(rows), self._format.evidence(records)
        scores, near = self._matcher.compare(mine, theirs)
        near &= self._matcher.within_window(self.batch.times[rows], times)
        return near, self._matcher.preferences(scores, times, ranks)

    def _is_same(self, row: int, record: Record) -> bool:
        return bool(
            record.identity == self.batch.identities[row]
            and record.digest == self.batch.prints.digests[row]
        )


class _Gathered:
    """The calls of many rows, as lists of rows for one round, and where their replies will be."""

    def __init__(self) -> None:
        self.puts: list[tuple[int, int]] = []
        self.probes: list[tuple[int, int, int, int]] = []
        self.reads: list[tuple[int, int]] = []
        self.settles: list[tuple[int, int]] = []
        self.withdraws: list[tuple[int, int, int]] = []
        self.forgets: list[int] = []
        self.seen: Seen = []
        self.sights: list[Sight] = []
        self.standing: npt.NDArray[np.uint8] = np.zeros(0, np.uint8)

    def add(self, row: int, call: Call) -> Callable[[], Any]:
        """Add a call; the returned function gives its reply once the round is done."""
        match call:
            case Put(claim):
                self.puts.append((row, claim))
            case Probe(claim, tables, mode):
                seen = slice(len(self.probes), len(self.probes) + len(tables))
                self.probes += [(row, table, claim, mode) for table in tables]
                return lambda: self.seen[seen]
            case Read(claims):
                read = slice(len(self.reads), len(self.reads) + len(claims))
                self.reads += [(row, claim) for claim in claims]
                return lambda: self.sights[read]
            case Settle(claim, fate):
                at = len(self.settles)
                self.settles.append((claim, fate))
                return lambda: Fate(int(self.standing[at]))
            case Withdraw(claim, tables):
                self.withdraws += [(row, table, claim) for table in tables]
            case Forget(claim):
                self.forgets.append(claim)
            case Pause():
                pass
        return lambda: None


def _columns(rows: Sequence[tuple[int, ...]], count: int) -> list[npt.NDArray[np.int64]]:
    """Turn rows into columns; claim ids stay below 2^63, so int64 holds them."""
    table = np.array(rows, np.int64).reshape(len(rows), count)
    return [table[:, column] for column in range(count)]
