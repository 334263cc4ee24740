"""Document frequencies of shingles: learned from documents, kept in a file of fixed size.

A count-min sketch (Cormode and Muthukrishnan 2005) counts the documents in which each shingle
occurs: four rows of cells, in each of which a shingle has one; its count is the least of the four.
It is never too small, and too large by more than e * S / cells with a probability of at most e^-4,
1.8 %, where S is the number of (document, distinct shingle) pairs and cells those of a row. Counts
are plain sums, so documents learned in any order, and in any number of sittings, give one file.

The inverse document frequency of a shingle found in n of N documents is log2(1 + N / max(n, 1)),
rounded to eighths of a bit: a weight of 8 if all documents have it, and 248 if one of 2^31 has.
"""

from __future__ import annotations

import hashlib
from decimal import ROUND_FLOOR, Context, Decimal
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import zstandard

from stream_dedup.errors import InputError, SettingsError
from stream_dedup.replacing import remedy, replacing
from stream_dedup.text.sealed import seal, unseal
from stream_dedup.text.shingles import Hashes

ROWS = 4
#: Cells of a row: 16 MiB in memory, 4 MiB for the weights; S = 100 million is too large by 259.
CELLS = 1 << 20
#: So that no weight is above 255.
MOST_DOCUMENTS = 1 << 31

_FORMAT = "stream-dedup document frequencies"
_VERSION = 1
_STEPS = 8
_MOST_WEIGHT = 255
_LOW = np.uint64(0xFFFFFFFF)
_PRECISE = Context(prec=60)

Counts = npt.NDArray[np.uint32]


class Origin(NamedTuple):
    """What shingles the frequencies are of.

    Attributes:
        shingle: setting ``shingle``.
        seed: a number derived from the seed that keys the shingles' hashes.
    """

    shingle: str
    seed: int


class _File(msgspec.Struct):
    """What is in the file, a MessagePack map; counts are little-endian, row by row, by zstd."""

    format: str
    version: int
    shingle: str
    seed: int
    documents: int
    shingles: int
    cells: int
    counts: bytes


class Frequencies:
    """Document frequencies.

    Attributes:
        origin: what they are of.
        documents: documents learned from.
        shingles: distinct shingles of each, summed.
        cells: cells of a row, a power of two.
    """

    def __init__(self, origin: Origin, cells: int = CELLS) -> None:
        self.origin = origin
        self.documents = 0
        self.shingles = 0
        self.cells = cells
        self._counts: Counts = np.zeros((ROWS, cells), np.uint32)

    def add(self, hashes: Hashes, documents: int) -> None:
        """Learn from some documents.

        Args:
            hashes: hashes of the distinct shingles of each, one after another.
            documents: how many they are.

        Raises:
            InputError: that would be more documents than can be counted.
        """
        if self.documents + documents > MOST_DOCUMENTS:
            msg = f"No more than {MOST_DOCUMENTS:,} documents can be counted. Begin a new file."
            raise InputError(msg)
        for row, cells in enumerate(self._cells_of(hashes)):
            np.add.at(self._counts[row], cells, np.uint32(1))
        self.documents += documents
        self.shingles += len(hashes)
        self.__dict__.pop("_weights", None)

    def counts(self, hashes: Hashes) -> Counts:
        """Return in how many documents each shingle was found, (shingles,) uint32; never less."""
        found: Counts = np.min(
            [self._counts[row, cells] for row, cells in enumerate(self._cells_of(hashes))], axis=0
        )
        return found

    def weights(self, hashes: Hashes) -> npt.NDArray[np.uint8]:
        """Return the inverse document frequency of each shingle in eighths of a bit, 1 to 255."""
        weights = np.ones(len(hashes), np.uint8)
        # The least count has the largest weight.
        for row, cells in enumerate(self._cells_of(hashes)):
            np.maximum(weights, self._weights[row].take(cells), out=weights)
        return weights

    @cached_property
    def _weights(self) -> npt.NDArray[np.uint8]:
        """Return the weight that each cell stands for."""
        bounds = _largest_counts(self.documents)
        weights = np.full(self._counts.shape, _weights_within(bounds, np.uint32(1)))
        often = self._counts > 1
        weights[often] = _weights_within(bounds, self._counts[often])
        return weights

    def _cells_of(self, hashes: Hashes) -> list[npt.NDArray[np.int64]]:
        """Return each shingle's cell in each row (Kirsch and Mitzenmacher 2006: two hashes do)."""
        start, step = hashes & _LOW, (hashes >> np.uint64(32)) | np.uint64(1)
        last = np.uint64(self.cells - 1)
        return [((start + np.uint64(row) * step) & last).astype(np.int64) for row in range(ROWS)]

    def digest(self) -> str:
        """Return 32 hexadecimal digits that change with any count."""
        about = (_VERSION, *self.origin, self.documents, self.shingles, self.cells)
        digest = hashlib.blake2b(msgspec.json.encode(about), digest_size=16)
        digest.update(self._counts.astype("<u4").tobytes())
        return digest.hexdigest()

    def write(self, path: Path) -> None:
        """Write the file; whoever reads it meanwhile gets the old one, whole.

        Raises:
            InputError: it cannot be written.
        """
        counts = zstandard.ZstdCompressor().compress(self._counts.astype("<u4").tobytes())
        content = msgspec.msgpack.encode(
            _File(
                _FORMAT,
                _VERSION,
                *self.origin,
                documents=self.documents,
                shingles=self.shingles,
                cells=self.cells,
                counts=counts,
            )
        )
        try:
            with replacing(path) as partial:
                partial.write_bytes(seal(content))
        except OSError as error:
            msg = f"{path} cannot be written: {error.strerror}. {remedy(error)}"
            raise InputError(msg) from error


