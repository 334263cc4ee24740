"""Agreement of two labellers beyond chance: Cohen's kappa."""

from __future__ import annotations

from math import sqrt
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from stream_dedup.evaluate.sets import Rows


class Agreement(NamedTuple):
    """How far two labellers agree.

    Attributes:
        pairs: pairs that both labelled.
        same: share of these that have the same label; None without a pair.
        kappa: Cohen's kappa, 1 for full agreement and 0 for what chance alone gives; None where it
            says nothing: without a pair, or where one of them gave the same label always (it is
            then 0, or not defined, whatever the other said).
        interval: its confidence interval; None where kappa is.
    """

    pairs: int
    same: float | None
    kappa: float | None
    interval: tuple[float, float] | None


def agreement(table: Rows, confidence: float = 0.95) -> Agreement:
    """Measure the agreement of two labellers.

    Kappa is (o - e) / (1 - e) with the share o of equal labels and the share e expected of
    labellers who give the same labels as often, but to any pairs (Cohen 1960, "A coefficient of
    agreement for nominal scales"). Its interval is by the large-sample variance of Fleiss, Cohen
    and Everitt 1969 ("Large sample standard errors of kappa and weighted kappa", equation 13), and
    says little about fewer than some 20 pairs.

    Args:
        table: (labels, labels) int64, how often the first labeller gave the label of the row and
            the second that of the column to one pair.
        confidence: coverage of the interval.
    """
    count = int(table.sum())
    if not count:
        return Agreement(0, None, None, None)
    shares = table / count
    first, second = shares.sum(axis=1), shares.sum(axis=0)
    same, chance = float(np.trace(shares)), float(first @ second)
    if max(first.max(), second.max()) >= 1.0:
        return Agreement(count, same, None, None)
    kappa = (same - chance) / (1 - chance)
    # The weight of each cell in the variance: p(j.) + p(.i) outside of the diagonal.
    sums = first[None, :] + second[:, None]
    diagonal = np.diagonal(shares) @ (1 - np.diagonal(sums) * (1 - kappa)) ** 2
    others = shares * sums**2
    rest = (1 - kappa) ** 2 * (others.sum() - np.trace(others))
    spread = diagonal + rest - (kappa - chance * (1 - kappa)) ** 2
    error = sqrt(max(0.0, float(spread)) / count) / (1 - chance)
    margin = NormalDist().inv_cdf((1 + confidence) / 2) * error
    return Agreement(count, same, kappa, (max(-1.0, kappa - margin), min(1.0, kappa + margin)))
