"""SimHash, 64 bits (Charikar 2002; Manku, Jain, Das Sarma 2007, section 2).

Bit j of a fingerprint says whether more than half of a text's shingles, each as often as it occurs,
have bit j set in their hash.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stream_dedup.settings import Settings
from stream_dedup.tables.blocks import block_permutations
from stream_dedup.text.shingles import Hashes, Shingles

BITS = 64

#: Eight 8-bit counters share one 64-bit word, so at most this many shingles are summed at a time.
_LANE_LIMIT = 255
_LANES = np.uint64(0x0101010101010101)


class SimHash:
    """Fingerprints by SimHash.

    Attributes:
        prefix_bits: bits of each table's key, one entry for each table.
        sketch_bytes: width of a sketch, here the fingerprint itself.
    """

    sketch_bytes = BITS // 8

    def __init__(self, settings: Settings) -> None:
        self.hamming = settings.hamming
        self.permutations = block_permutations(
            settings.hamming, settings.simhash_blocks, settings.inner_blocks
        )
        self.prefix_bits = [permutation.prefix_bits for permutation in self.permutations]

    def fingerprint(self, shingles: Shingles) -> tuple[Hashes, npt.NDArray[np.uint8]]:
        """Return table keys, (texts, tables) uint64, and sketches, (texts, 8) uint8."""
        fingerprints = simhash(shingles)
        keys = np.stack([p.prefix(fingerprints) for p in self.permutations], axis=1)
        return keys, fingerprints.astype("<u8").view(np.uint8).reshape(-1, self.sketch_bytes)

    def compare(
        self, left: npt.NDArray[np.uint8], right: npt.NDArray[np.uint8]
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        """Return the Hamming distance of sketches, row by row, and which are near."""
        distances = np.bitwise_count(left ^ right).sum(axis=1, dtype=np.float64)
        return distances, distances <= self.hamming


def simhash(shingles: Shingles) -> Hashes:
    """Return each text's fingerprint, (texts,) uint64; a text without shingles has 0."""
    totals, counts = _bit_totals(shingles)
    bits = totals * 2 > counts[:, None]
    return np.packbits(bits, axis=1, bitorder="little").view("<u8").astype(np.uint64).reshape(-1)


def _bit_totals(
    shingles: Shingles,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Count, for each text and bit, the shingles that have the bit set."""
    counts = np.diff(shingles.starts)
    totals = np.zeros((len(counts), BITS), np.int64)
    segments = -(-counts // _LANE_LIMIT)
    if not segments.sum():
        return totals, counts
    within = np.arange(segments.sum()) - np.repeat(np.cumsum(segments) - segments, segments)
    starts = np.repeat(shingles.starts[:-1], segments) + within * _LANE_LIMIT
    filled = np.flatnonzero(counts)
    first_segments = (np.cumsum(segments) - segments)[filled]
    for bit in range(8):
        lanes = (shingles.hashes >> np.uint64(bit)) & _LANES
        sums = np.add.reduceat(lanes, starts).astype("<u8").view(np.uint8).reshape(-1, 8)
        # Lane i of a word counts bit 8 * i + bit.
        totals[filled, bit::8] = np.add.reduceat(sums, first_segments, axis=0, dtype=np.int64)
    return totals, counts