def read_frequencies(path: Path) -> Frequencies:
    """Read a file of document frequencies.

    Raises:
        SettingsError: it cannot be read, or is not such a file, or of another version.
    """
    try:
        return _decode(path.read_bytes())
    except (OSError, ValueError, RecursionError, MemoryError, zstandard.ZstdError) as error:
        msg = (
            f"{path} is not a file of document frequencies that can be used: {error}. Make one "
            "with stream-dedup learn frequencies."
        )
        raise SettingsError(msg) from error


def _decode(content: bytes) -> Frequencies:
    stored = msgspec.msgpack.decode(unseal(content), type=_File)
    if stored.format != _FORMAT or stored.version != _VERSION:
        msg = f"it is {stored.format!r} in version {stored.version}"
        raise ValueError(msg)
    # Before anything is made or unpacked that is as large as the file says.
    unpacked = zstandard.get_frame_parameters(stored.counts).content_size
    if not 0 < stored.cells <= CELLS or unpacked != 4 * ROWS * stored.cells:
        msg = "its counts are not as many as it says"
        raise ValueError(msg)
    frequencies = Frequencies(Origin(stored.shingle, stored.seed), stored.cells)
    counts = np.frombuffer(zstandard.ZstdDecompressor().decompress(stored.counts), "<u4")
    frequencies._counts = counts.astype(np.uint32).reshape(ROWS, stored.cells)
    frequencies.documents, frequencies.shingles = stored.documents, stored.shingles
    return frequencies


def _weights_within(
    bounds: npt.NDArray[np.int64], counts: Counts | np.uint32
) -> npt.NDArray[np.uint8]:
    """Return the weight of each count, by the largest count of each weight."""
    smaller = np.searchsorted(bounds, counts, "left")
    return np.maximum(_MOST_WEIGHT - smaller, 1).astype(np.uint8)


def _largest_counts(documents: int) -> npt.NDArray[np.int64]:
    """Return the largest count that has each weight or more, from weight 255 down to 1.

    A weight of w or more means 8 * log2(1 + N / n) >= w - 1/2, so n <= N / (2^((2w - 1) / 16) - 1).
    Decimals of 60 digits, not the machine's logarithm, so that every machine gets the same.
    """
    bounds = []
    for weight in range(_MOST_WEIGHT, 0, -1):
        exponent = _PRECISE.divide(Decimal(2 * weight - 1), Decimal(2 * _STEPS))
        ratio = _PRECISE.subtract(_PRECISE.power(Decimal(2), exponent), Decimal(1))
        bound = _PRECISE.divide(Decimal(documents), ratio)
        bounds.append(int(bound.to_integral_value(ROUND_FLOOR)))
    return np.array(bounds, np.int64)
