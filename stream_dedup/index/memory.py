"""The embedded index: numpy columns in memory, optionally kept in a state file."""

from __future__ import annotations

import numpy as np

from stream_dedup.fingerprint.fingerprinter import FingerprintMethod
from stream_dedup.index.base import Attachment, IndexBatch, Matcher
from stream_dedup.index.originals import Originals
from stream_dedup.index.pairs import Rows, entry_keys, exact_leaders, near_pairs, unique_pairs
from stream_dedup.index.state import StateFile
from stream_dedup.index.table import PrefixTable

#: Documents decided at a time; bounds the pairs that one viral post can make within a batch.
STEP = 256

_NONE = np.int64(np.iinfo(np.int64).max)


class MemoryIndex:
    """An index in the memory of one process: about 650 bytes an original with the defaults."""

    def __init__(
        self, method: FingerprintMethod, window: float | None = None, state: StateFile | None = None
    ) -> None:
        """Start empty, or with what ``state`` holds; new originals are then written to it."""
        self._matcher = Matcher(method, window)
        self._windowed = window is not None
        self._tables = PrefixTable()
        self._exact = PrefixTable()
        self.originals = Originals(method.sketch_bytes)
        self._state = state
        if state is not None:
            for columns in state.load():
                self._register(columns)

    def __len__(self) -> int:
        """Return the number of originals."""
        return len(self.originals)

    def claim(self, batch: IndexBatch) -> list[Attachment | None]:
        """Decide a batch in order (see ``Index.claim``)."""
        decided: list[Attachment | None] = []
        registered: list[IndexBatch] = []
        for start in range(0, len(batch), STEP):
            attachments, originals = self._claim_step(batch.rows(range(start, start + STEP)))
            decided += attachments
            registered.append(originals)
        if self._state is not None and any(registered):
            self._state.append(registered)
        return decided

    def close(self) -> None:
        """Close the state file."""
        if self._state is not None:
            self._state.close()

    def _find_sharing(self, batch: IndexBatch, rows: Rows) -> tuple[Rows, Rows]:
        """Return the pairs (row, original) that share a table key and lie within the window."""
        keys = entry_keys(batch.prints.keys[rows])
        positions, found = self._tables.find(keys.reshape(-1))
        return self._within_window(batch, *unique_pairs(rows[positions // keys.shape[1]], found))

    def tables_hit(self, batch: IndexBatch) -> dict[int, int]:
        """Return, for a batch of one, the originals that share a table key, and in how many."""
        _, found = self._tables.find(entry_keys(batch.prints.keys).reshape(-1))
        _, found = self._within_window(batch, np.zeros(len(found), np.int64), found)
        numbers, counts = np.unique(found, return_counts=True)
        return dict(zip(numbers.tolist(), counts.tolist(), strict=True))

    def _claim_step(self, batch: IndexBatch) -> tuple[list[Attachment | None], IndexBatch]:
        """Decide up to STEP documents; return what was decided and the originals registered."""
        earliest = np.full(len(batch), _NONE)
        rows, found = self._find_exact(batch)
        np.minimum.at(earliest, rows, found)
        # A text equal to an original's has no other near original, since originals are not near
        # each other. With a window it may have one, outside the window of the equal one.
        undecided = ~batch.prints.empty
        if not self._windowed:
            undecided &= earliest == _NONE
        rows, found = self._find_sharing(batch, np.flatnonzero(undecided))
        near = self._matcher.near(batch.prints.sketches[rows], self.originals.sketches[found])
        np.minimum.at(earliest, rows[near], found[near])
        return self._settle(batch, earliest)

    def _settle(
        self, batch: IndexBatch, earliest: Rows
    ) -> tuple[list[Attachment | None], IndexBatch]:
        """Match what is left within the batch, register the originals, say who goes to whom."""
        undecided = np.flatnonzero((earliest == _NONE) & ~batch.prints.empty)
        leaders = self._resolve_within(batch, undecided)
        originals = undecided[leaders == undecided]
        numbers = np.full(len(batch), -1, np.int64)
        numbers[originals] = np.arange(len(self), len(self) + len(originals))
        attached = np.where(earliest == _NONE, -1, earliest)
        copies = leaders != undecided
        attached[undecided[copies]] = numbers[leaders[copies]]
        registered = batch.rows(originals)
        self._register(registered)
        return self._attachments(batch, attached), registered

    def _resolve_within(self, batch: IndexBatch, rows: Rows) -> Rows:
        """Return, for each row, the earliest near original among the rows, or the row itself."""
        leaders = exact_leaders(batch, rows, windowed=self._windowed)
        attached = np.arange(len(batch))
        # Pairs come in the order of the earlier row, so a row meets its earliest original first,
        # and whether the earlier row is an original has been settled by then.
        pairs = near_pairs(batch, rows[leaders == rows], self._matcher)
        for earlier, later in zip(pairs[0].tolist(), pairs[1].tolist(), strict=True):
            if attached[earlier] == earlier and attached[later] == later:
                attached[later] = earlier
        return attached[leaders]

    def _find_exact(self, batch: IndexBatch) -> tuple[Rows, Rows]:
        """Return the pairs (row, original) with equal texts within the window."""
        digests = batch.digest_words()
        rows, found = self._exact.find(digests[:, 0])
        equal = digests[rows, 1] == self.originals.digests[found, 1]
        return self._within_window(batch, rows[equal], found[equal])

    def _within_window(self, batch: IndexBatch, rows: Rows, found: Rows) -> tuple[Rows, Rows]:
        if not self._windowed:
            return rows, found
        inside = self._matcher.within_window(batch.times[rows], self.originals.times[found])
        return rows[inside], found[inside]

    def _register(self, batch: IndexBatch) -> None:
        numbers = self.originals.append(batch)
        keys = entry_keys(batch.prints.keys)
        self._tables.add(keys.reshape(-1), np.repeat(numbers, keys.shape[1]))
        self._exact.add(batch.digest_words()[:, 0], numbers)

    def _attachments(self, batch: IndexBatch, attached: Rows) -> list[Attachment | None]:
        attachments: list[Attachment | None] = [None] * len(batch)
        rows = np.flatnonzero(attached >= 0)
        found = attached[rows]
        equal = (batch.digest_words()[rows] == self.originals.digests[found]).all(axis=1)
        again = equal & (batch.identities[rows] == self.originals.identities[found])
        rows, found, equal = rows[~again], found[~again], equal[~again]
        scores = self._matcher.scores(batch.prints.sketches[rows], self.originals.sketches[found])
        for row, number, score, exact in zip(
            rows.tolist(), found.tolist(), scores, equal.tolist(), strict=True
        ):
            attachments[row] = self.originals.attachment(number, score, exact=exact)
        return attachments
