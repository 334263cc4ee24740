"""Block permutations and band designs by example."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest

from stream_dedup.errors import SettingsError
from stream_dedup.fingerprint.banding import SIGNATURE_VALUES
from stream_dedup.fingerprint.minhash import MinHash
from stream_dedup.fingerprint.simhash import SimHash
from stream_dedup.settings import Settings
from stream_dedup.tables.bands import BandDesign, design_bands, find_probability
from stream_dedup.tables.blocks import MAX_PREFIX_BITS, Permutation, block_permutations


class TestPermutation:
    def test_works_as_in_the_example(self) -> None:
        """a b c d with blocks 1 and 3 chosen is b d a c, and its prefix b d."""
        permutation = Permutation([0, 16, 32, 48, 64], (1, 3))
        abcd = np.array([0xAAAA_BBBB_CCCC_DDDD], np.uint64)

        permuted = permutation.apply(abcd)

        assert f"{permuted[0]:016X}" == "BBBBDDDDAAAACCCC"
        assert f"{permutation.prefix(abcd)[0]:X}" == "BBBBDDDD"
        assert permutation.prefix_bits == 32
        assert permutation.reverse(permuted).tolist() == abcd.tolist()

    def test_a_prefix_fits_into_a_double(self) -> None:
        (permutation,) = block_permutations(0, 1)
        fingerprint = np.array([0xFFFF_FFFF_FFFF_FFFF], np.uint64)

        assert permutation.prefix_bits == MAX_PREFIX_BITS == 53
        assert float(permutation.prefix(fingerprint)[0]) == 2**53 - 1

    @pytest.mark.parametrize("hamming", range(9))
    def test_there_is_a_table_for_every_choice_of_blocks(self, hamming: int) -> None:
        permutations = block_permutations(hamming, hamming + 2)

        assert len(permutations) == comb(hamming + 2, hamming)
        low, high = 2 * (64 // (hamming + 2)), 2 * (64 // (hamming + 2) + 1)
        assert {min(low, 53) <= p.prefix_bits <= high for p in permutations} == {True}

    def test_too_few_blocks_are_refused(self) -> None:
        with pytest.raises(ValueError, match="use at least 4"):
            block_permutations(3, 3)


class TestBands:
    @pytest.mark.parametrize(
        ("threshold", "recall", "design"),
        [(0.8, 0.99, (16, 6)), (0.5, 0.95, (23, 3)), (0.95, 0.99, (8, 16)), (1.0, 0.99, (1, 128))],
    )
    def test_the_design_is_the_most_selective_that_finds_enough(
        self, threshold: float, recall: float, design: tuple[int, int]
    ) -> None:
        assert design_bands(threshold, recall, 128) == design

    @pytest.mark.parametrize(
        ("resemblance", "design", "probability"),
        [
            (0.8, (16, 6), 0.9923),
            (0.8, (20, 6), 0.9977),
            (0.8, (14, 8), 0.9235),
            (0.8, (8, 16), 0.2042),
            (0.0, (16, 6), 0.0),
            (1.0, (16, 6), 1.0),
        ],
    )
    def test_the_probability_of_being_found_is_that_of_the_book(
        self, resemblance: float, design: tuple[int, int], probability: float
    ) -> None:
        assert find_probability(resemblance, BandDesign(*design)) == pytest.approx(
            probability, abs=5e-5
        )

    def test_a_recall_out_of_reach_is_refused_with_a_way_out(self) -> None:
        with pytest.raises(SettingsError, match=r"99\.90%.*0\.01\. Lower recall"):
            design_bands(0.01, 0.999, 128)

    def test_every_setting_in_range_has_a_design(self) -> None:
        hardest = MinHash(Settings(threshold=0.3, recall=0.9999))

        assert find_probability(0.3, hardest.design) >= 0.9999
        assert hardest.design.bands * hardest.design.rows <= SIGNATURE_VALUES


def test_the_methods_have_the_tables_that_the_settings_ask_for() -> None:
    assert sorted(SimHash(Settings(hamming=3)).prefix_bits) == [25] * 4 + [26] * 6
    assert MinHash(Settings()).prefix_bits == [53] * 16
