"""Fingerprints of batches are what their definitions say, written out in plain Python."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dedup.fingerprint.banding import SIGNATURE_VALUES
from stream_dedup.fingerprint.hashing import derive
from stream_dedup.fingerprint.minhash import BINS, MinHash
from stream_dedup.settings import Settings
from stream_dedup.text.shingles import Shingles, finalize

HASHES = st.lists(st.integers(0, 2**64 - 1), max_size=60)
MASK = (1 << 64) - 1
MINHASH = MinHash(Settings())


def shingles(texts: Sequence[Sequence[int]]) -> Shingles:
    """Return texts whose shingle hashes are these."""
    hashes = np.array([value for text in texts for value in text], np.uint64)
    return Shingles(hashes, np.cumsum([0, *map(len, texts)]))


class TestOnePermutation:
    RANKS = finalize(
        np.arange(SIGNATURE_VALUES**2, dtype=np.uint64), np.uint64(derive("", "donors")[0])
    ).reshape(SIGNATURE_VALUES, SIGNATURE_VALUES)

    def signature(self, hashes: Sequence[int]) -> list[int]:
        """Fill each place from the first place that has a value, in its own keyed order."""
        places: dict[int, int] = {}
        for value in hashes:
            place = (value >> 56) * SIGNATURE_VALUES // BINS
            places[place] = min(places.get(place, MASK), value & ((1 << 56) - 1))
        return [
            places[min(places, key=lambda donor: (donor != place, self.RANKS[place, donor]))]
            if places
            else MASK
            for place in range(SIGNATURE_VALUES)
        ]

    @settings(deadline=None)
    @given(st.lists(HASHES, min_size=1, max_size=5), st.sampled_from([0, 40, 60, 150, 1000]))
    def test_a_signature_is_that_of_the_definition(self, texts: list[list[int]], more: int) -> None:
        """Also beside a text that fills many places, which is densified in another way."""
        drawn = np.random.Generator(np.random.PCG64(more)).integers(0, 2**64, more, np.uint64)
        texts = [*texts, drawn.tolist()]

        signatures = MINHASH.signatures(shingles(texts))

        assert signatures.tolist() == [self.signature(text) for text in texts]
