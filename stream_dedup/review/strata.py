"""Strata: pairs of a document and its original, by how near they are and whether they were taken.

A *taken* pair is a near duplicate and its original, as the pipeline decided. A pair that was *left*
is an original and the nearest of the originals before it, which was not near enough. A pair's
*score* is what the pipeline decides by, so that greater is nearer: the similarity, or the Hamming
distance with a minus sign where that decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stream_dedup.evaluate.sets import Rows, Values
from stream_dedup.settings import Settings

#: Where strata begin, in shares of the threshold below it, and of what is left up to 1 above it.
#: They are narrow around the threshold, where a small step changes most.
_BELOW = (0.625, 0.75, 0.875, 0.9375)
_ABOVE = (0.0, 0.125, 0.25, 0.5, 0.75)
#: Bits beyond the Hamming distance that is near, up to which pairs are looked for.
_MORE_BITS = 4
_MOST_BITS = {64: 8, 128: 16}


class Stratum(NamedTuple):
    """Pairs of one kind and of similar score.

    Attributes:
        name: its kind and bounds, ``taken 0.8-0.825`` or ``left distance 4``.
        taken: whether its pairs are near duplicates and their originals.
        low: least score.
        high: score below which all of its are; the last has its end inside.
    """

    name: str
    taken: bool
    low: float
    high: float


class Scale:
    """The scores of a stream and where they are cut into strata.

    Attributes:
        by_hamming: whether scores are Hamming distances.
        near_from: the score from which pairs are near.
        edges: where strata begin, ascending; the first is the floor.
        strata: those of taken pairs and then of those left, each from the floor upwards.
    """

    def __init__(self, settings: Settings) -> None:
        """Cut the scores that the settings decide by."""
        self.by_hamming = settings.by_hamming
        self.edges: tuple[float, ...]
        if self.by_hamming:
            most = _MOST_BITS[settings.simhash_bits]
            farthest = max(settings.hamming, min(settings.hamming + _MORE_BITS, most))
            self.edges = tuple(float(-distance) for distance in range(farthest, -1, -1))
            self.near_from = float(-settings.hamming)
        else:
            self.near_from = settings.near_from
            below = [self.near_from * share for share in _BELOW]
            above = [self.near_from + (1 - self.near_from) * share for share in _ABOVE]
            self.edges = tuple(sorted({round(edge, 3) for edge in (*below, *above)}))
        highs = (*self.edges[1:], 1.0)
        self.strata = [
            Stratum(self._name(low, high, taken=taken), taken, low, high)
            for taken in (True, False)
            for low, high in zip(self.edges, highs, strict=True)
        ]

    @property
    def floor(self) -> float:
        """The least score of pairs that are looked for."""
        return self.edges[0]

    def score(self, similarity: float | None, distance: int | None) -> float | None:
        """Return the score of a pair; None where what decides is not known."""
        if self.by_hamming:
            return None if distance is None else float(-distance)
        return similarity

    def place(self, scores: Values | Sequence[float], *, taken: bool) -> Rows:
        """Return the stratum of each score, a place in ``strata``; all below the floor with it."""
        found = np.searchsorted(self.edges, scores, side="right") - 1
        places: Rows = np.clip(found, 0, None).astype(np.int64)
        return places if taken else places + len(self.edges)

    def told(self, score: float) -> str:
        """Return a score as people read it."""
        return f"{abs(score):g}" if self.by_hamming else f"{score:.3g}"

    def _name(self, low: float, high: float, *, taken: bool) -> str:
        kind = "taken" if taken else "left"
        return f"{kind} distance {abs(low):g}" if self.by_hamming else f"{kind} {low:g}-{high:g}"
