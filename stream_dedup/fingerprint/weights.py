"""How much each shingle counts in a SimHash (Manku, Jain, Das Sarma 2007, section 2).

- ``one``: every distinct shingle once;
- ``tf``: as often as it occurs;
- ``tfidf``: as often as it occurs, times its inverse document frequency, a whole number of eighths
  of a bit (``frequencies``). Whole numbers are summed exactly, in any order, on any machine.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stream_dedup.fingerprint.hashing import required_frequencies
from stream_dedup.runs import begins_of_runs
from stream_dedup.settings import Settings
from stream_dedup.text.shingles import Hashes, Offsets, Shingles


class Weighted(NamedTuple):
    """Shingles of a batch with their weights.

    Attributes:
        shingles: the shingles.
        weights: (shingles,) uint8, 1 to 255; None where each has the weight 1.
    """

    shingles: Shingles
    weights: npt.NDArray[np.uint8] | None = None


class Weighting:
    """Weighs shingles as the setting ``weights`` says."""

    def __init__(self, settings: Settings) -> None:
        """Read the document frequencies if they are needed.

        Raises:
            SettingsError: they cannot be used.
        """
        self._distinct = settings.weights == "one"
        self._frequencies = required_frequencies(settings) if settings.weights == "tfidf" else None

    def weigh(self, shingles: Shingles) -> Weighted:
        """Weigh the shingles of a batch."""
        if self._distinct:
            return Weighted(distinct(shingles))
        if self._frequencies is not None:
            return Weighted(shingles, self._frequencies.weights(shingles.hashes))
        return Weighted(shingles)


def distinct(shingles: Shingles) -> Shingles:
    """Return each text's shingles without repeats, in another order."""
    counts = np.diff(shingles.starts)
    texts = np.repeat(np.arange(len(counts)), counts)
    hashes = shingles.hashes[_grouped(shingles.hashes, texts, len(counts))]
    first = begins_of_runs(hashes, texts)
    kept = np.bincount(texts[first], minlength=len(counts))
    return Shingles(hashes[first], np.concatenate([[0], np.cumsum(kept)]))


def _grouped(hashes: Hashes, texts: Offsets, count: int) -> Offsets:
    """Return an order that keeps the texts' and puts equal hashes of a text side by side."""
    # Sorting single words, the text's number above what it leaves of the hash, takes a third of the
    # time of a sort by two keys. It will do unless two hashes differ only in the bits cut off.
    number_bits = np.uint64(count.bit_length())
    words = (texts.astype(np.uint64) << (np.uint64(64) - number_bits)) | (hashes >> number_bits)
    order = np.argsort(words)
    words, sorted_hashes = words[order], hashes[order]
    if ((words[1:] == words[:-1]) & (sorted_hashes[1:] != sorted_hashes[:-1])).any():
        return np.lexsort((hashes, texts))
    return order
