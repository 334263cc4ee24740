"""The originals that documents share a table key with, and which of them a document belongs to.

What ``look_up`` answers with, on every index: no document is compared with another of its batch,
and nothing is registered. For a document alone it is what ``claim`` would say of it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stream_dedup.index.base import Attachment, IndexBatch, LookUp, Matcher
from stream_dedup.runs import begins_of_runs
from stream_dedup.types import DocumentId
from stream_dedup.verify.evidence import Evidence

Rows = npt.NDArray[np.int64]


#: Table entries that are looked at together; bounds what is held of them.
_ENTRIES = 1 << 20
#: Documents looked up together, and candidates that are described then at most.
_LOOKED_UP = 512
_DESCRIBED = 1 << 18


class Bound(NamedTuple):
    """How many candidates a document has: the same on every index, whatever else is in a batch.

    Of each key these are the oldest, ``share`` at most. A key that has more is *full*: many
    originals share it, so it says little of any of them. They are below the threshold to one
    another, so what is near one of them shares keys with it that they do not. Where most of a
    document's keys are full, as of a text that comes again in every window, nothing else is left
    to go by: then up to ``most`` of each key are read, and of these the ``most`` different ones
    that come first in their keys are its candidates.

    Attributes:
        most: the setting ``max_candidates``.
        tables: keys of a document.
    """

    most: int
    tables: int

    @property
    def share(self) -> int:
        """Candidates that are read of a key of which not all others are full as well."""
        return max(1, self.most // self.tables)

    @property
    def look_up_step(self) -> int:
        """How many documents to look up together: what is known of each candidate is kept."""
        return max(1, min(_LOOKED_UP, _DESCRIBED // self.most))

    @property
    def deep_step(self) -> int:
        """How many documents to look up together most of whose keys are full."""
        return max(1, _ENTRIES // (self.most * self.tables))

    def deep(self, documents: Rows) -> Rows:
        """Return the documents most of whose keys are full, given that of each full key."""
        found, counts = np.unique(documents, return_counts=True)
        return found[2 * counts > self.tables]

    def kept(self, documents: Rows, keys: Rows, members: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Say which entries are of the candidates of their document, and not cut.

        Args:
            documents: (entries,) whose each is.
            keys: (entries,) a number of its key; those of a key are oldest first.
            members: (entries,) what stands there.
        """
        # Of every key at least the oldest is kept, so that a key that has some still shows it.
        most = max(self.most, self.tables)
        kept = np.ones(len(documents), np.bool_)
        if len(documents) <= most:
            return kept
        some = np.flatnonzero(np.isin(documents, _above(documents, most)))
        if not len(some):
            return kept
        order = np.argsort(keys[some], kind="stable")
        ranks = np.empty(len(some), np.int64)
        ranks[order] = _places(begins_of_runs(keys[some][order]))
        order = np.lexsort((ranks, members[some], documents[some]))
        begins = begins_of_runs(documents[some][order], members[some][order])
        pairs = order[begins]
        ranked = np.lexsort((members[some][pairs], ranks[pairs], documents[some][pairs]))
        chosen = np.empty(len(pairs), np.bool_)
        chosen[ranked] = _places(begins_of_runs(documents[some][pairs][ranked])) < most
        kept[some[order]] = chosen[np.cumsum(begins) - 1]
        return kept


def first_of_each(keys: Rows, count: int) -> npt.NDArray[np.bool_]:
    """Say which rows are among the first so many of those with the same key."""
    order = np.argsort(keys, kind="stable")
    first = np.empty(len(keys), np.bool_)
    first[order] = _places(begins_of_runs(keys[order])) < count
    return first


def _above(documents: Rows, most: int) -> Rows:
    """Return the documents that come more than so many times."""
    found, counts = np.unique(documents, return_counts=True)
    return found[counts > most]


