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
from stream_dedup.index.connection import connect, reporting_errors
from stream_dedup.index.found import Found
from stream_dedup.index.keys import Places
from stream_dedup.index.records import RecordFormat
from stream_dedup.index.rounds import Round, read_on
from stream_dedup.index.store import RedisStore
from stream_dedup.runs import begins_of_runs
from stream_dedup.settings import Settings
from stream_dedup.types import DocumentId

_NOBODY = np.zeros(0, np.int64)


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
        return look_up(self, batch, self._matcher, self._store.bound.look_up_step)

    def candidates(self, batch: IndexBatch) -> Candidates:
        """Return the originals that share a table key (see ``LookUp.candidates``)."""
        pairs = self._sighted(batch)
        claims, of = np.unique(pairs.claims, return_inverse=True)
        round_ = Round(self._store, read_only=True)
        values = round_.read(claims)
        round_.run()
        # What is pending is no original yet, and nobody's duplicate is attached to it.
        is_original = np.array([value[:1] == b"O" for value in values], np.bool_)
        kept = np.flatnonzero(is_original[of])
        values = [value for value in values if value[:1] == b"O"]
        ids = [self._records.decode(value[1:]).document_id for value in values]
        others = (np.cumsum(is_original) - 1)[of[kept]]
        columns = self._records.columns(values).some(others)
        found = Candidates(
            pairs.rows[kept],
            pairs.tables[kept],
            [ids[other] for other in others.tolist()],
            *columns,
        )
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
        """Return the claims under the keys of each document (see ``Bound``), by row and age."""
        bound = self._store.bound
        rows = np.flatnonzero(~batch.prints.empty)
        found = self._find(self._places(batch, rows), bound.share)
        deep = bound.deep(found.full // bound.tables)
        parts = [self._counted(rows, found, without=deep)]
        for start in range(0, len(deep), bound.deep_step):
            some = rows[deep[start : start + bound.deep_step]]
            found = self._find(self._places(batch, some), bound.most)
            parts.append(self._counted(some, found))
        sighted = _Sighted(*(np.concatenate(column) for column in zip(*parts, strict=True)))
        return sighted.some(np.lexsort((sighted.claims, sighted.rows)))

    def _counted(self, rows: Rows, found: Found, without: Rows = _NOBODY) -> _Sighted:
        """Return who was found for documents, but for some of these, and in how many tables."""
        positions, claims = found.pairs
        documents = positions // self._store.bound.tables
        kept = self._store.bound.kept(documents, positions, claims) & ~np.isin(documents, without)
        documents, claims = documents[kept], claims[kept]
        order = np.lexsort((claims, documents))
        documents, claims = documents[order], claims[order]
        first = np.flatnonzero(begins_of_runs(documents, claims))
        tables = np.diff(np.append(first, len(documents)))
        return _Sighted(rows[documents[first]], claims[first], tables)

    def _places(self, batch: IndexBatch, rows: Rows) -> Places:
        return self._store.layout.place(batch.prints.keys[rows]).flat()

    def _standing(self, places: Places) -> tuple[Rows, npt.NDArray[np.uint64]]:
        """Return row and claim of each claim that stands at a place, oldest first within a row."""
        return self._find(places, self._store.bound.most).pairs

    def _find(self, places: Places, limit: int) -> Found:
        """Find what stands at places, so much of each at most."""
        count = len(places.scores)
        found = Found(places, np.zeros(count, np.uint64), limit)
        if count:
            round_ = Round(self._store, read_only=True)
            round_.look(found, np.arange(count))
            round_.run()
            read_on(self._store, found, read_only=True)
        return found


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

    def some(self, pairs: Rows) -> _Sighted:
        """Return some of them, in the order of ``pairs``."""
        return _Sighted(self.rows[pairs], self.claims[pairs], self.tables[pairs])
