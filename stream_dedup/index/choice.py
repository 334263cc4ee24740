"""Which original of its own batch a document would be attached to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stream_dedup.index.base import IndexBatch, Matcher
from stream_dedup.index.pairs import NearPairs
from stream_dedup.verify.evidence import Scores


class Preferred(NamedTuple):
    """The original of the batch that a document prefers; the smaller of two is preferred.

    Attributes:
        preference: see ``Matcher.preferences``.
        row: the original.
    """

    preference: float
    row: int


def originals_within(is_free: npt.NDArray[np.bool_], pairs: NearPairs) -> npt.NDArray[np.bool_]:
    """Say which rows become originals, of those that are near no original of before."""
    is_original = is_free.copy()
    # Pairs come in the order of the earlier row, so whether that is an original is settled by then.
    for earlier, later in zip(pairs.earlier.tolist(), pairs.later.tolist(), strict=True):
        if is_original[earlier]:
            is_original[later] = False
    return is_original


def preferred_within(
    batch: IndexBatch,
    leaders: Mapping[int, int],
    is_original: npt.NDArray[np.bool_],
    pairs: NearPairs,
    matcher: Matcher,
) -> dict[int, Preferred]:
    """Return, for each row that is near an earlier original of the batch, the one it prefers.

    Args:
        batch: the documents.
        leaders: for each row the first row with the same text (see ``exact_leaders``).
        is_original: (documents,) bool, which leaders are originals.
        pairs: the pairs of leaders that are near.
        matcher: says what is preferred.
    """
    candidates: dict[int, list[Preferred]] = {}

    def add(rows: npt.NDArray[np.int64], others: npt.NDArray[np.int64], scores: Scores) -> None:
        kept = np.flatnonzero(is_original[others])
        rows, others = rows[kept], others[kept]
        preferences = matcher.preferences(scores[kept], batch.times[others], batch.ranks[others])
        for row, *preferred in zip(
            rows.tolist(), preferences.tolist(), others.tolist(), strict=True
        ):
            candidates.setdefault(row, []).append(Preferred(*preferred))

    # A copy of a text may come after originals that its leader came before, hence both directions.
    add(pairs.earlier, pairs.later, pairs.scores)
    add(pairs.later, pairs.earlier, pairs.scores)
    themselves = np.flatnonzero(is_original)
    add(themselves, themselves, np.full(len(themselves), matcher.best))
    for found in candidates.values():
        found.sort()
    preferred = {}
    for row, leader in leaders.items():
        earlier = (one for one in candidates.get(leader, ()) if one.row < row)
        best = next(earlier, None)
        if best is not None:
            preferred[row] = best
    return preferred
