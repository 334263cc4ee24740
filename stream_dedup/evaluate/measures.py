"""Measures of decisions against a truth, and their confidence intervals.

Everything is a function of sums over *blocks*, sets of documents that neither truth nor decisions
connect to any other. So no pair of a large group is ever made, and an interval is had by drawing
blocks, which are independent of each other as pairs and documents are not.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stream_dedup.evaluate.sets import Rows, Values

#: What ``group_blocks`` adds up in each block, column by column.
DOCUMENTS, BOTH, PREDICTED, GOLD, RIGHT, BCUBED_PRECISION, BCUBED_RECALL = range(7)

Measure = Callable[[Values], Values]


class Intervals(NamedTuple):
    """How confidence intervals are made.

    Attributes:
        confidence: their coverage.
        resamples: bootstrap resamples; 0 leaves the bootstrap intervals out.
        seed: of the bootstrap.
    """

    confidence: float = 0.95
    resamples: int = 1000
    seed: int = 0


def wilson(successes: int, trials: int, confidence: float) -> tuple[float, float] | None:
    """Return the score interval of a share (Wilson 1927); None without a trial."""
    if not trials:
        return None
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share = successes / trials
    middle = share + z * z / (2 * trials)
    spread = z * sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    # At 0 and 1 the ends are exact, which the arithmetic only nearly gives.
    low = (middle - spread) / scale if successes else 0.0
    high = (middle + spread) / scale if successes < trials else 1.0
    return low, high


def components(count: int, left: Rows, right: Rows) -> Rows:
    """Return, for each of ``count`` nodes, the least node that the edges connect it to."""
    labels = np.arange(count)
    while True:
        low = np.minimum(labels[left], labels[right])
        found = labels.copy()
        np.minimum.at(found, labels[left], low)
        np.minimum.at(found, labels[right], low)
        while (found[found] != found).any():
            found = found[found]
        if (found == labels).all():
            return labels
        labels = found


def group_blocks(predicted: Rows, gold: Rows, blocks: Rows) -> Values:
    """Return what the measures of groups need, (blocks, 7) float64, by contingency counts.

    Args:
        predicted: (documents,) number of the predicted group of each document.
        gold: (documents,) number of its gold group.
        blocks: (documents,) number of its block, from 0 on; a group is within one block.
    """
    _, of, together = np.unique((predicted << 32) | gold, return_inverse=True, return_counts=True)
    predicted_size = np.bincount(predicted)[predicted]
    gold_size = np.bincount(gold)[gold]
    shared = together[of]
    right = (shared == predicted_size) & (shared == gold_size)
    columns = [
        np.ones(len(predicted)),
        # Each document has its share of the pairs that it is in: n (n - 1) / 2 over n documents.
        (shared - 1) / 2,
        (predicted_size - 1) / 2,
        (gold_size - 1) / 2,
        right,
        shared / predicted_size,
        shared / gold_size,
    ]
    return add_up(blocks, columns)


def add_up(blocks: Rows, columns: list[Any], count: int | None = None) -> Values:
    """Return the sum of each column in each block, (blocks, columns) float64."""
    size = count if count is not None else int(blocks.max(initial=-1)) + 1
    summed = [np.bincount(blocks, weights=column, minlength=size) for column in columns]
    return np.stack(summed, axis=1) if summed else np.zeros((size, 0))


def ratio(part: Values, whole: Values) -> Values:
    """Return part / whole; NaN where there is nothing to take a part of."""
    shares: Values = np.divide(part, whole, out=np.full(np.shape(part), np.nan), where=whole > 0)
    return shares


def harmonic(precision: Values, recall: Values) -> Values:
    """Return F1, the harmonic mean; 0 where both are."""
    unknown = np.isnan(precision + recall)
    mean = np.nan_to_num(ratio(2 * precision * recall, np.asarray(precision + recall)))
    found: Values = np.where(unknown, np.nan, mean)
    return found


def pair_precision(sums: Values) -> Values:
    """Share of the pairs in one predicted group that are in one gold group."""
    return ratio(sums[..., BOTH], sums[..., PREDICTED])


def pair_recall(sums: Values) -> Values:
    """Share of the pairs in one gold group that are in one predicted group."""
    return ratio(sums[..., BOTH], sums[..., GOLD])


def pair_f1(sums: Values) -> Values:
    """Return 2 tp / (2 tp + fp + fn)."""
    return ratio(2 * sums[..., BOTH], sums[..., PREDICTED] + sums[..., GOLD])


def adjusted_rand(sums: Values) -> Values:
    """Return the adjusted Rand index (Hubert and Arabie 1985, equation 5).

    (S - E) / ((P + G) / 2 - E) for S pairs together in both, P in the predicted groups, G in the
    gold ones, and E = P G / (N (N - 1) / 2) by chance. 1 where both have no pairs, or all of them.
    """
    count = sums[..., DOCUMENTS]
    every = count * (count - 1) / 2
    predicted, gold = sums[..., PREDICTED], sums[..., GOLD]
    chance = np.divide(predicted * gold, every, out=np.zeros_like(every), where=every > 0)
    most = (predicted + gold) / 2
    spread = most - chance
    same = spread <= 1e-9 * np.maximum(most, 1.0)
    index = (sums[..., BOTH] - chance) / np.where(same, 1.0, spread)
    return np.where(same, 1.0, index)


def bcubed_precision(sums: Values) -> Values:
    """Mean over documents of |predicted & gold| / |predicted| (Bagga and Baldwin 1998)."""
    return ratio(sums[..., BCUBED_PRECISION], sums[..., DOCUMENTS])


def bcubed_recall(sums: Values) -> Values:
    """Mean over documents of |predicted & gold| / |gold| (ibid.)."""
    return ratio(sums[..., BCUBED_RECALL], sums[..., DOCUMENTS])


def bcubed_f1(sums: Values) -> Values:
    """Harmonic mean of the two (Amigó, Gonzalo, Artiles, Verdejo 2009, section 5)."""
    return harmonic(bcubed_precision(sums), bcubed_recall(sums))


PAIR_MEASURES: dict[str, Measure] = {
    "precision": pair_precision,
    "recall": pair_recall,
    "f1": pair_f1,
}
GROUP_MEASURES: dict[str, Measure] = {
    "ari": adjusted_rand,
    "bcubed_precision": bcubed_precision,
    "bcubed_recall": bcubed_recall,
    "bcubed_f1": bcubed_f1,
}


def measure(sums: Values, measures: dict[str, Measure], how: Intervals) -> dict[str, Any]:
    """Return each measure and its interval, by name and by ``<name>_interval``.

    Args:
        sums: (blocks, columns) what the measures need, by block.
        measures: each takes (..., columns) sums and returns (...).
        how: intervals by the percentile bootstrap over blocks (Efron 1979): as many blocks as
            there are are drawn with replacement, and their sums measured.
    """
    total = sums.sum(axis=0)
    drawn = resample(sums, how)
    found: dict[str, Any] = {}
    for name, function in measures.items():
        found[name] = number(function(total))
        found[f"{name}_interval"] = percentiles(function(drawn), how)
    return found


def resample(sums: Values, how: Intervals) -> Values:
    """Return the sums of each bootstrap resample of the blocks, (resamples, columns)."""
    if not len(sums) or not how.resamples:
        return np.zeros((0, sums.shape[1]))
    # Blocks with the same sums are drawn together: most are single documents, rightly decided.
    kinds, counts = np.unique(sums, axis=0, return_counts=True)
    draw = np.random.default_rng(how.seed).multinomial
    drawn = draw(len(sums), counts / len(sums), size=how.resamples)
    resampled: Values = drawn @ kinds
    return resampled


def percentiles(values: Values, how: Intervals) -> list[float] | None:
    """Return the percentile interval of resampled values; None where none is defined."""
    known = values[~np.isnan(values)]
    if not len(known):
        return None
    tail = (1 - how.confidence) / 2
    low, high = np.quantile(known, [tail, 1 - tail]).tolist()
    return [low, high]


def share(name: str, hits: npt.NDArray[np.bool_], how: Intervals) -> dict[str, Any]:
    """Return a share of documents with its Wilson interval, and its counts."""
    successes, trials = int(hits.sum()), len(hits)
    interval = wilson(successes, trials, how.confidence)
    return {
        name: successes / trials if trials else None,
        f"{name}_interval": None if interval is None else list(interval),
        f"{name}_counts": [successes, trials],
    }


def number(value: Values | float) -> float | None:
    """Return a value, or None for NaN."""
    plain = float(value)
    return None if np.isnan(plain) else plain
