"""MinHash by 128 hash functions (Broder 1997; Broder, Charikar, Frieze, Mitzenmacher 1998).

Function i maps a shingle to a_i * x + b_i modulo 2^64, of which the upper 32 bits are the value; x
is 32 bits of the shingle's keyed hash. That is strongly universal (Carter and Wegman 1979 for the
notion; Dietzfelbinger 1996, theorem 3, for this family, which needs no division by a prime). The
signature is the least value of each function.

The sketch keeps 8 bits of each (Li and Koenig 2010, "b-bit minwise hashing"). Two values that
differ agree in these by accident with a probability of 1/256, which the estimate takes off.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stream_dedup.fingerprint.banding import SIGNATURE_VALUES, Banding, similarities
from stream_dedup.fingerprint.hashing import derive
from stream_dedup.settings import Settings
from stream_dedup.text.shingles import Hashes, Shingles
from stream_dedup.types import Score

_HALF = np.uint64(32)
_BYTE = np.uint64(0xFF)
_ACCIDENT = 1 / 256


class ClassicMinHash:
    """Fingerprints by MinHash with one hash function for each value.

    Attributes:
        prefix_bits: bits of each table's key, one entry for each table.
        sketch_bytes: width of a sketch.
        design: the band design.
    """

    sketch_bytes = SIGNATURE_VALUES

    def __init__(self, settings: Settings) -> None:
        """Choose the bands and draw the functions.

        Raises:
            SettingsError: no band design reaches the recall.
        """
        seed = settings.seed.get_secret_value()
        self.near_from = settings.near_from
        self._banding = Banding(settings)
        self.design = self._banding.design
        self.prefix_bits = self._banding.prefix_bits
        self._factors = np.array(derive(seed, "minhash factors", SIGNATURE_VALUES), np.uint64)
        self._terms = np.array(derive(seed, "minhash terms", SIGNATURE_VALUES), np.uint64)

    def fingerprint(self, shingles: Shingles) -> tuple[Hashes, npt.NDArray[np.uint8]]:
        """Return table keys, (texts, bands) uint64, and sketches, (texts, 128) uint8."""
        signatures = self.signatures(shingles)
        return self._banding.keys(signatures), (signatures & _BYTE).astype(np.uint8)

    def signatures(self, shingles: Shingles) -> Hashes:
        """Return the signatures, (texts, 128) uint64; a text without shingles has zeros."""
        texts = np.flatnonzero(np.diff(shingles.starts))
        signatures = np.zeros((len(shingles.starts) - 1, SIGNATURE_VALUES), np.uint64)
        if not len(texts):
            return signatures
        starts = shingles.starts[texts]
        halves = shingles.hashes >> _HALF
        least = np.empty((SIGNATURE_VALUES, len(texts)), np.uint64)
        values = np.empty_like(halves)
        for function in range(SIGNATURE_VALUES):
            np.multiply(halves, self._factors[function], out=values)
            values += self._terms[function]
            np.minimum.reduceat(values, starts, out=least[function])
        # The least of the products has the least of the upper halves.
        signatures[texts] = least.T >> _HALF
        return signatures

    def compare(
        self, left: npt.NDArray[np.uint8], right: npt.NDArray[np.uint8]
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        """Estimate the resemblance of sketches, row by row; say which are near."""
        agreeing = np.count_nonzero(left == right, axis=1) / SIGNATURE_VALUES
        scores = np.maximum((agreeing - _ACCIDENT) / (1 - _ACCIDENT), 0.0)
        return scores, scores >= self.near_from

    def scores(self, left: npt.NDArray[np.uint8], right: npt.NDArray[np.uint8]) -> list[Score]:
        """Estimate the resemblance of sketches, row by row."""
        return similarities(self.compare(left, right)[0])
