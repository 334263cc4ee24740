"""The record of a claim, as bytes.

    identity u64   same source and document id
    time     f64   event time, seconds since the epoch
    digest   16    xxh3-128 of the normalised text
    renewed  f64   event time of the latest duplicate; only where duplicates renew originals
    sketch   n     what verification compares; n is fixed by the configuration, 0 with payloads
    rank     f64   rank of the publisher; only where the choice goes by it
    length   u32   of the payload; only in a configuration with payloads
    payload  ...   what verification compares
    id       ...   document id, MessagePack
    (rest)         of a later version; passed over, and never dropped, by this one

All little-endian. In Redis one byte, the fate, stands before it. The Functions (lua/claims.lua)
read time, renewed and sketch where they stand.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.index.base import IndexBatch, Registered
from stream_dedup.index.expiry import NEVER
from stream_dedup.types import Choice, DocumentId
from stream_dedup.verify.evidence import Evidence

_HEAD = struct.Struct("<Qd16s")
_RENEWED = struct.Struct("<d")
_RANK = struct.Struct("<d")
_LENGTH = struct.Struct("<I")
#: MessagePack: bytes that the length of a string takes, and those of an integer, by the first byte.
_LENGTH_BYTES = {0xD9: 1, 0xDA: 2, 0xDB: 4}
_NUMBER_BYTES = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
_ids = msgspec.msgpack.Decoder(str | int)


class Record(NamedTuple):
    """A claim's record, decoded; ``renewed`` is its time where it was not renewed."""

    identity: int
    time: float
    digest: bytes
    sketch: bytes
    document_id: DocumentId
    rank: float = float("inf")
    payload: bytes = b""
    renewed: float = NEVER

    def registered(self) -> Registered:
        """Return the original as far as its id and text go."""
        return Registered(self.document_id, self.digest, self.identity, self.time)


class Columns(NamedTuple):
    """What many records say, a row each, but for the document ids (see ``Record``)."""

    identities: npt.NDArray[np.uint64]
    times: npt.NDArray[np.float64]
    digests: npt.NDArray[np.uint64]
    evidence: Evidence
    ranks: npt.NDArray[np.float64]
    renewed: npt.NDArray[np.float64]

    def some(self, rows: npt.NDArray[np.int64]) -> Columns:
        """Return some rows, in the order of ``rows``."""
        identities, times, digests, evidence, ranks, renewed = self
        return Columns(
            identities[rows],
            times[rows],
            digests[rows],
            evidence.rows(rows),
            ranks[rows],
            renewed[rows],
        )


