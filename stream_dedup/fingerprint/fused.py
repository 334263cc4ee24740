"""MinHash and SimHash together: the candidates of both, verified by both.

Henzinger 2006 ("Finding near-duplicate web pages: a large-scale evaluation of algorithms", the
section on the combined algorithm) found that MinHash and SimHash err on different pairs, and that a
pair which must pass both is right far more often than one that passes either (0.79 against 0.38
and 0.50). Here a pair is near when its estimated resemblance reaches the threshold, as by MinHash
alone, or when it is within the Hamming distance *and* its estimated resemblance reaches
``fused_resemblance``: what SimHash adds must pass both.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stream_dedup.errors import SettingsError
from stream_dedup.fingerprint.classic import ClassicMinHash
from stream_dedup.fingerprint.minhash import MinHash
from stream_dedup.fingerprint.simhash import SimHash
from stream_dedup.matching_settings import MAX_TABLES
from stream_dedup.settings import Settings
from stream_dedup.text.shingles import Hashes, Shingles
from stream_dedup.types import Score

Sketches = npt.NDArray[np.uint8]


class Fused:
    """Fingerprints by MinHash and SimHash, side by side, MinHash first.

    Attributes:
        prefix_bits: bits of each table's key, one entry for each table.
        sketch_bytes: width of a sketch.
    """

    def __init__(self, settings: Settings, minhash: MinHash | ClassicMinHash) -> None:
        """Put the two together.

        Raises:
            SettingsError: together they have too many tables, or the file of document frequencies
                cannot be used.
        """
        self.floor = settings.fused_resemblance
        self._minhash, self._simhash = minhash, SimHash(settings)
        self.prefix_bits = self._minhash.prefix_bits + self._simhash.prefix_bits
        self.sketch_bytes = self._minhash.sketch_bytes + self._simhash.sketch_bytes
        if len(self.prefix_bits) > MAX_TABLES:
            msg = (
                f"MinHash and SimHash together have {len(self.prefix_bits)} tables, more than "
                f"{MAX_TABLES}. Take fewer blocks, or a lower recall."
            )
            raise SettingsError(msg)

    def fingerprint(self, shingles: Shingles) -> tuple[Hashes, Sketches]:
        """Return table keys, (texts, tables) uint64, and sketches, (texts, width) uint8."""
        minhash, simhash = (
            method.fingerprint(shingles) for method in (self._minhash, self._simhash)
        )
        return np.hstack([minhash[0], simhash[0]]), np.hstack([minhash[1], simhash[1]])

    def compare(
        self, left: Sketches, right: Sketches
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        """Return the estimated resemblance of sketches, row by row, and which are near."""
        resemblances, alike = self._minhash.compare(*self._of_minhash(left, right))
        _, close = self._simhash.compare(*self._of_simhash(left, right))
        return resemblances, alike | (close & (resemblances >= self.floor))

    def scores(self, left: Sketches, right: Sketches) -> list[Score]:
        """Return the estimated resemblance and the Hamming distance of sketches, row by row."""
        resemblances = self._minhash.scores(*self._of_minhash(left, right))
        distances = self._simhash.scores(*self._of_simhash(left, right))
        return [
            Score(resemblance.similarity, distance.hamming_distance)
            for resemblance, distance in zip(resemblances, distances, strict=True)
        ]

    def _of_minhash(self, *sketches: Sketches) -> tuple[Sketches, ...]:
        return tuple(sketch[:, : self._minhash.sketch_bytes] for sketch in sketches)

    def _of_simhash(self, *sketches: Sketches) -> tuple[Sketches, ...]:
        return tuple(sketch[:, self._minhash.sketch_bytes :] for sketch in sketches)
