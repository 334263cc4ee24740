"""What is kept of a text for others to be compared with.

Evidence of one size is a row of a matrix, the *sketch*; evidence whose size depends on the text is
bytes, the *payload*. A configuration has one of the two.

A payload begins with two little-endian u32: how many distinct shingles the text has (characters,
where the text itself is kept), and a level that only ``ModSample`` uses. A count of 0 says that the
text can equal another but resemble none, because it has no token or is too large for this kind of
evidence; then its digest follows.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

HEAD = struct.Struct("<II")
_HEADS = np.dtype([("count", "<u4"), ("level", "<u4")])

Scores = npt.NDArray[np.float64]


class Evidence(NamedTuple):
    """Evidence of some texts.

    Attributes:
        sketches: (texts, width) uint8; of width 0 where payloads are the evidence.
        payloads: one for each text, or none at all where sketches are the evidence.
    """

    sketches: npt.NDArray[np.uint8]
    payloads: Sequence[bytes] = ()

    def rows(self, rows: npt.NDArray[np.int64]) -> Evidence:
        """Return the evidence of some texts, in the order of ``rows``."""
        sketches = self.sketches.take(rows, axis=0)  # of short rows far faster than [rows]
        if not len(self.payloads):
            return Evidence(sketches)
        return Evidence(sketches, [self.payloads[row] for row in rows.tolist()])


def opaque(digest: bytes) -> bytes:
    """Return the payload of a text that can equal another but resemble none."""
    return HEAD.pack(0, 0) + digest


def counts(payloads: Sequence[bytes]) -> npt.NDArray[np.int64]:
    """Return the number of distinct shingles that each payload tells."""
    return _heads(payloads)["count"].astype(np.int64)


def levels(payloads: Sequence[bytes]) -> npt.NDArray[np.int64]:
    """Return the level of each payload."""
    return _heads(payloads)["level"].astype(np.int64)


def _heads(payloads: Sequence[bytes]) -> npt.NDArray[np.void]:
    return np.frombuffer(b"".join(payload[: HEAD.size] for payload in payloads), _HEADS)
