"""A truth without labels: what exact all-pairs resemblance says.

Pairs of exact resemblance at least the threshold are the *reference pairs*. The gold groups are
those of the *exact rule*: every document goes to the earliest original that resembles it enough,
by exact resemblance and without tables; it is what the pipeline would decide if it missed nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from stream_dedup.evaluate.join import Pairs
from stream_dedup.evaluate.measures import (
    Intervals,
    Measure,
    add_up,
    components,
    harmonic,
    measure,
    ratio,
    share,
)
from stream_dedup.evaluate.sets import (
    Rows,
    ShingleSets,
    Values,
    ranges,
    resemblances,
    select,
)
from stream_dedup.evaluate.truth import Flags, Mistakes, Report, pairs_of, score_groups

_NONE = np.int64(np.iinfo(np.int64).max)

# Columns of the sums over blocks.
_REFERENCE, _FOUND, _DISTINCT, _DISTINCT_FOUND, _ORIGINALS, _ATTACHED, _RIGHT = range(7)
_ATTACHED_DISTINCT, _RIGHT_DISTINCT = 7, 8


def _share_of(part: int, whole: int) -> Measure:
    return lambda sums: ratio(sums[..., part], sums[..., whole])


_MEASURES: dict[str, Measure] = {
    "precision": _share_of(_RIGHT, _ATTACHED),
    "recall": _share_of(_FOUND, _REFERENCE),
    "f1": lambda sums: harmonic(
        ratio(sums[..., _RIGHT], sums[..., _ATTACHED]),
        ratio(sums[..., _FOUND], sums[..., _REFERENCE]),
    ),
    "precision_distinct": _share_of(_RIGHT_DISTINCT, _ATTACHED_DISTINCT),
    "recall_distinct": _share_of(_DISTINCT_FOUND, _DISTINCT),
}


class PairCounts(NamedTuple):
    """Reference pairs of documents, by the documents' shingle sets.

    Attributes:
        block: (entries,) a document of the block that the pairs are in.
        pairs: (entries,) how many there are.
        found: (entries,) how many of them are in one duplicate group.
        originals: (entries,) how many are two originals, and so should not be.
        distinct: (entries,) whether their shingle sets differ.
    """

    block: Rows
    pairs: Rows
    found: Rows
    originals: Rows
    distinct: Flags


class ReferenceTruth:
    """Exact resemblance as the truth."""

    name = "reference"

    def __init__(self, pairs: Pairs, sets: ShingleSets, accept: float) -> None:
        """Take all pairs at the reference threshold.

        Args:
            pairs: all pairs of at least the threshold.
            sets: shingle sets of the documents, to look at the pairs that were found.
            accept: a found pair of at least this exact resemblance is right.
        """
        self._pairs = pairs
        self._sets = sets
        self._accept = accept

    def score(self, originals: Rows, how: Intervals) -> Report:
        """Measure decisions by exact resemblance (see ``Truth.score``)."""
        pairs, count = self._pairs, len(originals)
        called = originals != np.arange(count)
        right, _ = self._attachments(originals)
        counts = count_pairs(pairs, originals)
        rule = exact_rule(pairs)
        report = score_groups(originals, rule, how)
        blocks = components(2 * count, originals, count + self.connected())[originals]
        blocks = np.unique(blocks, return_inverse=True)[1]
        sums = self._sums(originals, counts, blocks)
        report["pairs"] = measure(sums, _MEASURES, how)
        report["documents"] |= share("recall", called[with_near_original(pairs, originals)], how)
        report["documents"] |= share("precision", right[called], how)
        report["counts"] |= _named(sums)
        ideal = count_pairs(pairs, rule).found.sum()
        report["counts"]["reference_pairs_exact_rule"] = int(ideal)
        return report

    def mistakes(self, originals: Rows, limit: int) -> Mistakes:
        """Return duplicates too far from their originals, and pairs of near originals."""
        pairs, places = self._pairs, np.arange(len(originals))
        joined = np.flatnonzero(~self._attachments(originals)[0] & (originals != places))
        alone = originals == places
        missed = np.flatnonzero(alone[pairs.earlier] & alone[pairs.later])
        return Mistakes(
            pairs_of(joined, originals[joined], limit),
            pairs_of(pairs.later[missed], pairs.earlier[missed], limit),
        )

    def connected(self) -> Rows:
        """Return the components of the reference pairs (see ``Truth.connected``)."""
        pairs = self._pairs
        leaders = np.where(pairs.leaders < 0, np.arange(len(pairs.leaders)), pairs.leaders)
        return components(len(leaders), pairs.earlier, pairs.later)[leaders]

    def restrict(self, documents: Rows) -> ReferenceTruth:
        """Return the truth about some documents (see ``Truth.restrict``)."""
        pairs = self._pairs
        place = np.full(len(pairs.leaders), -1, np.int64)
        place[documents] = np.arange(len(documents))
        inside = (place[pairs.earlier] >= 0) & (place[pairs.later] >= 0)
        leaders = pairs.leaders[documents]
        kept = Pairs(
            np.where(leaders < 0, -1, place[leaders]),
            place[pairs.earlier[inside]],
            place[pairs.later[inside]],
            pairs.resemblance[inside],
            pairs.threshold,
        )
        return ReferenceTruth(kept, select(self._sets, documents), self._accept)

    def _sums(self, originals: Rows, counts: PairCounts, blocks: Rows) -> Values:
        """Return what the measures of pairs need, by block."""
        size = int(blocks.max(initial=-1)) + 1
        called = originals != np.arange(len(originals))
        right, distinct = self._attachments(originals)
        of_pairs = [
            counts.pairs,
            counts.found,
            counts.pairs * counts.distinct,
            counts.found * counts.distinct,
            counts.originals,
        ]
        of_documents = [called, called & right, called & distinct, called & right & distinct]
        return np.hstack(
            [
                add_up(blocks[counts.block], of_pairs, size),
                add_up(blocks, of_documents, size),
            ]
        )

    def _attachments(self, originals: Rows) -> tuple[Flags, Flags]:
        """Say for each document whether it resembles its original enough; whether sets differ."""
        exact = resemblances(self._sets, np.arange(len(originals)), originals)
        return exact >= self._accept, exact < 1


def _named(sums: Values) -> dict[str, Any]:
    """Return the counts of a report. What is missed is either two originals or a chain."""
    total = [round(value) for value in sums.sum(axis=0).tolist()]
    missed = total[_REFERENCE] - total[_FOUND]
    return {
        "reference_pairs": total[_REFERENCE],
        "reference_pairs_found": total[_FOUND],
        "reference_pairs_distinct": total[_DISTINCT],
        "reference_pairs_distinct_found": total[_DISTINCT_FOUND],
        "missed": missed,
        "missed_originals": total[_ORIGINALS],
        "chains": missed - total[_ORIGINALS],
        "attached": total[_ATTACHED],
        "attached_right": total[_RIGHT],
        "attached_distinct": total[_ATTACHED_DISTINCT],
        "attached_distinct_right": total[_RIGHT_DISTINCT],
    }


def exact_rule(pairs: Pairs) -> Rows:
    """Return the position of each document's original when exact resemblance decides.

    Documents in order; each goes to the earliest original that it resembles enough, or becomes one.
    """
    count = len(pairs.leaders)
    attached = np.arange(count)
    bounds = np.searchsorted(pairs.earlier, np.arange(count + 1))
    for document in np.unique(pairs.earlier).tolist():
        # By now every earlier original has taken its own.
        if attached[document] == document:
            later = pairs.later[bounds[document] : bounds[document + 1]]
            attached[later[attached[later] == later]] = document
    known = pairs.leaders >= 0
    attached[known] = attached[pairs.leaders[known]]
    return attached


def with_near_original(pairs: Pairs, originals: Rows) -> Flags:
    """Say which documents have, before them, an original of this run that resembles them enough."""
    count = len(originals)
    places = np.arange(count)
    firsts = np.full(count, _NONE)
    is_original = (originals == places) & (pairs.leaders >= 0)
    np.minimum.at(firsts, pairs.leaders[is_original], places[is_original])
    earliest = firsts.copy()
    np.minimum.at(earliest, pairs.later, firsts[pairs.earlier])
    np.minimum.at(earliest, pairs.earlier, firsts[pairs.later])
    near: Flags = (pairs.leaders >= 0) & (earliest[pairs.leaders] < places)
    return near


def count_pairs(pairs: Pairs, originals: Rows) -> PairCounts:
    """Count the reference pairs of all documents, from those of their shingle sets.

    Documents with the same set are counted by the duplicate groups that they are in (usually one),
    so no pair of them is ever made.
    """
    count = len(originals)
    known = np.flatnonzero(pairs.leaders >= 0)
    leaders = pairs.leaders[known]
    packed, members = np.unique((leaders << 32) | originals[known], return_counts=True)
    sizes = np.bincount(leaders, minlength=count)
    alone = np.bincount(leaders, weights=originals[known] == known, minlength=count)
    alone = alone.astype(np.int64)
    starts = np.searchsorted(packed, np.arange(count + 1) << 32)
    parts = np.diff(starts)
    # Each pair of sets once for each group that the earlier set has documents in.
    pair = np.repeat(np.arange(len(pairs.earlier)), parts[pairs.earlier])
    at = ranges(starts[pairs.earlier], parts[pairs.earlier])
    wanted = (pairs.later[pair] << 32) | (packed[at] & 0xFFFFFFFF)
    place = np.minimum(np.searchsorted(packed, wanted), max(len(packed) - 1, 0))
    common = np.where(packed[place] == wanted, members[place], 0) * members[at]
    across = np.bincount(pair, weights=common, minlength=len(pairs.earlier)).astype(np.int64)
    own = np.flatnonzero(sizes > 1)
    within = np.bincount(packed >> 32, weights=members * (members - 1) // 2, minlength=count)
    return PairCounts(
        np.concatenate([pairs.earlier, own]),
        np.concatenate([sizes[pairs.earlier] * sizes[pairs.later], _choose_two(sizes[own])]),
        np.concatenate([across, within[own].astype(np.int64)]),
        np.concatenate([alone[pairs.earlier] * alone[pairs.later], _choose_two(alone[own])]),
        np.arange(len(pairs.earlier) + len(own)) < len(pairs.earlier),
    )


def _choose_two(counts: Rows) -> Rows:
    return counts * (counts - 1) // 2
