"""Rows of what was asked for, and a claim that stands there for each; filled reply by reply."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]
Claims = npt.NDArray[np.uint64]

_PACKED = np.dtype([("row", "<u4"), ("claim", ">u8")])


class RowClaims:
    """Pairs of a row and a claim, in the order in which they were told."""

    def __init__(self) -> None:
        self._rows: list[Rows] = []
        self._claims: list[Claims] = []

    def add(self, rows: Rows, claims: Claims) -> None:
        """Add pairs."""
        self._rows.append(rows)
        self._claims.append(claims)

    @property
    def pairs(self) -> tuple[Rows, Claims]:
        """All of them: a row and a claim each."""
        if not self._rows:
            return np.zeros(0, np.int64), np.zeros(0, np.uint64)
        return np.concatenate(self._rows), np.concatenate(self._claims)


def unpacked(told: bytes) -> tuple[Rows, Claims]:
    """Return the rows of a call, and the claims, that its reply names."""
    pairs = np.frombuffer(told, _PACKED)
    return pairs["row"].astype(np.int64), pairs["claim"].astype(np.uint64)
