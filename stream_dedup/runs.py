"""Runs of equal rows in sorted columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def begins_of_runs(column: npt.NDArray[Any], *others: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Say which rows differ from the one before in some column; the first row does.

    Args:
        column: (rows,) values, equal rows side by side.
        others: more columns of as many rows.
    """
    begins = np.ones(len(column), np.bool_)
    np.not_equal(column[1:], column[:-1], out=begins[1:])
    for other in others:
        begins[1:] |= other[1:] != other[:-1]
    return begins
