"""Reads a whole index in Redis and checks by brute force what must hold of it (see claims.py).

The claims are read first, the table keys after them. An original is written under all of its keys
before it is committed, so whoever is an original in the first reading must be found complete in the
second, however much the index moves meanwhile, unless it is forgotten or expires. What looks wrong
is read again before it is reported. Nothing is written.

In memory stand the originals (evidence, digest, time and id), a claim number for each other claim,
and a bit for each key read; the keys themselves pass through. All originals that share a table key
are compared with each other, so a key with n originals costs n * n / 2 comparisons.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import closing

import msgspec
import numpy as np

from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.index.audit_decisions import Decisions, Published, Violation
from stream_dedup.index.audit_entries import Entries, TableCounts
from stream_dedup.index.audit_ids import check_ids
from stream_dedup.index.audit_reading import PENDING, VOID, Claims, Known, Reader, Rows
from stream_dedup.index.base import Matcher
from stream_dedup.index.connection import Client, connect, reporting_errors
from stream_dedup.index.records import RecordFormat
from stream_dedup.settings import Settings


class Audit(msgspec.Struct, frozen=True):
    """What an index holds, and what is wrong with it.

    Attributes:
        originals: committed claims.
        pending: claims whose fate was open; some are normal while workers run.
        void: claims that were voided; their records stay.
        entries: claims entered under table keys.
        pending_entries: of these, of pending claims.
        void_entries: of these, of void claims, which nobody has met since.
        unknown_entries: of these, of claims that have no record, also when read again.
        id_entries: claims entered under document ids.
        unnamed: originals that do not stand under their ids, because their worker died before it
            could enter them and the document has not come again.
        pairs_compared: pairs of originals that share a table key, once for each key.
        decisions: published decisions that were checked.
        gone: of these, of originals that have expired or were forgotten.
        other_configuration: published decisions left out, made with other fingerprint settings.
        tables: what stands in each table.
        violations: what is wrong, in order.
    """

    originals: int
    pending: int
    void: int
    entries: int
    pending_entries: int
    void_entries: int
    unknown_entries: int
    id_entries: int
    unnamed: int
    pairs_compared: int
    decisions: int
    gone: int
    other_configuration: int
    tables: list[TableCounts]
    violations: list[Violation]


def audit(settings: Settings, published: Iterable[Published] = ()) -> Audit:
    """Check the index of these settings, and the decisions published about it.

    Raises:
        ServiceError: Redis is out of reach, refuses, or has no such index.
        ConfigurationMismatch: the index was built with other fingerprint settings.
    """
    with closing(connect(settings)) as client, reporting_errors():
        return _Auditor(client, settings).run(published)


class _Auditor:
    """One audit."""

    def __init__(self, client: Client, settings: Settings) -> None:
        self._fingerprinter = Fingerprinter(settings)
        self._matcher = Matcher(self._fingerprinter.verifier, settings.window)
        self._format = RecordFormat.of(self._fingerprinter)
        self._most = settings.max_candidates
        self._pause = max(0.2, 2 * settings.claim_grace)
        self._reader = Reader(client, settings, self._fingerprinter.index_version)

    def run(self, published: Iterable[Published]) -> Audit:
        """Read everything and check it."""
        known = self._known()
        entries = self._entries(known)
        ids = check_ids(self._reader.id_sets(), known, self._reader.layout)
        decisions = Decisions(self._fingerprinter, self._matcher, self._reader.facts())
        decisions.check(published, known, entries.sums)
        if decisions.missing:
            decisions.check_missing(self._known(), self._reader.facts())
        violations = [*self._near(known, entries), *self._incomplete(known, entries)]
        unknown, left = self._still_unknown(entries.unknown)
        kinds = entries.kinds
        return Audit(
            originals=len(known.originals),
            pending=known.count(PENDING),
            void=known.count(VOID),
            entries=kinds.total() + len(entries.unknown),
            pending_entries=kinds[PENDING],
            void_entries=kinds[VOID] + left,
            unknown_entries=unknown,
            id_entries=ids.entries,
            unnamed=len(ids.missing) if self._reader.layout.ids else 0,
            pairs_compared=entries.pairs,
            decisions=decisions.count,
            gone=decisions.gone,
            other_configuration=decisions.others,
            tables=entries.counts(),
            violations=sorted([*violations, *decisions.violations]),
        )

    def _known(self) -> Known:
        return Known(self._reader.records(), self._format)

    def _entries(self, known: Known) -> Entries:
        entries = Entries(known, self._reader.layout, self._matcher, self._most)
        entries.read(self._reader.sets())
        return entries

    def _near(self, known: Known, entries: Entries) -> Iterator[Violation]:
        """I1: no two originals are near each other."""
        pairs = sorted(entries.near | self._equal(known))
        rows = sorted({row for pair in pairs for row in pair})
        standing = self._standing(known, np.array(rows, np.int64))
        for left, right in pairs:
            if {left, right} <= standing:
                one, other = (_named(known, row) for row in (left, right))
                yield Violation("I1", f"originals {one} and {other} are near")

    def _equal(self, known: Known) -> set[tuple[int, int]]:
        """Return pairs of originals with equal texts, neighbours in time."""
        rows = np.sort(known.originals)
        digests = known.digests[rows]
        order = rows[np.lexsort((known.times[rows], digests[:, 1], digests[:, 0]))]
        left, right = order[:-1], order[1:]
        same = (known.digests[left] == known.digests[right]).all(axis=1)
        same &= self._matcher.within_window(known.times[left], known.times[right])
        pairs = np.sort(np.stack([left[same], right[same]], axis=1), axis=1)
        return {(one, other) for one, other in pairs.tolist()}

    def _incomplete(self, known: Known, entries: Entries) -> Iterator[Violation]:
        """I4: an original stands under one key of each table."""
        tables = entries.seen.shape[1]
        rows = known.originals
        wrong = rows[~entries.seen[rows].all(axis=1) | (entries.times[rows] != tables)]
        if not len(wrong):
            return
        # Keys that move to another node may be passed by, so what either reading saw is there.
        again = self._entries(known)
        seen = entries.seen[wrong] | again.seen[wrong]
        times = np.minimum(entries.times[wrong], again.times[wrong])
        # Whoever is an original now was one all the time; the others have gone meanwhile.
        standing = self._standing(known, wrong)
        for row, missing, count in zip(wrong.tolist(), (~seen).sum(axis=1), times, strict=True):
            if row not in standing:
                continue
            if missing:
                detail = f"is missing from {missing} of {tables} tables"
            elif count > tables:
                detail = f"stands under {count} keys of {tables} tables"
            else:
                continue
            yield Violation("I4", f"original {_named(known, row)} {detail}")

    def _standing(self, known: Known, rows: Rows) -> set[int]:
        """Return those of the rows of originals that are originals still."""
        values = self._reader.values(known.owners[rows])
        return {row for row, value in zip(rows.tolist(), values, strict=True) if value[:1] == b"O"}

    def _still_unknown(self, entries: list[tuple[bytes, bytes]]) -> tuple[int, int]:
        """Count the entries of claims that have no record, now and after a moment.

        Returns:
            how many there are of claims that may get a record, and of others, which are void.
        """
        for wait in (0.0, self._pause):
            if not entries:
                break
            time.sleep(wait)
            values = self._reader.values(_claims_of(entries))
            entries = [one for one, value in zip(entries, values, strict=True) if not value]
            stand = self._reader.stand(entries)
            entries = [one for one, stands in zip(entries, stand, strict=True) if stands]
        void = int(self._reader.void(_claims_of(entries)).sum())
        return len(entries) - void, void


def _claims_of(entries: list[tuple[bytes, bytes]]) -> Claims:
    return np.frombuffer(b"".join(claim for _, claim in entries), ">u8").astype(np.uint64)


def _named(known: Known, row: int) -> str:
    return f"{known.ids[row]} (claim {int(known.owners[row]):016x})"
