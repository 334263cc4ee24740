"""Looking documents up in Redis: no claim, no write, no right to write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.index.audit_reading import Reader
from stream_dedup.index.base import Attachment, IndexBatch, Matcher, Registered
from stream_dedup.index.candidates import Candidates, Rows, look_up
from stream_dedup.index.claims import Fate
from stream_dedup.index.connection import connect, reporting_errors
from stream_dedup.index.found import Found
from stream_dedup.index.keys import Places
from stream_dedup.index.records import Record, RecordFormat
from stream_dedup.index.rounds import Round
from stream_dedup.index.store import RedisStore
from stream_dedup.settings import Settings
from stream_dedup.types import DocumentId

#: Documents looked up together; bounds what is held of the originals that they share keys with.
STEP = 512


class RedisLookUp:
    """Looks through an index in Redis or Valkey, and changes nothing there.

    It needs no more than the Functions that a worker has loaded, and may ask a replica, whose
    answers are then as old as what has reached it. Several threads may use one.
    """

    def __init__(self, store: RedisStore, matcher: Matcher, records: RecordFormat) -> None:
        self._store = store
        self._matcher = matcher
        self._records = records

    @classmethod
    def connect(cls, settings: Settings) -> Self:
        """Connect, and read how the index is laid out.

        Raises:
            ServiceError: Redis is out of reach or refuses, or there is no such index.
            ConfigurationMismatch: the index was built with other settings.
        """
        fingerprinter = Fingerprinter(settings)
        client = connect(settings)
        try:
            with reporting_errors():
                layout = Reader(client, settings, fingerprinter.index_version).layout
        except BaseException:
            client.close()
            raise
        matcher = Matcher(fingerprinter.verifier, settings.window, settings.choice)
        store = RedisStore(client, layout, settings)
        return cls(store, matcher, RecordFormat.of(fingerprinter))

    def look_up(self, batch: IndexBatch) -> list[Attachment | None]:
        """Say what each document belongs to (see ``LookUp.look_up``)."""
        return look_up(self, batch, self._matcher, STEP)

    def candidates(self, batch: IndexBatch) -> Candidates:
        """Return the originals that share a table key (see ``LookUp.candidates``)."""
        pairs = self._sighted(batch)
        claims, of = np.unique(pairs.claims, return_inverse=True)
        round_ = Round(self._store, read_only=True)
        values = round_.read(claims)
        round_.run()
        fates = np.array([value[0] if value else Fate.ABSENT for value in values], np.uint8)
        # What is pending is no original yet, and nobody's duplicate is attached to it.
        is_original = fates == Fate.ORIGINAL
        kept = np.flatnonzero(is_original[of])
        decoded = {
            claim: self._records.decode(values[claim][1:])
            for claim in np.flatnonzero(is_original).tolist()
        }
        records = [decoded[claim] for claim in of[kept].tolist()]
        found = self._candidates(pairs.rows[kept], pairs.tables[kept], records)
        return found.within_window(batch, self._matcher)

    def named(self, ids: Sequence[DocumentId]) -> list[list[Registered]]:
        """Return the originals that have each of these ids (see ``Index.named``)."""
        self._store.layout.check_ids()
        rows, claims = self._standing(self._store.layout.place_ids(ids))
        round_ = Round(self._store, read_only=True)
        values = round_.read(claims)
        round_.run()
        found: list[list[Registered]] = [[] for _ in ids]
        for row, value in zip(rows.tolist(), values, strict=True):
            if record := self._records.original(value, ids[row]):
                found[row].append(record.registered())
        return found

    def close(self) -> None:
        """Close the connections."""
        self._store.close()

    def _sighted(self, batch: IndexBatch) -> _Sighted:
        """Return the claims under the keys of each document, by row, then by age."""
        rows = np.flatnonzero(~batch.prints.empty)
        suffixes, scores, partitions = self._store.layout.place(batch.prints.keys[rows])
        tables = batch.prints.keys.shape[1]
        places = Places(suffixes.reshape(-1), scores.reshape(-1), partitions.reshape(-1))
        positions, claims = self._standing(places)
        pairs = np.stack([rows[positions // tables].astype(np.uint64), claims], axis=1)
        unique, counts = np.unique(pairs, axis=0, return_counts=True)
        return _Sighted(unique[:, 0].astype(np.int64), unique[:, 1], counts.astype(np.int64))

    def _standing(self, places: Places) -> tuple[Rows, npt.NDArray[np.uint64]]:
        """Return row and claim of each claim that stands at a place, oldest first within a row."""
        count = len(places.scores)
        found = Found(places, np.zeros(count, np.uint64))
        unfinished: Rows = np.arange(count)
        while len(unfinished):
            round_ = Round(self._store, read_only=True)
            round_.look(found, unfinished)
            round_.run()
            unfinished = found.take_unfinished(self._store.limit)
        return found.pairs

    def _candidates(self, rows: Rows, tables: Rows, records: Sequence[Record]) -> Candidates:
        digests = b"".join(record.digest for record in records)
        return Candidates(
            rows,
            tables,
            [record.document_id for record in records],
            np.array([record.identity for record in records], np.uint64),
            np.array([record.time for record in records], np.float64),
            np.frombuffer(digests, "<u8").reshape(-1, 2),
            self._records.evidence(records),
            np.array([record.rank for record in records], np.float64),
            np.array([record.renewed for record in records], np.float64),
        )


class _Sighted(NamedTuple):
    """Claims that documents came upon.

    Attributes:
        rows: (pairs,) row of the document.
        claims: (pairs,) uint64.
        tables: (pairs,) number of tables in which the claim stands beside the document.
    """

    rows: Rows
    claims: npt.NDArray[np.uint64]
    tables: Rows