class RecordFormat(NamedTuple):
    """What the records of a configuration hold.

    Attributes:
        sketch_bytes: width of a sketch; 0 where payloads are the evidence.
        keeps_ranks: whether they hold ranks.
        renews: whether they hold times of renewal.
        hamming: bits within which sketches are near, where their Hamming distance alone decides.
    """

    sketch_bytes: int
    keeps_ranks: bool = False
    renews: bool = False
    hamming: int | None = None

    @classmethod
    def of(cls, fingerprinter: Fingerprinter) -> RecordFormat:
        """Return the format of a configuration."""
        settings = fingerprinter.settings
        by_rank = settings.choice is Choice.PREFERRED
        hamming = settings.hamming if settings.by_hamming else None
        return cls(fingerprinter.verifier.sketch_bytes, by_rank, settings.renew, hamming)

    @property
    def compared(self) -> tuple[int, ...]:
        """How the Functions compare records: place (from 1), width, and near up to how many bits.

        Nothing where they cannot.
        """
        return (
            () if self.hamming is None else (self._sketch_at + 1, self.sketch_bytes, self.hamming)
        )

    @property
    def _sketch_at(self) -> int:
        return _HEAD.size + self.renews * _RENEWED.size

    @property
    def time_at(self) -> int:
        """Where in a record stands the time that its expiry goes by."""
        return _HEAD.size if self.renews else 8

    def encode(self, batch: IndexBatch) -> list[bytes]:
        """Encode the record of each document."""
        encode = msgspec.msgpack.encode
        return [
            _HEAD.pack(identity, time, digest) + middle + encode(document_id)
            for identity, time, digest, middle, document_id in zip(
                batch.identities.tolist(),
                batch.times.tolist(),
                batch.prints.digests,
                self._middles(batch),
                batch.ids,
                strict=True,
            )
        ]

    def original(self, value: bytes, document_id: DocumentId) -> Record | None:
        """Return the record of an original that has this id; None for what else stands there.

        Args:
            value: what is kept of a claim, its fate first.
            document_id: the id that it was found by; another may have the same hash.
        """
        if value[:1] != b"O":
            return None
        record = self.decode(value[1:])
        return record if record.document_id == document_id else None

    def decode(self, data: bytes) -> Record:
        """Decode a record.

        Raises:
            ValueError: these bytes are no such record.
        """
        start = self._sketch_at
        end = start + self.sketch_bytes
        rank, payload, at = float("inf"), b"", end
        try:
            identity, time, digest = _HEAD.unpack_from(data)
            renewed = _RENEWED.unpack_from(data, _HEAD.size)[0] if self.renews else time
            if self.keeps_ranks:
                (rank,) = _RANK.unpack_from(data, at)
                at += _RANK.size
            if not self.sketch_bytes:
                (length,) = _LENGTH.unpack_from(data, at)
                at += _LENGTH.size + length
                payload = data[at - length : at]
        except struct.error as error:
            raise self._too_short(data) from error
        if len(data) <= at:
            raise self._too_short(data)
        document_id = _first_id(data[at:])
        sketch = data[start:end]
        return Record(identity, time, digest, sketch, document_id, rank, payload, renewed)

    def columns(self, values: Sequence[bytes]) -> Columns:
        """Take many records apart at once.

        Args:
            values: what is kept of claims, their fates first.

        Raises:
            ValueError: one of them is no such record.
        """
        row = self._row
        for value in values:
            if len(value) <= row.itemsize:
                raise self._too_short(value[1:])
        table = np.frombuffer(b"".join([value[: row.itemsize] for value in values]), row)
        return Columns(
            table["identity"],
            table["time"],
            table["digest"],
            Evidence(np.ascontiguousarray(table["sketch"]), self._payloads(values)),
            table["rank"] if self.keeps_ranks else np.full(len(values), np.inf),
            table["renewed"] if self.renews else table["time"],
        )

    @property
    def _row(self) -> np.dtype[np.void]:
        """What stands in a value before payload and document id."""
        fields: list[Any] = [("fate", "u1"), ("identity", "<u8"), ("time", "<f8")]
        fields.append(("digest", "<u8", 2))
        if self.renews:
            fields.append(("renewed", "<f8"))
        fields.append(("sketch", "u1", (self.sketch_bytes,)))
        if self.keeps_ranks:
            fields.append(("rank", "<f8"))
        return np.dtype(fields)

    def _payloads(self, values: Sequence[bytes]) -> list[bytes]:
        if self.sketch_bytes:
            return []
        head = self._row.itemsize
        start = head + _LENGTH.size
        lengths = [int.from_bytes(value[head:start], "little") for value in values]
        for value, length in zip(values, lengths, strict=True):
            if len(value) <= start + length:
                raise self._too_short(value[1:])
        ends = [start + length for length in lengths]
        return [value[start:end] for value, end in zip(values, ends, strict=True)]

    def evidence(self, records: Sequence[Record]) -> Evidence:
        """Return the evidence in some records."""
        joined = b"".join(record.sketch for record in records)
        sketches = np.frombuffer(joined, np.uint8).reshape(len(records), self.sketch_bytes)
        if self.sketch_bytes:
            return Evidence(sketches)
        return Evidence(sketches, [record.payload for record in records])

    def _middles(self, batch: IndexBatch) -> list[bytes]:
        """Return what stands between the digest and the document id of each record."""
        width, sketches = self.sketch_bytes, batch.prints.sketches.tobytes()
        middles = [sketches[row * width : (row + 1) * width] for row in range(len(batch))]
        if self.renews:
            times = batch.times.tolist()
            middles = [_RENEWED.pack(time) + one for time, one in zip(times, middles, strict=True)]
        if self.keeps_ranks:
            ranks = batch.ranks.tolist()
            middles = [one + _RANK.pack(rank) for one, rank in zip(middles, ranks, strict=True)]
        if not width:
            middles = [
                one + _LENGTH.pack(len(payload)) + payload
                for one, payload in zip(middles, batch.prints.payloads, strict=True)
            ]
        return middles

    def _too_short(self, data: bytes) -> ValueError:
        return ValueError(
            f"a claim record of {len(data)} bytes is too short for a sketch of {self.sketch_bytes}"
        )


def _first_id(data: bytes) -> DocumentId:
    """Return the id that some bytes begin with.

    Raises:
        ValueError: they begin with no id.
    """
    try:
        found: DocumentId = _ids.decode(data)
    except msgspec.DecodeError:
        # What follows is a field of a later version, beside whose workers this one may run.
        try:
            found = _ids.decode(data[: _id_width(data)])
        except (msgspec.DecodeError, IndexError) as error:
            msg = "a claim record has no document id where one must be"
            raise ValueError(msg) from error
    return found


def _id_width(data: bytes) -> int:
    """Return the bytes of the MessagePack string or integer at the beginning."""
    kind = data[0]
    if 0xA0 <= kind <= 0xBF:
        return 1 + (kind & 0x1F)
    if kind in _LENGTH_BYTES:
        end = 1 + _LENGTH_BYTES[kind]
        return end + int.from_bytes(data[1:end], "big")
    return 1 + _NUMBER_BYTES.get(kind, 0)
