"""Documents of one batch that are copies of each other, or share a table key and are near."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stream_dedup.index.base import IndexBatch, Matcher
from stream_dedup.runs import begins_of_runs
from stream_dedup.verify.evidence import Scores

Rows = npt.NDArray[np.int64]

_TABLE_FACTOR = 0x9E3779B97F4A7C15


class NearPairs(NamedTuple):
    """Pairs of near documents of a batch, sorted.

    Attributes:
        earlier: the earlier row of each pair.
        later: the later row.
        scores: of their evidence.
    """

    earlier: Rows
    later: Rows
    scores: Scores


def entry_keys(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Make equal keys of different tables differ: (documents, tables) in and out.

    Reversible within a table, so two documents share an entry key of a table only when they share
    its key.
    """
    tables = np.arange(1, keys.shape[1] + 1, dtype=np.uint64) * np.uint64(_TABLE_FACTOR)
    return keys ^ tables


def unique_pairs(left: Rows, right: Rows) -> tuple[Rows, Rows]:
    """Sort pairs by (left, right) and drop repeats. Both must be below 2^31."""
    packed = np.sort((left << 32) | right)
    packed = packed[begins_of_runs(packed)]
    return packed >> 32, packed & 0xFFFFFFFF


def _sorted_entries(keys: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.uint64], Rows]:
    """Sort the entry keys of all tables; return them, and the row of each."""
    flat = entry_keys(keys).reshape(-1)
    order = np.argsort(flat)  # not stable, but twice as fast
    return flat[order], order // keys.shape[1]


def sharing_pairs(keys: npt.NDArray[np.uint64]) -> tuple[Rows, Rows]:
    """Return the pairs (earlier, later) of rows that share a key in some column, sorted.

    Takes rows * rows bytes, so it is meant for a few hundred rows at a time.
    """
    rows = len(keys)
    flat, documents = _sorted_entries(keys)
    shares = np.zeros((rows, rows), np.bool_)
    for distance in range(1, rows):
        same = np.flatnonzero(flat[distance:] == flat[:-distance])
        if not len(same):
            break
        left, right = documents[same], documents[same + distance]
        shares[np.minimum(left, right), np.maximum(left, right)] = True
    np.fill_diagonal(shares, val=False)
    earlier, later = np.nonzero(shares)
    return earlier, later


def exact_leaders(batch: IndexBatch, rows: Rows, *, windowed: bool) -> Rows:
    """Return, for each row, the first of the rows with the same text (and time, if windowed)."""
    firsts: dict[tuple[bytes, float], int] = {}
    digests = batch.prints.digests
    times = batch.times.tolist() if windowed else [0.0] * len(batch)
    leaders = [firsts.setdefault((digests[row], times[row]), row) for row in rows.tolist()]
    return np.array(leaders, np.int64)


def near_pairs(batch: IndexBatch, rows: Rows, matcher: Matcher) -> NearPairs:
    """Return the pairs of near documents among ``rows``."""
    earlier, later = sharing_pairs(batch.prints.keys.take(rows, axis=0))
    earlier, later = rows[earlier], rows[later]
    inside = matcher.within_window(batch.times[earlier], batch.times[later])
    earlier, later = earlier[inside], later[inside]
    evidence = batch.prints.evidence
    scores, near = matcher.compare_rows(evidence, earlier, evidence, later)
    return NearPairs(earlier[near], later[near], scores[near])


def shares_earlier(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """Say which rows share a key, in some column, with an earlier row."""
    earlier = np.zeros(len(keys), np.bool_)
    flat, rows = _sorted_entries(keys)
    begins = begins_of_runs(flat)
    if not begins.all():
        firsts = np.minimum.reduceat(rows, np.flatnonzero(begins))
        earlier[rows[rows > firsts[np.cumsum(begins) - 1]]] = True
    return earlier
