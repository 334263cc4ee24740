"""Which original of its own batch a document would be attached to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stream_dedup.index.base import IndexBatch, Matcher
from stream_dedup.index.pairs import NearPairs, Rows
from stream_dedup.runs import begins_of_runs


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
    themselves = np.flatnonzero(is_original)
    # A copy of a text may come after originals that its leader came before, hence both directions.
    of = np.concatenate([pairs.earlier, pairs.later, themselves])
    others = np.concatenate([pairs.later, pairs.earlier, themselves])
    scores = np.concatenate([pairs.scores, pairs.scores, np.full(len(themselves), matcher.best)])
    kept = is_original[others]
    of, others = of[kept], others[kept]
    preferences = matcher.preferences(scores[kept], batch.times[others], batch.ranks[others])
    order = np.lexsort((others, preferences, of))
    of, others, preferences = of[order], others[order], preferences[order]
    rows, places = _candidates(leaders, of)
    earlier = others[places] < rows
    rows, places = rows[earlier], places[earlier]
    first = begins_of_runs(rows)
    best = places[first]
    found = zip(preferences[best].tolist(), others[best].tolist(), strict=True)
    return dict(zip(rows[first].tolist(), map(Preferred._make, found), strict=True))


def _candidates(leaders: Mapping[int, int], of: Rows) -> tuple[Rows, Rows]:
    """Return the pairs of a row and a place in ``of``, which is sorted, that has its leader."""
    rows, firsts = (
        np.fromiter(column, np.int64, len(leaders)) for column in (leaders, leaders.values())
    )
    starts = np.searchsorted(of, firsts)
    counts = np.searchsorted(of, firsts, side="right") - starts
    ends = np.cumsum(counts)
    within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)
    return np.repeat(rows, counts), np.repeat(starts, counts) + within
