"""Rows and replies of documents that are registered at once, all their keys in one partition."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from stream_dedup.index.keys import Places

_HEAD = np.dtype([("claim", ">u8"), ("bucket", "<u4"), ("known", "<u4")])
_FOUND = np.dtype([("row", "<u4"), ("claim", ">u8")])


class Registrations:
    """What became of documents that were to be registered at once; filled by the round.

    Attributes:
        fates: one byte for each: a ``Fate``, or MET or FULL, when nothing of it was written.
        ruled_out: claims that they came upon and the server passed over by their Hamming distance;
            0 where its Functions do not tell, which are those of an earlier version.
    """

    #: It met unknown claims, and these are told.
    MET = ord("M")
    #: It met more claims under one key than are told.
    FULL = ord("F")

    def __init__(self, count: int) -> None:
        self.fates = np.zeros(count, np.uint8)
        self.ruled_out = 0
        self._rows: list[npt.NDArray[np.int64]] = []
        self._claims: list[npt.NDArray[np.uint64]] = []

    @property
    def pairs(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
        """Rows that met unknown claims, and these, each once."""
        if not self._rows:
            return np.zeros(0, np.int64), np.zeros(0, np.uint64)
        return np.concatenate(self._rows), np.concatenate(self._claims)

    def take(self, start: int, fates: bytes, found: bytes) -> None:
        """Take the reply for the rows from ``start`` on."""
        self.fates[start : start + len(fates)] = np.frombuffer(fates, np.uint8)
        if found:
            pairs = np.frombuffer(found, _FOUND)
            self._rows.append(pairs["row"].astype(np.int64) + start)
            self._claims.append(pairs["claim"].astype(np.uint64))


def packed(
    places: Places,
    claims: npt.NDArray[np.uint64],
    buckets: npt.NDArray[np.int64],
    records: Sequence[bytes],
    known: Sequence[Sequence[int]],
) -> list[bytes]:
    """Pack documents as the function ``register`` wants them.

    Args:
        places: where their keys are kept, (documents, tables).
        claims: their claims.
        buckets: buckets of their records.
        records: their records.
        known: for each the claims that cannot matter to it any more.
    """
    shape, width = places.suffixes.shape, places.suffixes.itemsize
    keys = np.zeros(shape, np.dtype([("suffix", f"S{width}"), ("score", "S16")]))
    keys["suffix"], keys["score"] = places.suffixes, places.scores
    heads = np.zeros(len(claims), _HEAD)
    heads["claim"], heads["bucket"] = claims, buckets
    heads["known"] = [8 * len(some) for some in known]
    head, size = heads.tobytes(), heads.itemsize
    body, wide = keys.tobytes(), shape[1] * keys.itemsize
    return [
        b"".join(
            (
                head[row * size : (row + 1) * size],
                *(claim.to_bytes(8, "big") for claim in known[row]),
                len(record).to_bytes(4, "little"),
                record,
                body[row * wide : (row + 1) * wide],
            )
        )
        for row, record in enumerate(records)
    ]
