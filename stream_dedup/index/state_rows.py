"""A batch of originals as a row of the state file: MessagePack around packed arrays.

A program reads the rows of every earlier version of the same format, so a column that came later
stands at the end and may be missing.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from stream_dedup.fingerprint.fingerprinter import Fingerprints
from stream_dedup.index.base import IndexBatch
from stream_dedup.types import DocumentId


class _Columns(msgspec.Struct, array_like=True):
    """One batch of originals as it is stored; arrays are little-endian, row by row."""

    ids: list[DocumentId]
    identities: bytes
    times: bytes
    digests: bytes
    keys: bytes
    sketches: bytes


class _Extended(_Columns, array_like=True):
    """The same with what only some configurations keep; in a file without it, it is empty."""

    payloads: list[bytes] = []
    ranks: bytes = b""


_decode = msgspec.msgpack.Decoder(_Extended).decode


def pack(batch: IndexBatch, *, keeps_ranks: bool) -> bytes:
    """Write a batch down, with the ranks of its documents if the configuration keeps them."""
    columns: dict[str, Any] = {
        "ids": batch.ids,
        "identities": batch.identities.astype("<u8").tobytes(),
        "times": batch.times.astype("<f8").tobytes(),
        "digests": b"".join(batch.prints.digests),
        "keys": batch.prints.keys.astype("<u8").tobytes(),
        "sketches": batch.prints.sketches.tobytes(),
    }
    if not batch.prints.payloads and not keeps_ranks:
        return msgspec.msgpack.encode(_Columns(**columns))
    ranks = batch.ranks.astype("<f8").tobytes() if keeps_ranks else b""
    payloads = list(batch.prints.payloads)
    return msgspec.msgpack.encode(_Extended(**columns, payloads=payloads, ranks=ranks))


def unpack(row: bytes) -> IndexBatch:
    """Read a batch back.

    Raises:
        ValueError: these bytes are no such row.
    """
    columns = _decode(row)
    count = len(columns.ids)
    ranks = np.frombuffer(columns.ranks, "<f8") if columns.ranks else np.full(count, np.inf)
    digests = columns.digests
    return IndexBatch(
        ids=columns.ids,
        identities=np.frombuffer(columns.identities, "<u8"),
        times=np.frombuffer(columns.times, "<f8"),
        prints=Fingerprints(
            empty=np.zeros(count, np.bool_),
            digests=[digests[start : start + 16] for start in range(0, 16 * count, 16)],
            keys=_rows(np.frombuffer(columns.keys, "<u8"), count),
            sketches=_rows(np.frombuffer(columns.sketches, np.uint8), count),
            payloads=columns.payloads,
        ),
        ranks=ranks,
    )


def _rows(values: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
    """Cut values into rows; -1 for their width would not do where there are none."""
    return values.reshape(count, len(values) // max(count, 1))
