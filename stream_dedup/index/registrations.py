"""Rows and replies of documents that are registered at once, all their keys in one partition."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from stream_dedup.index.keys import Places
from stream_dedup.index.row_claims import RowClaims, unpacked

_HEAD = np.dtype([("claim", ">u8"), ("bucket", "<u4"), ("known", "<u4"), ("record", "<u4")])
#: Bytes of a head before the claims that are known; the length of the record comes after them.
_FIXED = _HEAD.itemsize - 4


class Registrations:
    """What became of documents that were to be registered at once; filled by the round.

    Attributes:
        fates: one byte for each: a ``Fate``, or MET or FULL, when nothing of it was written.
        ruled_out: claims that they came upon and the server passed over by their Hamming distance.
    """

    #: It met unknown claims, and these are told.
    MET = ord("M")
    #: It met more claims under one key than are told.
    FULL = ord("F")

    def __init__(self, count: int) -> None:
        self.fates = np.zeros(count, np.uint8)
        self.ruled_out = 0
        self._met = RowClaims()

    @property
    def pairs(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
        """Rows that met unknown claims, and these, each once."""
        return self._met.pairs

    def take(self, start: int, fates: bytes, found: bytes) -> None:
        """Take the reply for the rows from ``start`` on."""
        self.fates[start : start + len(fates)] = np.frombuffer(fates, np.uint8)
        if found:
            rows, claims = unpacked(found)
            self._met.add(rows + start, claims)


def spelled(claims: Sequence[int] | npt.NDArray[np.uint64]) -> bytes:
    """Spell claims as the Functions do, 8 bytes each."""
    return np.asarray(claims, np.uint64).astype(">u8").tobytes()


def packed(
    places: Places,
    claims: npt.NDArray[np.uint64],
    buckets: npt.NDArray[np.int64],
    records: Sequence[bytes],
    known: Sequence[bytes],
) -> list[bytes]:
    """Pack documents as the function ``register`` wants them.

    Args:
        places: where their keys are kept, (documents, tables).
        claims: their claims.
        buckets: buckets of their records.
        records: their records.
        known: for each the claims that cannot matter to it any more (see ``spelled``).
    """
    shape, width = places.suffixes.shape, places.suffixes.itemsize
    keys = np.zeros(shape, np.dtype([("suffix", f"S{width}"), ("score", "S16")]))
    keys["suffix"], keys["score"] = places.suffixes, places.scores
    heads = np.zeros(len(claims), _HEAD)
    heads["claim"], heads["bucket"] = claims, buckets
    heads["known"] = [len(some) for some in known]
    heads["record"] = [len(record) for record in records]
    head, size = heads.tobytes(), _HEAD.itemsize
    body, wide = keys.tobytes(), shape[1] * keys.itemsize
    packed = []
    for row, record in enumerate(records):
        start = head[row * size : (row + 1) * size]
        if some := known[row]:
            start = start[:_FIXED] + some + start[_FIXED:]
        packed.append(start + record + body[row * wide : (row + 1) * wide])
    return packed