def _places(begins: npt.NDArray[np.bool_]) -> Rows:
    """Return the place of each row in its run, from 0."""
    rows = np.arange(len(begins))
    return rows - np.maximum.accumulate(np.where(begins, rows, 0))


class Candidates(NamedTuple):
    """Pairs of a document and an original that share a table key.

    They are sorted by document, and those of a document in order of registration.

    Attributes:
        rows: (pairs,) int64, row of the document in its batch.
        tables: (pairs,) int64, number of tables in which the two share a key.
        ids: document id of each pair's original.
        identities: (pairs,) uint64, see ``IndexBatch``; this and all below of the originals.
        times: (pairs,) float64 event times, seconds since the epoch.
        digests: (pairs, 2) uint64 digests of the normalised texts.
        evidence: what verification compares.
        ranks: (pairs,) float64, see ``IndexBatch``.
        renewed: (pairs,) float64, the times to which they were renewed, at least their event times.
    """

    rows: Rows
    tables: Rows
    ids: list[DocumentId]
    identities: npt.NDArray[np.uint64]
    times: npt.NDArray[np.float64]
    digests: npt.NDArray[np.uint64]
    evidence: Evidence
    ranks: npt.NDArray[np.float64]
    renewed: npt.NDArray[np.float64]

    def some(self, pairs: Rows) -> Candidates:
        """Return some of the pairs, in the order of ``pairs``."""
        return Candidates(
            self.rows[pairs],
            self.tables[pairs],
            [self.ids[pair] for pair in pairs.tolist()],
            self.identities[pairs],
            self.times[pairs],
            self.digests[pairs],
            self.evidence.rows(pairs),
            self.ranks[pairs],
            self.renewed[pairs],
        )

    def within_window(self, batch: IndexBatch, matcher: Matcher) -> Candidates:
        """Return the pairs whose event times are at most the window apart."""
        inside = matcher.within_window(batch.times[self.rows], self.times, self.renewed)
        return self if inside.all() else self.some(np.flatnonzero(inside))


def look_up(
    index: LookUp, batch: IndexBatch, matcher: Matcher, step: int
) -> list[Attachment | None]:
    """Say what each document belongs to (see ``LookUp.look_up``), so many at a time."""
    found: list[Attachment | None] = []
    for start in range(0, len(batch), step):
        part = batch.rows(range(start, start + step))
        found += attach(part, index.candidates(part), matcher)
    return found


def attach(batch: IndexBatch, candidates: Candidates, matcher: Matcher) -> list[Attachment | None]:
    """Return what each document would be attached to; None for an original.

    Args:
        batch: the documents.
        candidates: theirs, within the window.
        matcher: says what is near, and what is preferred.
    """
    mine = batch.prints.evidence.rows(candidates.rows)
    scores, near = matcher.compare(mine, candidates.evidence)
    preferences = matcher.preferences(scores, candidates.times, candidates.ranks)
    pairs = np.flatnonzero(near)
    order = pairs[np.lexsort((pairs, preferences[pairs], candidates.rows[pairs]))]
    _, first = np.unique(candidates.rows[order], return_index=True)
    return _attachments(batch, candidates.some(order[first]), matcher)


def _attachments(
    batch: IndexBatch, chosen: Candidates, matcher: Matcher
) -> list[Attachment | None]:
    """Describe the original of each row; a document come again is its own original."""
    equal = (batch.digest_words()[chosen.rows] == chosen.digests).all(axis=1)
    again = equal & (batch.identities[chosen.rows] == chosen.identities)
    mine = batch.prints.evidence.rows(chosen.rows)
    scores = matcher.scores(mine, chosen.evidence)
    attachments: list[Attachment | None] = [None] * len(batch)
    for at in np.flatnonzero(~again).tolist():
        attachments[chosen.rows[at]] = Attachment(
            chosen.ids[at], chosen.digests[at].tobytes(), scores[at], bool(equal[at])
        )
    return attachments
