"""The originals that documents share a table key with, and which of them a document belongs to.

What ``look_up`` answers with, on every index: no document is compared with another of its batch,
and nothing is registered. For a document alone it is what ``claim`` would say of it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stream_dedup.index.base import Attachment, IndexBatch, LookUp, Matcher
from stream_dedup.types import DocumentId
from stream_dedup.verify.evidence import Evidence

Rows = npt.NDArray[np.int64]


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
