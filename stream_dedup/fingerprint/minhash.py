"""MinHash by one-permutation hashing (Li, Owen, Zhang 2012), densified for the tables.

Each shingle falls into one of 256 bins by its hash; a bin keeps its smallest value. That gives two
things at once:

- the *sketch*, 8 bits of each of the 256 bins with empty bins marked, from which resemblance is
  estimated as matching bins / bins that are not empty in both (ibid., section 3). For documents
  with fewer shingles than bins its error is well below that of 128 classic permutations, because
  bins sample without replacement; ``benchmarks/minhash_error.py`` prints both;
- the *signature*, 128 values (bins joined in pairs) whose empty places borrow from a non-empty one
  chosen at random, the same for every document (Shrivastava 2017, "Optimal densification"), so
  that P[values equal] is the resemblance. Bands of the signature make up the table keys.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stream_dedup.fingerprint.banding import SIGNATURE_VALUES, Banding, similarities
from stream_dedup.fingerprint.hashing import derive
from stream_dedup.settings import Settings
from stream_dedup.text.shingles import Hashes, Shingles, finalize
from stream_dedup.types import Score

BINS = 256

_BIN_BITS = np.uint64(8)
_VALUE_BITS = np.uint64(56)
_EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)

#: Texts with at most this many filled places look all of these through at once; asking the donors
#: of each place in turn takes about as long from there on (measured).
_FEW_FILLED = 48


class MinHash:
    """Fingerprints by MinHash.

    Attributes:
        prefix_bits: bits of each table's key, one entry for each table.
        sketch_bytes: width of a sketch.
        design: the band design.
    """

    sketch_bytes = BINS

    def __init__(self, settings: Settings) -> None:
        self.near_from = settings.near_from
        self._banding = Banding(settings)
        self.design = self._banding.design
        self.prefix_bits = self._banding.prefix_bits
        self._donors = _donor_order(derive(settings.seed.get_secret_value(), "donors")[0])
        self._ranked = _ranked_donors(self._donors)

    def fingerprint(self, shingles: Shingles) -> tuple[Hashes, npt.NDArray[np.uint8]]:
        """Return table keys, (texts, bands) uint64, and sketches, (texts, 256) uint8."""
        bins = self._bins(shingles)
        sketches = _sketch(bins)
        return self._banding.keys(self._signatures(bins)), sketches

    def signatures(self, shingles: Shingles) -> Hashes:
        """Return the signatures, (texts, 128) uint64; a text without shingles has all-ones."""
        return self._densify(_pairs(self._bins(shingles)), SIGNATURE_VALUES)

    def compare(
        self, left: npt.NDArray[np.uint8], right: npt.NDArray[np.uint8]
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        """Estimate the resemblance of sketches, row by row; say which are near."""
        filled = np.count_nonzero(left | right, axis=1)
        matching = np.count_nonzero((left == right) & (left != 0), axis=1)
        scores = matching / np.maximum(filled, 1)
        return scores, scores >= self.near_from

    def scores(self, left: npt.NDArray[np.uint8], right: npt.NDArray[np.uint8]) -> list[Score]:
        """Estimate the resemblance of sketches, row by row."""
        return similarities(self.compare(left, right)[0])

    @staticmethod
    def _bins(shingles: Shingles) -> Hashes:
        """Return the smallest value of each bin, (texts, 256); empty bins are all-ones."""
        counts = np.diff(shingles.starts)
        rows = np.repeat(np.arange(len(counts), dtype=np.int64) * BINS, counts)
        bins = np.full(len(counts) * BINS, _EMPTY)
        values = shingles.hashes & ((np.uint64(1) << _VALUE_BITS) - np.uint64(1))
        np.minimum.at(bins, rows + (shingles.hashes >> _VALUE_BITS).astype(np.int64), values)
        return bins.reshape(-1, BINS)

    def _signatures(self, bins: Hashes) -> Hashes:
        return self._densify(_pairs(bins), self.design.bands * self.design.rows)

    def _densify(self, pairs: Hashes, width: int) -> Hashes:
        """Fill each empty place among the first ``width`` with the value of its first donor.

        Where few places are filled, nearly every donor is empty, so it is faster to rank the filled
        places than to ask the donors one after another. Both find the same donor.
        """
        empty = pairs == _EMPTY
        holes = np.add.reduce(empty, axis=1, dtype=np.uint8)
        few = (holes < SIGNATURE_VALUES) & (holes >= SIGNATURE_VALUES - _FEW_FILLED)
        if few.all():
            return self._borrow_by_rank(pairs, width)
        # A text with nothing to lend keeps its empty places.
        lacking = empty[:, :width] & (holes < SIGNATURE_VALUES)[:, None]
        if not few.any():
            return self._borrow_in_turn(pairs, lacking)
        densified = np.empty((len(pairs), width), np.uint64)
        densified[few] = self._borrow_by_rank(pairs[few], width)
        densified[~few] = self._borrow_in_turn(pairs[~few], lacking[~few])
        return densified

    def _borrow_by_rank(self, pairs: Hashes, width: int) -> Hashes:
        """Take the donor of smallest rank among the filled places of each text, at least one."""
        # In one dimension: it is several times as fast as in two.
        texts, donors = np.divmod(np.flatnonzero(pairs != _EMPTY), SIGNATURE_VALUES)
        counts = np.bincount(texts, minlength=len(pairs))
        firsts = np.cumsum(counts) - counts
        ranked = np.ascontiguousarray(self._ranked[:, :width])
        best = ranked.take(donors[firsts], axis=0)
        for at in range(1, counts.max(initial=0)):
            donor = donors[firsts + np.minimum(at, counts - 1)]
            np.minimum(best, ranked.take(donor, axis=0), out=best)
        chosen = (best & np.uint16(SIGNATURE_VALUES - 1)).astype(np.int64)
        chosen += (np.arange(len(pairs)) * SIGNATURE_VALUES)[:, None]
        borrowed: Hashes = pairs.reshape(-1).take(chosen)
        return borrowed

    def _borrow_in_turn(self, pairs: Hashes, lacking: npt.NDArray[np.bool_]) -> Hashes:
        """Ask the donors of every lacking place one after another, in their fixed order."""
        width = lacking.shape[1]
        # A copy even where a view would do: donors lend what they had before any borrowing.
        densified = pairs[:, :width].copy()
        flat, lenders = densified.reshape(-1), pairs.reshape(-1)
        empty = np.flatnonzero(lacking)
        texts, places = np.divmod(empty, width)
        texts *= SIGNATURE_VALUES
        for donors in self._donors[1:]:
            if not len(empty):
                break
            borrowed = lenders.take(texts + donors.take(places))
            flat[empty] = borrowed
            still = np.flatnonzero(borrowed == _EMPTY)
            empty, texts, places = empty.take(still), texts.take(still), places.take(still)
        return densified


def _pairs(bins: Hashes) -> Hashes:
    return np.minimum(bins[:, ::2], bins[:, 1::2])


def _sketch(bins: Hashes) -> npt.NDArray[np.uint8]:
    """Reduce each bin to 1..255, and an empty one to 0."""
    # No wider than the product needs: a text of a few words takes as long here as a long one.
    low = bins.astype("<u8", copy=False).view("<u2")[:, ::4].astype(np.uint32)
    low *= np.uint32(255)
    low >>= np.uint32(16)
    low += np.uint32(1)
    reduced = low.astype(np.uint8)
    reduced *= bins != _EMPTY
    return reduced


def _donor_order(seed: int) -> npt.NDArray[np.int64]:
    """Return (128, 128): for each place, a column, the places in which order it looks at them.

    A place looks at itself first.
    """
    # Sorting keyed hashes, not a library's shuffle, so that no release of numpy can change it.
    places = np.arange(SIGNATURE_VALUES * SIGNATURE_VALUES, dtype=np.uint64)
    ranks = finalize(places, np.uint64(seed)).reshape(SIGNATURE_VALUES, SIGNATURE_VALUES)
    np.fill_diagonal(ranks, 0)
    return np.ascontiguousarray(np.argsort(ranks, axis=1, kind="stable").T)


def _ranked_donors(order: npt.NDArray[np.int64]) -> npt.NDArray[np.uint16]:
    """Return (128, 128): 128 times a donor's rank for a place, plus the donor; donors are rows.

    The least of these over some donors tells which of them the place looks at first.
    """
    ranks = np.argsort(order, axis=0, kind="stable")
    return (ranks * SIGNATURE_VALUES + np.arange(SIGNATURE_VALUES)[:, None]).astype(np.uint16)
