"""SimHash, 64 or 128 bits (Charikar 2002; Manku, Jain, Das Sarma 2007, section 2).

Bit j of a fingerprint says whether the shingles that have bit j set in their hash make up more than
half of the weight of all of a text's shingles. The hash of a shingle has 64 bits; the upper 64 of
128 are the same hash, spread again with a key of its own.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stream_dedup.fingerprint.hashing import derive
from stream_dedup.fingerprint.weights import Weighting
from stream_dedup.settings import Settings
from stream_dedup.tables.blocks import WORD_BITS, block_permutations
from stream_dedup.text.shingles import Hashes, Offsets, Shingles, finalize
from stream_dedup.types import Score

#: Shingles that are summed at a time: counters of 8 bits hold as many ones, and counters of 16 bits
#: as many weights of up to 255.
_AT_A_TIME = 255

Totals = npt.NDArray[np.int64]


class SimHash:
    """Fingerprints by SimHash.

    Attributes:
        bits: bits of a fingerprint, 64 or 128.
        prefix_bits: bits of each table's key, one entry for each table.
        sketch_bytes: width of a sketch, here the fingerprint itself, its lowest byte first.
    """

    def __init__(self, settings: Settings) -> None:
        """Choose the tables, and read the document frequencies if they are needed.

        Raises:
            SettingsError: the file of document frequencies cannot be used.
        """
        self.hamming = settings.hamming
        self.bits = settings.simhash_bits
        self.sketch_bytes = self.bits // 8
        self.permutations = block_permutations(
            settings.hamming, settings.simhash_blocks, settings.inner_blocks, self.bits
        )
        self.prefix_bits = [permutation.prefix_bits for permutation in self.permutations]
        self._weighting = Weighting(settings)
        self._upper = np.uint64(derive(settings.seed.get_secret_value(), "simhash upper")[0])

    def fingerprint(self, shingles: Shingles) -> tuple[Hashes, npt.NDArray[np.uint8]]:
        """Return table keys, (texts, tables) uint64, and sketches, (texts, bits / 8) uint8."""
        sketches = self.sketches(shingles)
        return self.keys(sketches), sketches

    def keys(self, sketches: npt.NDArray[np.uint8]) -> Hashes:
        """Return the table keys of sketches, (texts, tables) uint64."""
        words = sketches.view("<u8").astype(np.uint64)
        fingerprints = words[:, 0] if self.bits == WORD_BITS else words[:, ::-1]
        return np.stack([p.prefix(fingerprints) for p in self.permutations], axis=1)

    def sketches(self, shingles: Shingles) -> npt.NDArray[np.uint8]:
        """Return the fingerprints only, (texts, bits / 8) uint8."""
        weighted = self._weighting.weigh(shingles)
        words = [simhash(*weighted)]
        if self.bits > WORD_BITS:
            hashes = finalize(weighted.shingles.hashes, self._upper)
            words.append(simhash(weighted.shingles._replace(hashes=hashes), weighted.weights))
        return np.stack(words, axis=1).astype("<u8").view(np.uint8)

    def compare(
        self, left: npt.NDArray[np.uint8], right: npt.NDArray[np.uint8]
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        """Return the Hamming distance of sketches, row by row, and which are near."""
        distances = np.bitwise_count(left ^ right).sum(axis=1, dtype=np.float64)
        return distances, distances <= self.hamming

    def scores(self, left: npt.NDArray[np.uint8], right: npt.NDArray[np.uint8]) -> list[Score]:
        """Return the Hamming distance of sketches, row by row."""
        distances = self.compare(left, right)[0].astype(np.int64)
        return [Score(hamming_distance=distance) for distance in distances.tolist()]


def simhash(shingles: Shingles, weights: npt.NDArray[np.uint8] | None = None) -> Hashes:
    """Return the SimHash of each text, (texts,) uint64; a text without shingles has 0.

    Args:
        shingles: shingles of each text, repeats included.
        weights: (shingles,) weight of each occurrence; without it each weighs 1.
    """
    totals, all_weights = _bit_totals(shingles, weights)
    bits = totals * 2 > all_weights[:, None]
    return np.packbits(bits, axis=1, bitorder="little").view("<u8").astype(np.uint64).reshape(-1)


def _bit_totals(shingles: Shingles, weights: npt.NDArray[np.uint8] | None) -> tuple[Totals, Totals]:
    """Sum, for each text and bit, the weights of the shingles that have the bit set.

    Returns:
        these, (texts, 64), and the weights of all shingles, (texts,).
    """
    counts = np.diff(shingles.starts)
    totals = np.zeros((len(counts), WORD_BITS), np.int64)
    filled, starts, first_segments = _segments(shingles.starts)
    if not len(filled):
        return totals, counts
    factors = None if weights is None else weights.astype(np.uint64)
    # Lane i of a word counts bit lane_bits * i + bit.
    lane_bits = 8 if factors is None else 16
    lanes = np.uint64(sum(1 << lane for lane in range(0, WORD_BITS, lane_bits)))
    for bit in range(lane_bits):
        ones = (shingles.hashes >> np.uint64(bit)) & lanes
        if factors is not None:
            ones *= factors
        sums = np.add.reduceat(ones, starts).astype("<u8").view(f"<u{lane_bits // 8}")
        sums = sums.reshape(-1, WORD_BITS // lane_bits)
        totals[filled, bit::lane_bits] = np.add.reduceat(
            sums, first_segments, axis=0, dtype=np.int64
        )
    if weights is None:
        return totals, counts
    of_text = np.zeros(len(counts), np.int64)
    of_text[filled] = np.add.reduceat(weights, shingles.starts[filled], dtype=np.int64)
    return totals, of_text


def _segments(starts: Offsets) -> tuple[Offsets, Offsets, Offsets]:
    """Cut texts into segments short enough to be summed at a time.

    Returns:
        the texts that have shingles, where each segment begins, and each text's first segment.
    """
    counts = np.diff(starts)
    segments = -(-counts // _AT_A_TIME)
    firsts = np.cumsum(segments) - segments
    within = np.arange(segments.sum()) - np.repeat(firsts, segments)
    filled = np.flatnonzero(counts)
    return filled, np.repeat(starts[:-1], segments) + within * _AT_A_TIME, firsts[filled]
