"""Precision and recall from labelled pairs, with intervals, at every threshold of the strata.

What is estimated is said of documents. Each near duplicate makes one *taken* pair, with its
original; each original whose nearest earlier original is near enough to be asked about makes one
pair that was *left*. In stratum h with N(h) pairs a share p(h) are duplicates, so at a threshold t

    precision = sum N(h) p(h) / sum N(h)   over the taken strata from t on
    recall    = sum N(h) p(h) over these / sum N(h) p(h) over all strata

(Cochran 1977, "Sampling techniques", 3rd ed., chapter 5). Below the threshold in force the pairs
left there become taken ones; a pair that is near enough and was left all the same has been lost by
the tables, and is counted as lost at every threshold.

Intervals put together the score interval of each stratum's share (Wilson 1927), shrunk by what of
the stratum is labelled, by the method of variance estimates recovery: the distances from each
estimate to its ends are added up as standard errors are, lower and upper ones apart (Zou and Donner
2008, "Construction of confidence limits about effect measures"; for products and ratios, of which
recall is one, Newcombe 2016, "MOVER-R confidence intervals for ratios and products of two
independently estimated quantities"). Unlike the variance alone, this does not shrink to nothing in
strata whose labels are all the same, which most are. A stratum without a label may be anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, sqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stream_dedup.evaluate.measures import wilson
from stream_dedup.evaluate.sets import Values

Flags = npt.NDArray[np.bool_]

#: What is added to both kinds of labels when a share is guessed from few.
_PRIOR = 0.5
#: Labels that each stratum gets before any goes by what it would tell.
_FIRST_LABELS = 2


class Count(NamedTuple):
    """What is known of one stratum.

    Attributes:
        taken: whether its pairs are near duplicates and their originals.
        low: its least score.
        pairs: how many were found.
        labelled: how many of these have a label, duplicate or not.
        duplicates: how many of these are duplicates.
        known: how many labelled ones are among those found; labels outlive the window.
    """

    taken: bool
    low: float
    pairs: int
    labelled: int
    duplicates: int
    known: int


class Asked(NamedTuple):
    """How the pairs that were left have been found.

    Attributes:
        originals: originals in the window.
        asked: how many of them, at random, were held to all before them.
    """

    originals: int
    asked: int


class Share(NamedTuple):
    """An estimated share.

    Attributes:
        value: the estimate; None where there is nothing to take a share of.
        low: lower end of its interval.
        high: upper end.
    """

    value: float | None
    low: float
    high: float


class AtThreshold(NamedTuple):
    """What a threshold gives.

    Attributes:
        threshold: the score.
        duplicates: near duplicates that there would be, about.
        precision: share of them that are duplicates.
        recall: share of the duplicates from the floor on that are among them.
    """

    threshold: float
    duplicates: int
    precision: Share
    recall: Share


class _Numbers(NamedTuple):
    """Estimated numbers of strata and the distances to the ends of their intervals, (strata,)."""

    value: Values
    below: Values
    above: Values

    def total(self, chosen: Flags) -> tuple[float, float, float]:
        """Return the sum over some strata, the estimate and the ends of its interval."""
        value = float(self.value[chosen].sum())
        below, above = (sqrt(float((side[chosen] ** 2).sum())) for side in (self.below, self.above))
        return value, max(0.0, value - below), value + above


def sizes(counts: Sequence[Count], asked: Asked) -> Values:
    """Return how many pairs each stratum stands for, (strata,) float64.

    Those found for a sample of the originals stand for as many more as there are originals.
    """
    weight = asked.originals / asked.asked if asked.asked else 0.0
    return np.array([one.pairs * (1.0 if one.taken else weight) for one in counts])


def estimate(
    counts: Sequence[Count],
    asked: Asked,
    near_from: float,
    thresholds: Sequence[float],
    confidence: float = 0.95,
) -> list[AtThreshold]:
    """Return what each threshold gives.

    Args:
        counts: the strata.
        asked: how the pairs that were left have been found.
        near_from: the threshold in force.
        thresholds: least scores of strata.
        confidence: coverage of the intervals.
    """
    found = sizes(counts, asked)
    shares = _shares(counts, found, confidence)
    duplicates = _duplicates(counts, asked, shares, confidence)
    rows = []
    for threshold in thresholds:
        chosen = _chosen(counts, near_from, threshold)
        pairs = float(found[chosen].sum())
        # Precision takes the sizes as they are: among pairs left to be taken they are in both parts
        # of the fraction, and cancel but for the differences between strata.
        right = _Numbers(*(found * side for side in shares)).total(chosen)
        part, rest = duplicates.total(chosen), duplicates.total(~chosen)
        rows.append(
            AtThreshold(threshold, round(pairs), _precision(right, pairs), _recall(part, rest))
        )
    return rows


def _shares(counts: Sequence[Count], found: Values, confidence: float) -> _Numbers:
    """Return the share of duplicates in each stratum; a half, of anything, without a label."""
    values, lows, highs = [], [], []
    for one, size in zip(counts, found.tolist(), strict=True):
        low, high = wilson(one.duplicates, one.labelled, confidence) or (0.0, 1.0)
        value = one.duplicates / one.labelled if one.labelled else 0.5
        unknown = sqrt(max(0.0, 1 - one.known / size)) if size else 0.0
        values.append(value)
        lows.append((value - low) * unknown)
        highs.append((high - value) * unknown)
    return _Numbers(np.array(values), np.array(lows), np.array(highs))


def _duplicates(
    counts: Sequence[Count], asked: Asked, shares: _Numbers, confidence: float
) -> _Numbers:
    """Return the number of duplicates in each stratum, where sizes may be estimated themselves."""
    found = sizes(counts, asked)
    unknown = sqrt(max(0.0, 1 - asked.asked / asked.originals)) if asked.originals else 0.0
    spreads = []
    for one, size in zip(counts, found.tolist(), strict=True):
        known = one.taken or not one.pairs
        ends = None if known else wilson(one.pairs, asked.asked, confidence)
        low, high = ends or (size / max(1, asked.originals),) * 2
        spreads.append(
            (unknown * (size - low * asked.originals), unknown * (high * asked.originals - size))
        )
    below, above = np.array(spreads, np.float64).reshape(-1, 2).T
    return _Numbers(
        found * shares.value,
        np.hypot(found * shares.below, shares.value * below),
        np.hypot(found * shares.above, shares.value * above),
    )


def _chosen(counts: Sequence[Count], near_from: float, threshold: float) -> Flags:
    """Return the strata whose pairs are duplicates at a threshold."""
    return np.array(
        [one.low >= threshold and (one.taken or one.low < near_from) for one in counts], np.bool_
    )


def _precision(right: tuple[float, float, float], pairs: float) -> Share:
    if not pairs:
        return Share(None, 0.0, 1.0)
    value, low, high = (min(1.0, end / pairs) for end in right)
    return Share(value, low, high)


def _recall(part: tuple[float, float, float], rest: tuple[float, float, float]) -> Share:
    """Return part / (part + rest), from the interval of rest / part (Newcombe 2016)."""
    found, least, most = part
    if found <= 0:
        return Share(0.0 if rest[0] > 0 else None, 0.0, 1.0)
    missed, fewest, worst = rest
    # Where the interval of the denominator reaches 0 the ratio has no bound.
    scale = least * (2 * found - least)
    square = (missed * found) ** 2 - worst * (2 * missed - worst) * scale
    high = (missed * found + sqrt(max(0.0, square))) / scale if scale > 0 else inf
    scale = most * (2 * found - most)
    square = (missed * found) ** 2 - fewest * (2 * missed - fewest) * scale
    low = (missed * found - sqrt(max(0.0, square))) / scale if scale > 0 else 0.0
    return Share(1 / (1 + missed / found), 1 / (1 + high), 1 / (1 + max(0.0, low)))


def by_gain(counts: Sequence[Count], asked: Asked, near_from: float) -> list[int]:
    """Return the strata in the order in which one more label of theirs tells most.

    First come those that have fewer than two labels, from the threshold outwards. Then they come by
    how much the next label narrows precision and recall together: the variance of p(h) times the
    square of what a change of p(h) changes in each (the optimum allocation of Neyman 1934, one
    label at a time).
    """
    size = sizes(counts, asked)
    labelled = np.array([one.labelled for one in counts], np.float64)
    right = np.array([one.duplicates for one in counts], np.float64)
    share = (right + _PRIOR) / (labelled + 2 * _PRIOR)
    taken = np.array([one.taken for one in counts], np.bool_)
    found, lost = (size * share)[taken].sum(), (size * share)[~taken].sum()
    all_duplicates = max(found + lost, 1.0)
    of_precision = np.where(taken, size / max(size[taken].sum(), 1.0), 0.0)
    of_recall = size * np.where(taken, lost, found) / all_duplicates**2
    variance = share * (1 - share) / ((labelled + 1) * (labelled + 2))
    gain = (of_precision**2 + of_recall**2) * variance
    begun = labelled >= _FIRST_LABELS
    distance = np.array([abs(one.low - near_from) for one in counts])
    order: list[int] = np.lexsort((-gain, np.where(begun, 0.0, distance), begun)).tolist()
    return order
