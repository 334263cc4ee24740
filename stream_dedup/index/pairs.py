"""Pairs of documents that share a table key, within one batch."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]

_TABLE_FACTOR = 0x9E3779B97F4A7C15


def entry_keys(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Make keys of different tables different: (documents, tables) in and out.

    Exactly reversible for each table, so two documents share an entry key of a table only when
    they share its key.
    """
    tables = np.arange(1, keys.shape[1] + 1, dtype=np.uint64) * np.uint64(_TABLE_FACTOR)
    return keys ^ tables


def unique_pairs(left: Rows, right: Rows) -> tuple[Rows, Rows]:
    """Sort pairs by (left, right) and drop repeats. Both must be below 2^31."""
    packed = np.unique((left << 32) | right)
    return packed >> 32, packed & 0xFFFFFFFF


def sharing_pairs(keys: npt.NDArray[np.uint64]) -> tuple[Rows, Rows]:
    """Return the pairs (earlier row, later row) that share a key in some column."""
    rows, columns = keys.shape
    flat = entry_keys(keys).reshape(-1)
    order = np.argsort(flat, kind="stable")
    flat = flat[order]
    documents = order // columns
    left, right = [], []
    for distance in range(1, rows):
        same = np.flatnonzero(flat[distance:] == flat[:-distance])
        if not len(same):
            break
        left.append(documents[same])
        right.append(documents[same + distance])
    if not left:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    return unique_pairs(np.concatenate(left), np.concatenate(right))
