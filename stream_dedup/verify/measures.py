"""Measures of two sets of shingles, from the sizes of the sets and of their intersection.

    resemblance   |A & B| / |A | B|             Jaccard 1901; Broder 1997, section 2
    containment   |A & B| / |the smaller|       Broder 1997, section 2
    cosine        |A & B| / sqrt(|A| |B|)       of the sets' indicator vectors: Ochiai 1957
    dice          2 |A & B| / (|A| + |B|)       Dice 1945
    overlap       |A & B| / min(|A|, |B|)       Simpson 1943

Near must mean the same whichever of two documents comes first, because no two originals may be near
each other. Broder's containment of A in B does not; the larger of both directions does. It is that
of the smaller set, and so the same number as the overlap. What ``containment`` adds is the answer
to which of the two documents is the contained one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stream_dedup.types import Measure
from stream_dedup.verify.evidence import Scores


class Sizes(NamedTuple):
    """Sizes of pairs of sets, exact or estimated, each (pairs,) float64.

    Attributes:
        common: of the intersection.
        left: of the first set.
        right: of the second.
        smaller: of the set that is the smaller in truth.
    """

    common: Scores
    left: Scores
    right: Scores
    smaller: Scores

    @classmethod
    def of(
        cls,
        common: Scores,
        left: Scores,
        right: Scores,
        counts: tuple[npt.NDArray[Any], npt.NDArray[Any]],
    ) -> Sizes:
        """Return sizes; the true ones, ``counts``, say which set is the smaller."""
        difference = counts[0] - counts[1]
        # Of two equally large sets neither comes first, so that a score does not depend on order.
        smaller = np.where(
            difference < 0, left, np.where(difference > 0, right, (left + right) / 2)
        )
        return cls(common, left, right, smaller)


def score(measure: Measure, sizes: Sizes) -> Scores:
    """Return a measure of each pair, from 0 to 1, which an estimate may leave."""
    return np.clip(ratio(measure, sizes), 0.0, 1.0)


def ratio(measure: Measure, sizes: Sizes) -> Scores:
    """Return the ratio that a measure is; 0 where the size that divides is 0."""
    common, left, right, smaller = sizes
    match measure:
        case Measure.RESEMBLANCE:
            whole = left + right - common
        case Measure.CONTAINMENT | Measure.OVERLAP:
            whole = smaller
        case Measure.COSINE:
            whole = np.sqrt(left * right)
        case Measure.DICE:
            whole = (left + right) / 2
        case _:
            msg = f"{measure} is no measure of sets"
            raise ValueError(msg)
    return np.divide(common, whole, out=np.zeros(len(common)), where=whole > 0)
