"""The embedded index: numpy columns in memory, optionally kept in a state file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stream_dedup.index.base import Attachment, IndexBatch, Matcher
from stream_dedup.index.candidates import Bound, Candidates, first_of_each, look_up
from stream_dedup.index.choice import originals_within, preferred_within
from stream_dedup.index.pairs import Rows, entry_keys, exact_leaders, near_pairs, unique_pairs
from stream_dedup.index.registry import Registry, Renewal
from stream_dedup.index.state import StateFile
from stream_dedup.settings import Settings
from stream_dedup.verify.evidence import Scores
from stream_dedup.verify.verifier import Verifier

#: Documents decided at a time; bounds the pairs that one viral post can make within a batch.
STEP = 256

#: Originals read at a time.
_READ = 1024

_NONE = np.int64(np.iinfo(np.int64).max)


class _Chosen(NamedTuple):
    """The registered original that each row of a batch prefers.

    Attributes:
        numbers: (documents,) its number, _NONE where no original is near.
        preferences: (documents,) see ``Matcher.preferences``.
    """

    numbers: Rows
    preferences: npt.NDArray[np.float64]


class _Claimed(NamedTuple):
    """What came of some documents.

    Attributes:
        attachments: for each document that of a duplicate, None for an original.
        registered: the originals.
        renewal: the originals that got a duplicate, and its event time.
    """

    attachments: list[Attachment | None]
    registered: IndexBatch
    renewal: Renewal


class MemoryIndex(Registry):
    """An index in the memory of one process: about 650 bytes an original with the defaults."""

    def __init__(
        self,
        verifier: Verifier,
        settings: Settings | None = None,
        state: StateFile | None = None,
        *,
        resumes: bool = False,
    ) -> None:
        """Start empty, or with what ``state`` holds; new originals are then written to it.

        Args:
            verifier: compares two documents.
            settings: what is near, what expires; the defaults if left out.
            state: kept between runs.
            resumes: whether what begins like a run that was killed is that run, made again; then
                it begins with the state that the first one found.
        """
        settings = settings or Settings()
        self._matcher = Matcher(verifier, settings.window, settings.choice)
        self._most = settings.max_candidates
        super().__init__(verifier.sketch_bytes, settings, state, resumes=resumes)

    def claim(self, batch: IndexBatch) -> list[Attachment | None]:
        """Decide a batch in order (see ``Index.claim``)."""
        if not len(batch):
            return []
        decided: list[Attachment | None] = []
        with self._changing():
            if not self._begun:
                self._begin(f"{batch.identities[0]:016x}{batch.prints.digests[0].hex()}")
            self._pass(batch)
            registered: list[IndexBatch] = []
            renewals: list[Renewal] = []
            for start in range(0, len(batch), STEP):
                claimed = self._claim_step(batch.rows(range(start, start + STEP)))
                decided += claimed.attachments
                if len(claimed.registered):
                    registered.append(claimed.registered)
                if self._renews:
                    renewals.append(claimed.renewal)
            self._keep(registered, renewals)
        return decided

    def look_up(self, batch: IndexBatch) -> list[Attachment | None]:
        """Say what each document belongs to (see ``LookUp.look_up``)."""
        bound = Bound(self._most, batch.prints.keys.shape[1])
        return look_up(self, batch, self._matcher, bound.look_up_step)

    def candidates(self, batch: IndexBatch) -> Candidates:
        """Return the originals that share a table key (see ``LookUp.candidates``)."""
        self._reread()
        parts = list(self._entries_sharing(batch, np.flatnonzero(~batch.prints.empty)))
        packed = np.concatenate([np.zeros(0, np.int64), *((rows << 32) | n for rows, n in parts)])
        pairs, tables = np.unique(packed, return_counts=True)
        shared = self.originals.candidates(pairs >> 32, tables, pairs & 0xFFFFFFFF)
        return shared.within_window(batch, self._matcher)

    def register(self, batch: IndexBatch) -> None:
        """Register documents that are known to be originals (see ``Index.register``)."""
        if not len(batch):
            return
        with self._changing():
            if not self._begun:
                self._begin(None)
            self._pass(batch)
            self._register(batch)
            self._keep([batch], [])

    def read_originals(self) -> Iterator[IndexBatch]:
        """Yield all originals, in order of registration, some at a time."""
        self._reread()
        rows = len(self.originals)
        keys = self._tables.keys.reshape(rows, -1) if rows else self._tables.keys
        for start in range(0, rows, _READ):
            end = min(start + _READ, rows)
            batch = self.originals.rows(start, end, entry_keys(keys[start:end]))
            alive = np.flatnonzero(self.originals.alive[start:end])
            if len(alive):
                yield batch.rows(alive)

    def _entries_sharing(self, batch: IndexBatch, rows: Rows) -> Iterator[tuple[Rows, Rows]]:
        """Yield (row, original) for each entry of a candidate (see ``Bound``), some rows a time."""
        tables = batch.prints.keys.shape[1]
        bound = Bound(self._most, tables)
        # One more shows which keys are full.
        positions, found = self._probe(batch, rows, bound.share + 1)
        counts = np.bincount(positions, minlength=len(rows) * tables)
        full = np.flatnonzero(counts > bound.share)
        if not len(full):
            yield rows[positions // tables], found
            return
        deep = bound.deep(full // tables)
        kept = first_of_each(positions, bound.share) & ~np.isin(positions // tables, deep)
        yield rows[positions[kept] // tables], found[kept]
        for start in range(0, len(deep), bound.deep_step):
            some = rows[deep[start : start + bound.deep_step]]
            positions, found = self._probe(batch, some, bound.most)
            documents = positions // tables
            kept = bound.kept(documents, positions, found)
            yield some[documents[kept]], found[kept]

    def _probe(self, batch: IndexBatch, rows: Rows, limit: int) -> tuple[Rows, Rows]:
        """Return (position, original) of the entries under the keys of some rows, side by side."""
        keys = entry_keys(batch.prints.keys.take(rows, axis=0))
        return self._tables.find(keys.reshape(-1), limit)

    def _find_near(self, batch: IndexBatch, rows: Rows) -> tuple[Rows, Rows, Scores]:
        """Return (row, original, score) of near originals within the window."""
        found: list[tuple[Rows, Rows, Scores]] = []
        for part in self._entries_sharing(batch, rows):
            sharing, others = self._within_window(batch, *unique_pairs(*part))
            scores, near = self._matcher.compare_rows(
                batch.prints.evidence, sharing, self.originals.evidence, others
            )
            found.append((sharing[near], others[near], scores[near]))
        near_rows, numbers, near_scores = zip(*found, strict=True)
        return np.concatenate(near_rows), np.concatenate(numbers), np.concatenate(near_scores)

    def _claim_step(self, batch: IndexBatch) -> _Claimed:
        """Decide up to STEP documents, and register the originals among them."""
        rows, found = self._find_exact(batch)
        # A text equal to an original's has no other near original, since originals are not near
        # each other. With a window it may have one, outside the window of the equal one.
        undecided = ~batch.prints.empty
        if not self._windowed:
            undecided[rows] = False
        sharing, others, scores = self._find_near(batch, np.flatnonzero(undecided))
        scores = np.concatenate([np.full(len(rows), self._matcher.best), scores])
        rows, found = np.append(rows, sharing), np.append(found, others)
        return self._settle(batch, self._choose(len(batch), rows, found, scores))

    def _choose(self, count: int, rows: Rows, found: Rows, scores: Scores) -> _Chosen:
        """Choose one of the near originals of each row."""
        numbers, preferences = np.full(count, _NONE), np.zeros(count)
        if self._matcher.first:
            np.minimum.at(numbers, rows, found)
            return _Chosen(numbers, preferences)
        times, ranks = self.originals.times[found], self.originals.ranks(found)
        found_preferences = self._matcher.preferences(scores, times, ranks)
        order = np.lexsort((found, found_preferences, rows))[::-1]
        # Of several values for one place the last one stays, which is the first in order.
        numbers[rows[order]] = found[order]
        preferences[rows[order]] = found_preferences[order]
        return _Chosen(numbers, preferences)

    def _settle(self, batch: IndexBatch, chosen: _Chosen) -> _Claimed:
        """Match the documents of the batch, register the originals, say who goes to whom."""
        is_free = (chosen.numbers == _NONE) & ~batch.prints.empty
        # Who belongs to the first of its near originals does not belong to one of this batch.
        rows = np.flatnonzero(is_free if self._matcher.first else ~batch.prints.empty)
        leaders = exact_leaders(batch, rows, windowed=self._windowed)
        pairs = near_pairs(batch, rows[leaders == rows], self._matcher)
        is_free[rows[leaders != rows]] = False
        is_original = originals_within(is_free, pairs)
        numbers = np.cumsum(is_original) - 1 + len(self.originals)
        attached = np.where(chosen.numbers == _NONE, -1, chosen.numbers)
        leader_of = dict(zip(rows.tolist(), leaders.tolist(), strict=True))
        within = preferred_within(batch, leader_of, is_original, pairs, self._matcher)
        for row, preferred in within.items():
            if attached[row] < 0 or preferred.preference < chosen.preferences[row]:
                attached[row] = numbers[preferred.row]
        registered = batch.rows(np.flatnonzero(is_original))
        self._register(registered)
        attached[is_original] = -1
        duplicates = np.flatnonzero(attached >= 0)
        renewal = Renewal(attached[duplicates], batch.times[duplicates])
        return _Claimed(self._attachments(batch, attached), registered, renewal)

    def _find_exact(self, batch: IndexBatch) -> tuple[Rows, Rows]:
        """Return the pairs (row, original) with equal texts within the window.

        With a window a text may have many originals, each outside the windows of the others.
        """
        digests = batch.digest_words()
        rows, found = self._exact.find(digests[:, 0], self._most)
        equal = digests[rows, 1] == self.originals.digests[found, 1]
        return self._within_window(batch, rows[equal], found[equal])

    def _within_window(self, batch: IndexBatch, rows: Rows, found: Rows) -> tuple[Rows, Rows]:
        if not self._windowed:
            return rows, found
        renewed = self.originals.renewed[found]
        times = self.originals.times[found]
        inside = self._matcher.within_window(batch.times[rows], times, renewed)
        return rows[inside], found[inside]

    def _attachments(self, batch: IndexBatch, attached: Rows) -> list[Attachment | None]:
        attachments: list[Attachment | None] = [None] * len(batch)
        rows = np.flatnonzero(attached >= 0)
        found = attached[rows]
        equal = (batch.digest_words()[rows] == self.originals.digests[found]).all(axis=1)
        again = equal & (batch.identities[rows] == self.originals.identities[found])
        rows, found, equal = rows[~again], found[~again], equal[~again]
        mine, theirs = batch.prints.evidence.rows(rows), self.originals.evidence.rows(found)
        scores = self._matcher.scores(mine, theirs)
        for row, attachment in zip(
            rows.tolist(), self.originals.attachments(found, scores, equal), strict=True
        ):
            attachments[row] = attachment
        return attachments
