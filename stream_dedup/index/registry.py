"""What the embedded index holds: how originals come, and how they go."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from stream_dedup.fingerprint.hashing import id_seeds
from stream_dedup.index.base import IndexBatch, Registered, id_hashes
from stream_dedup.index.expiry import NEVER, Horizon, Swept
from stream_dedup.index.originals import Originals
from stream_dedup.index.pairs import Rows, entry_keys
from stream_dedup.index.state import StateFile
from stream_dedup.index.state_changes import renewal_keys, renewing
from stream_dedup.index.table import PrefixTable
from stream_dedup.settings import Settings
from stream_dedup.types import Choice, DocumentId

#: Rows from which on it is worth looking whether some can go.
_MIN_ROWS = 1 << 12
#: One in this many must be of no more use before the others are moved together.
_WORTH = 4


class Renewal(NamedTuple):
    """Originals that were renewed, and to what times."""

    numbers: Rows
    times: npt.NDArray[np.float64]


class Registry:
    """Originals under their table keys, in memory and maybe in a state file.

    Attributes:
        originals: what is kept of each.
        late: documents so far that came later than ``lateness``.
    """

    def __init__(
        self,
        sketch_bytes: int,
        settings: Settings,
        state: StateFile | None,
        *,
        resumes: bool,
    ) -> None:
        """Start empty, or with what ``state`` holds."""
        self._windowed = settings.window is not None
        self._renews = settings.renew
        self._horizon = Horizon.of(settings)
        self._sketch_bytes = sketch_bytes
        self._id_seed = id_seeds(settings.seed.get_secret_value()).place
        self._keeps_ranks = settings.choice is Choice.PREFERRED
        self._state = state
        self._resumes = resumes
        self._begun = False
        #: Whether memory and file may differ, because a change of the file failed.
        self._differs = False
        #: The largest event time of this process's own documents: what was registered in earlier
        #: runs says nothing of when the documents of this one are over.
        self._reached = NEVER
        self._look_again_at = _MIN_ROWS
        self.late = 0
        self._load()

    def __len__(self) -> int:
        """Return the number of originals."""
        self._reread()
        return int(np.count_nonzero(self.originals.alive))

    @property
    def watermark(self) -> float:
        """The largest event time seen, by earlier runs as well."""
        return self._reached if self._state is None else max(self._reached, self._state.watermark)

    def named(self, ids: Sequence[DocumentId]) -> list[list[Registered]]:
        """Return the originals with these ids (see ``Index.named``)."""
        self._reread()
        rows, numbers = self._find_named(ids)
        found: list[list[Registered]] = [[] for _ in ids]
        for row, number in zip(rows.tolist(), numbers.tolist(), strict=True):
            found[row].append(self.originals.registered(number))
        return found

    def forget(
        self, ids: Sequence[DocumentId], digests: Sequence[bytes] | None = None
    ) -> list[int]:
        """Remove the originals with these ids (see ``Index.forget``)."""
        with self._changing():
            if not self._begun and ids:
                self._begin(f"forget:{xxhash.xxh3_64_hexdigest(self._id_keys(ids).tobytes())}")
            rows, numbers = self._find_named(ids)
            if digests is not None and len(rows):
                wanted = np.frombuffer(b"".join(digests), "<u8").reshape(-1, 2)
                same = (wanted[rows] == self.originals.digests[numbers]).all(axis=1)
                rows, numbers = rows[same], numbers[same]
            numbers, first = np.unique(numbers, return_index=True)  # an id may be named twice
            rows = rows[first]
            self.originals.forget(numbers)
            for table in self._all_tables():
                table.hide(numbers)
            if self._state is not None and len(rows):
                gone = np.unique(rows).tolist()
                texts = None if digests is None else [digests[row] for row in gone]
                self._state.forget([ids[row] for row in gone], texts)
        counts: list[int] = np.bincount(rows, minlength=len(ids)).tolist()
        return counts

    def sweep(self) -> Swept:
        """Remove what has expired or was forgotten (see ``Index.sweep``)."""
        with self._changing():
            if not self._begun:
                self._begin(None)
            before = len(self.originals), len(self), self._entries()
            expires_before = self._horizon.expires_before(self.watermark)
            expired = self._expired(expires_before) & self.originals.alive
            self._drop(self._expired(expires_before) | ~self.originals.alive, expires_before)
        return Swept(
            expired=int(np.count_nonzero(expired)),
            claims=0,
            entries=before[2] - self._entries(),
            originals=len(self),
        )

    def abandon(self) -> None:
        """Leave the state file as it is, for a run that begins like this one to take up."""
        self._begun = False

    def close(self) -> None:
        """End what was begun, and close the state file."""
        if self._state is None:
            return
        try:
            if self._begun:
                self._begun = False
                watermark = self.watermark
                self._state.finish(watermark, self._horizon.expires_before(watermark))
        finally:
            self._state.close()

    def _load(self) -> None:
        self._tables = PrefixTable()
        self._exact = PrefixTable()
        #: By document id; made when it is first asked for.
        self._named: PrefixTable | None = None
        self.originals = Originals(
            self._sketch_bytes, keeps_ranks=self._keeps_ranks, renews=self._renews
        )
        if self._state is None:
            return
        for batch in self._state.load():
            self._register(batch)
        if self._renews:
            keys = renewal_keys(self.originals.identities, self.originals.digests)
            renewed = self._state.changes().renewed.of(keys, self.originals.times)
            self.originals.renew(np.arange(len(keys)), renewed)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Change memory and file; when that fails, nothing of it has been done.

        What is in memory by then is void: the file is read again when it is next needed.
        """
        self._reread()
        reached, late = self._reached, self.late
        try:
            yield
        except BaseException:
            self._reached, self.late = reached, late
            self._differs = self._state is not None
            raise

    def _reread(self) -> None:
        """Read the file again if a change of it failed."""
        if self._differs:
            self._load()
            self._differs = False

    def _begin(self, first: str | None) -> None:
        """Begin to write, at the first thing that is done; ``first`` names it."""
        if self._state is not None and self._state.begin(first if self._resumes else None):
            self._load()
        self._begun = True

    def _register(self, batch: IndexBatch) -> None:
        numbers = self.originals.append(batch)
        keys = entry_keys(batch.prints.keys)
        self._tables.add(keys.reshape(-1), np.repeat(numbers, keys.shape[1]))
        self._exact.add(batch.digest_words()[:, 0], numbers)
        if self._named is not None:
            self._named.add(self._id_keys(batch.ids), numbers)

    def _pass(self, batch: IndexBatch) -> None:
        """Let the watermark go on with a batch that is about to be claimed."""
        if not self._windowed:
            return
        self.late += self._horizon.late(batch.times, self.watermark)
        self._reached = max(self._reached, self._horizon.watermark(batch.times, time.time()))

    def _keep(self, registered: list[IndexBatch], renewals: list[Renewal]) -> None:
        """Keep what came of a batch: originals, already registered in memory, and renewals."""
        row = self._renew(renewals) if renewals else b""
        if self._state is not None and (registered or row):
            self._state.append(registered, self._reached, row)
        self._tidy()

    def _renew(self, renewals: list[Renewal]) -> bytes:
        """Renew originals; return what the state file keeps of it."""
        numbers, times = (np.concatenate(column) for column in zip(*renewals, strict=True))
        later = times > self.originals.renewed[numbers]
        numbers, times = numbers[later], times[later]
        self.originals.renew(numbers, times)
        if not len(numbers):
            return b""
        numbers = np.unique(numbers)
        identities, digests = self.originals.identities[numbers], self.originals.digests[numbers]
        return renewing(renewal_keys(identities, digests), self.originals.renewed[numbers])

    def _tidy(self) -> None:
        """Drop what is of no more use when there is enough of it to be worth the while.

        Every row is moved only after a fixed share as many were registered, so the cost of an
        original is bounded; and so are the rows, by a fixed multiple of what is of use.
        """
        rows = len(self.originals)
        if rows < self._look_again_at:
            return
        expires_before = self._horizon.expires_before(self._reached)
        gone = self._expired(expires_before) | ~self.originals.alive
        if np.count_nonzero(gone) * _WORTH >= rows:
            self._drop(gone, expires_before)
            rows = len(self.originals)
        self._look_again_at = max(_MIN_ROWS, rows + rows // _WORTH)

    def _expired(self, expires_before: float) -> npt.NDArray[np.bool_]:
        return self.originals.renewed < expires_before

    def _drop(self, gone: npt.NDArray[np.bool_], expires_before: float) -> None:
        if gone.any():
            for table in self._all_tables():
                table.keep(~gone)
            self.originals.keep(~gone)
        if self._state is not None:
            self._state.purge(self._reached, expires_before)

    def _find_named(self, ids: Sequence[DocumentId]) -> tuple[Rows, Rows]:
        """Return the pairs (row, number) of ids and originals that have them, in order."""
        if self._named is None:
            self._named = PrefixTable()
            self._named.add(self._id_keys(self.originals.ids), np.arange(len(self.originals)))
            self._named.hide(np.flatnonzero(~self.originals.alive))
        rows, numbers = self._named.find(self._id_keys(ids))
        names = self.originals.ids
        same = np.array(
            [
                ids[row] == names[number]
                for row, number in zip(rows.tolist(), numbers.tolist(), strict=True)
            ],
            np.bool_,
        )
        rows, numbers = rows[same], numbers[same]
        order = np.lexsort((numbers, rows))
        return rows[order], numbers[order]

    def _id_keys(self, ids: Sequence[DocumentId]) -> npt.NDArray[np.uint64]:
        return id_hashes(ids, self._id_seed)

    def _all_tables(self) -> list[PrefixTable]:
        tables = [self._tables, self._exact]
        return tables if self._named is None else [*tables, self._named]

    def _entries(self) -> int:
        return len(self._tables) + len(self._exact)
