"""What both kinds of MinHash share: the band design and the table keys made from a signature."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from stream_dedup.fingerprint.hashing import derive
from stream_dedup.settings import Settings
from stream_dedup.tables.bands import BandDesign, design_bands
from stream_dedup.tables.blocks import MAX_PREFIX_BITS
from stream_dedup.tables.plan import design_rows
from stream_dedup.text.shingles import Hashes, finalize
from stream_dedup.types import Score

SIGNATURE_VALUES = 128


class Banding:
    """Cuts signatures into bands (Leskovec, Rajaraman, Ullman 2020, section 3.4).

    Attributes:
        design: the band design.
        prefix_bits: bits of each table's key, one entry for each table.
    """

    def __init__(self, settings: Settings) -> None:
        """Choose the bands.

        Raises:
            SettingsError: no design over 128 values reaches the recall.
        """
        seed = settings.seed.get_secret_value()
        self.design = _design(settings)
        self.prefix_bits = [MAX_PREFIX_BITS] * self.design.bands
        self._factors = np.array(derive(seed, "bands", self.design.rows), np.uint64) | np.uint64(1)
        self._key = np.uint64(derive(seed, "band key")[0])

    def keys(self, signatures: Hashes) -> Hashes:
        """Hash each band's values to the 53 bits of a table key.

        Args:
            signatures: (texts, bands * rows) or wider.
        """
        shape = (len(signatures), self.design.bands, self.design.rows)
        banded = signatures[:, : self.design.bands * self.design.rows].reshape(shape)
        keys = np.zeros(shape[:2], np.uint64)
        for row in range(self.design.rows):
            keys += banded[:, :, row] * self._factors[row]
        return finalize(keys, self._key) >> np.uint64(64 - MAX_PREFIX_BITS)


def similarities(resemblances: npt.NDArray[np.float64]) -> list[Score]:
    """Return estimated resemblances as they are published, to four places."""
    return list(map(_published, resemblances.tolist()))


# Estimates are fractions of few values, and most duplicates are exact.
@lru_cache(maxsize=4096)
def _published(resemblance: float) -> Score:
    return Score(similarity=round(resemblance, 4))


def _design(settings: Settings) -> BandDesign:
    if settings.rows:
        return design_rows(settings.rows, settings.threshold, settings.recall, SIGNATURE_VALUES)
    return design_bands(settings.threshold, settings.recall, SIGNATURE_VALUES)
