"""The record of a claim, as bytes.

    identity u64   same source and document id
    time     f64   event time, seconds since the epoch
    digest   16    xxh3-128 of the normalised text
    sketch   n     what verification compares; n is fixed by the configuration
    id       rest  document id, MessagePack

All little-endian. In Redis one byte, the fate, stands before it (lua/claims.lua).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import msgspec

from stream_dedup.index.base import IndexBatch
from stream_dedup.types import DocumentId

_HEAD = struct.Struct("<Qd16s")
_ids = msgspec.msgpack.Decoder(str | int)


class Record(NamedTuple):
    """A claim's record, decoded."""

    identity: int
    time: float
    digest: bytes
    sketch: bytes
    document_id: DocumentId


def encode_records(batch: IndexBatch) -> list[bytes]:
    """Encode the record of each document."""
    width = batch.prints.sketches.shape[1]
    sketches = batch.prints.sketches.tobytes()
    encode = msgspec.msgpack.encode
    return [
        _HEAD.pack(identity, time, digest) + sketches[start : start + width] + encode(document_id)
        for identity, time, digest, start, document_id in zip(
            batch.identities.tolist(),
            batch.times.tolist(),
            batch.prints.digests,
            range(0, width * len(batch), width),
            batch.ids,
            strict=True,
        )
    ]


def decode_record(data: bytes, width: int) -> Record:
    """Decode a record with a sketch of ``width`` bytes.

    Raises:
        ValueError: these bytes are no such record.
    """
    if len(data) <= _HEAD.size + width:
        msg = f"a claim record of {len(data)} bytes is too short for a sketch of {width}"
        raise ValueError(msg)
    identity, time, digest = _HEAD.unpack_from(data)
    end = _HEAD.size + width
    return Record(identity, time, digest, data[_HEAD.size : end], _ids.decode(data[end:]))
