"""What is right: gold groups, labelled pairs, or an exact reference; and decisions held to it."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from stream_dedup.evaluate.measures import (
    BOTH,
    GOLD,
    GROUP_MEASURES,
    PAIR_MEASURES,
    PREDICTED,
    RIGHT,
    Intervals,
    components,
    group_blocks,
    measure,
    number,
    percentiles,
    share,
)
from stream_dedup.evaluate.sets import Rows, Values

#: A report by section (pairs, documents, groups, counts) and name.
Report = dict[str, dict[str, Any]]
Flags = npt.NDArray[np.bool_]

#: What a pair adds to the columns of ``group_blocks`` up to GOLD, by 2 * labelled + predicted.
_PAIR_KINDS = np.array([[0, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 1, 1, 1]], np.float64)


class Mistakes(NamedTuple):
    """Pairs of document positions.

    Attributes:
        joined: duplicates and their originals that are no duplicates.
        missed: originals that are duplicates, and what they should have been attached to.
    """

    joined: list[tuple[int, int]]
    missed: list[tuple[int, int]]


class Truth(Protocol):
    """Something that decisions can be held to."""

    name: str

    def score(self, originals: Rows, how: Intervals) -> Report:
        """Measure decisions.

        Args:
            originals: (documents,) position of each document's original, its own for an original.
            how: how intervals are made.
        """

    def mistakes(self, originals: Rows, limit: int) -> Mistakes:
        """Return up to ``limit`` pairs of each kind of mistake, in the order of arrival."""

    def connected(self) -> Rows:
        """Return a number for each document, equal for documents that the truth speaks of at once.

        Tuning and its check take documents apart by these.
        """

    def restrict(self, documents: Rows) -> Truth:
        """Return the truth about some documents: all or none of those with the same number."""


class GroupTruth:
    """A gold group for each document."""

    name = "groups"

    def __init__(self, groups: Rows) -> None:
        """Take the gold groups, (documents,) int64 group numbers."""
        self._groups = groups

    def score(self, originals: Rows, how: Intervals) -> Report:
        """Measure decisions by their groups (see ``Truth.score``)."""
        gold = np.unique(self._groups, return_inverse=True)[1]
        report = score_groups(originals, gold, how)
        called = originals != np.arange(len(originals))
        firsts = np.unique(gold, return_index=True)[1]
        copies = ~np.isin(np.arange(len(gold)), firsts)
        report["documents"] |= share("recall", called[copies], how)
        report["documents"] |= share("precision", (gold == gold[originals])[called], how)
        return report

    def mistakes(self, originals: Rows, limit: int) -> Mistakes:
        """Return documents in a wrong group, and originals that are not the first of their own."""
        places = np.arange(len(originals))
        _, first, of = np.unique(self._groups, return_index=True, return_inverse=True)
        joined = np.flatnonzero(self._groups != self._groups[originals])
        missed = np.flatnonzero((originals == places) & (first[of] != places))
        return Mistakes(
            pairs_of(joined, originals[joined], limit), pairs_of(missed, first[of][missed], limit)
        )

    def connected(self) -> Rows:
        """Return the groups (see ``Truth.connected``)."""
        return self._groups

    def restrict(self, documents: Rows) -> GroupTruth:
        """Return the truth about some documents (see ``Truth.restrict``)."""
        return GroupTruth(self._groups[documents])


def pairs_of(left: Rows, right: Rows, limit: int) -> list[tuple[int, int]]:
    """Return the first pairs of two columns."""
    return list(zip(left[:limit].tolist(), right[:limit].tolist(), strict=True))


def score_groups(originals: Rows, gold: Rows, how: Intervals) -> Report:
    """Measure predicted groups against gold groups: pairs, whole sets, ARI and B-cubed."""
    count = len(originals)
    blocks = components(2 * count, originals, count + gold)[originals]
    sums = group_blocks(originals, gold, np.unique(blocks, return_inverse=True)[1])
    totals = sums.sum(axis=0)
    right, total = round(totals[RIGHT]), len(originals)
    return {
        "pairs": measure(sums, PAIR_MEASURES, how),
        "documents": share("accuracy", np.arange(total) < right, how),
        "groups": measure(sums, GROUP_MEASURES, how),
        "counts": {
            "documents": total,
            "originals": int((originals == np.arange(total)).sum()),
            "gold_groups": len(np.unique(gold)),
            "gold_pairs": round(totals[GOLD]),
            "predicted_pairs": round(totals[PREDICTED]),
            "common_pairs": round(totals[BOTH]),
        },
    }


class LabelledPair(NamedTuple):
    """A pair of documents with a label.

    Attributes:
        left: position of one document.
        right: position of the other.
        duplicate: the label.
        stratum: name of the stratum that it was drawn from; empty where it was not drawn.
        stratum_pairs: pairs that the stratum has in all; 0 where it was not drawn.
    """

    left: int
    right: int
    duplicate: bool
    stratum: str = ""
    stratum_pairs: int = 0


class PairTruth:
    """Labelled pairs, all that there are or a stratified sample of them."""

    name = "pairs"

    def __init__(self, pairs: list[LabelledPair], documents: int) -> None:
        """Take labelled pairs of ``documents`` documents."""
        self._pairs = pairs
        self._documents = documents
        self._left = np.array([pair.left for pair in pairs], np.int64)
        self._right = np.array([pair.right for pair in pairs], np.int64)
        self._labels = np.array([pair.duplicate for pair in pairs], np.bool_)

    def score(self, originals: Rows, how: Intervals) -> Report:
        """Measure decisions by the labelled pairs (see ``Truth.score``).

        A pair of stratum h stands for N_h / n_h pairs, N_h in the stratum and n_h of them labelled
        (Horvitz and Thompson 1952), so precision and recall are those of all pairs that the sample
        was drawn from, whatever share of each stratum was drawn.
        """
        predicted = originals[self._left] == originals[self._right]
        sums, resampled = self._weighted(predicted, how)
        pairs: dict[str, Any] = {}
        for name, function in PAIR_MEASURES.items():
            pairs[name] = number(function(sums))
            pairs[f"{name}_interval"] = percentiles(function(resampled), how)
        wrong = predicted != self._labels
        labelled = np.unique(np.concatenate([self._left, self._right]))
        mistaken = np.concatenate([self._left[wrong], self._right[wrong]])
        documents = share("accuracy", ~np.isin(labelled, mistaken), how)
        count = np.arange(len(originals))
        return {
            "pairs": pairs,
            "documents": documents,
            "groups": dict.fromkeys(GROUP_MEASURES),
            "counts": {
                "documents": len(originals),
                "originals": int((originals == count).sum()),
                "labelled_pairs": len(self._pairs),
                "labelled_duplicates": int(self._labels.sum()),
                "predicted_pairs": int(predicted.sum()),
                "common_pairs": int((predicted & self._labels).sum()),
            },
        }

    def _weighted(self, predicted: Flags, how: Intervals) -> tuple[Values, Values]:
        """Return the weighted sums in the columns of ``group_blocks``, and those of resamples."""
        names = [(pair.stratum, pair.stratum_pairs) for pair in self._pairs]
        generator = np.random.default_rng(how.seed)
        total, resampled = np.zeros(4), np.zeros((how.resamples, 4))
        for stratum in sorted(set(names)):
            inside = np.array([name == stratum for name in names])
            drawn = np.bincount(2 * self._labels[inside] + predicted[inside], minlength=4)
            count = int(inside.sum())
            weight = stratum[1] / count if stratum[1] else 1.0
            total += weight * (drawn @ _PAIR_KINDS)
            again = generator.multinomial(count, drawn / count, size=how.resamples)
            resampled += weight * (again @ _PAIR_KINDS)
        return total, resampled

    def mistakes(self, originals: Rows, limit: int) -> Mistakes:
        """Return the wrongly decided labelled pairs."""
        predicted = originals[self._left] == originals[self._right]
        wrong = [
            np.flatnonzero(predicted & ~self._labels),
            np.flatnonzero(~predicted & self._labels),
        ]
        return Mistakes(*(pairs_of(self._right[at], self._left[at], limit) for at in wrong))

    def connected(self) -> Rows:
        """Return the components that the labelled pairs make (see ``Truth.connected``)."""
        return components(self._documents, self._left, self._right)

    def restrict(self, documents: Rows) -> PairTruth:
        """Return the truth about some documents (see ``Truth.restrict``)."""
        place = np.full(self._documents, -1, np.int64)
        place[documents] = np.arange(len(documents))
        kept = [
            pair._replace(left=int(place[pair.left]), right=int(place[pair.right]))
            for pair in self._pairs
            if place[pair.left] >= 0 and place[pair.right] >= 0
        ]
        return PairTruth(kept, len(documents))
