"""Forgetting documents of the index in Redis: their originals are found by id and become void.

One Function takes the record away and leaves a void claim, which matches nothing. Its entries in
the tables are removed at once as far as the table keys follow from the record; the others go with
the next sweep, or with the next document that comes upon them.

A forgetting beside a document that is being decided comes before it or after it: a claim that is
still open is left alone, and whoever was attached to the original before stays a duplicate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.index.base import Registered
from stream_dedup.index.claims import Fate, Mode
from stream_dedup.index.keys import Places
from stream_dedup.index.records import Record, RecordFormat
from stream_dedup.index.rounds import Round, read_on
from stream_dedup.index.store import Numbers, RedisStore
from stream_dedup.index.upkeep import Upkeep
from stream_dedup.types import DocumentId

#: Ids looked for in one round.
_IDS = 500


class _Original(NamedTuple):
    """An original: the row of its id, its claim and its record."""

    row: int
    claim: int
    record: Record


class _Named(NamedTuple):
    """What stands under some ids.

    Attributes:
        places: where the ids are kept.
        originals: originals that have them, the earliest of each first.
        void: row and claim of entries that were left behind there.
        more: whether there may be more originals.
    """

    places: Places
    originals: list[_Original]
    void: list[tuple[int, int]]
    more: bool


class Forgetting:
    """Finds and forgets originals by their ids."""

    def __init__(
        self, store: RedisStore, records: RecordFormat, fingerprinter: Fingerprinter
    ) -> None:
        self._store = store
        self._format = records
        self._fingerprinter = fingerprinter

    def named(self, ids: Sequence[DocumentId]) -> list[list[Registered]]:
        """Return the originals that have each of these ids (see ``Index.named``)."""
        found: list[list[Registered]] = [[] for _ in ids]
        for start in range(0, len(ids), _IDS):
            for row, _, record in self._find(ids[start : start + _IDS]).originals:
                found[start + row].append(record.registered())
        return found

    def forget(
        self, ids: Sequence[DocumentId], digests: Sequence[bytes] | None = None
    ) -> list[int]:
        """Remove the originals that have these ids (see ``Index.forget``)."""
        counts: list[int] = []
        for start in range(0, len(ids), _IDS):
            part = slice(start, start + _IDS)
            counts += self._forget(ids[part], None if digests is None else digests[part])
        return counts

    def _forget(self, ids: Sequence[DocumentId], digests: Sequence[bytes] | None) -> list[int]:
        counts = np.zeros(len(ids), np.int64)
        found = self._find(ids)
        while True:
            chosen = {
                one.claim: one
                for one in reversed(found.originals)
                if digests is None or digests[one.row] == one.record.digest
            }
            retired = self._retire(list(chosen.values()))
            np.add.at(counts, [one.row for one in retired], 1)
            void = [*found.void, *((one.row, one.claim) for one in chosen.values())]
            self._withdraw(found.places, void, retired)
            if not (found.more and void):
                return [int(count) for count in counts]
            found = self._find(ids)

    def _find(self, ids: Sequence[DocumentId]) -> _Named:
        """Return what stands under some ids."""
        self._store.layout.check_ids()
        places = self._store.layout.place_ids(ids)
        round_ = Round(self._store)
        nobody = np.zeros(len(ids), np.uint64)
        modes = np.full(len(ids), Mode.LOOK, np.uint8)
        found = round_.probe(places, nobody, modes, self._store.bound.most)
        round_.run()
        read_on(self._store, found)
        rows, claims = found.pairs
        round_ = Round(self._store)
        values = round_.read(claims)
        round_.run()
        originals, void = [], []
        for row, claim, value in zip(rows.tolist(), claims.tolist(), values, strict=True):
            if value[:1] == b"V":
                void.append((row, claim))
            elif record := self._format.original(value, ids[row]):
                originals.append(_Original(row, claim, record))
        return _Named(places, sorted(originals, key=lambda one: one[:2]), void, len(found.full) > 0)

    def _retire(self, originals: Sequence[_Original]) -> list[_Original]:
        """Make originals void; return those that were originals until now."""
        if not originals:
            return []
        # Counted before, so that whoever finds one gone finds it counted.
        self._store.forgot(len(originals))
        round_ = Upkeep(self._store)
        fates = round_.retire(np.array([one.claim for one in originals], np.uint64))
        round_.run()
        return [originals[at] for at in np.flatnonzero(fates == Fate.ORIGINAL).tolist()]

    def _withdraw(
        self, places: Places, void: Sequence[tuple[int, int]], retired: Sequence[_Original]
    ) -> None:
        """Remove the entries of void claims under ids, and of those just retired in the tables."""
        round_ = Round(self._store)
        rows: Numbers = np.array([row for row, _ in void], np.int64)
        round_.withdraw(
            places.rows(rows),
            np.array([claim for _, claim in void], np.uint64),
        )
        sketches = self._format.evidence([one.record for one in retired]).sketches
        digests = [one.record.digest for one in retired]
        keys = self._fingerprinter.keys_of(sketches, digests)
        if keys is not None:
            claims = np.array([one.claim for one in retired], np.uint64)
            tables = self._store.layout.place(keys).flat()
            round_.withdraw(tables, np.repeat(claims, keys.shape[1]))
        round_.run()
