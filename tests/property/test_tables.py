"""Tables find every pair that they promise to find."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dedup.errors import SettingsError
from stream_dedup.tables.bands import BandDesign, design_bands, find_probability
from stream_dedup.tables.blocks import block_permutations

FINGERPRINTS = st.integers(0, 2**64 - 1)


@settings(deadline=None)
@given(st.lists(FINGERPRINTS, min_size=1, max_size=20), st.integers(0, 8), st.integers(1, 3))
def test_reverse_undoes_apply(fingerprints: list[int], hamming: int, extra: int) -> None:
    array = np.array(fingerprints, np.uint64)

    for permutation in block_permutations(hamming, hamming + extra):
        permuted = permutation.apply(array)

        assert np.bitwise_count(permuted).tolist() == np.bitwise_count(array).tolist()
        assert permutation.reverse(permuted).tolist() == fingerprints


@settings(deadline=None)
@given(FINGERPRINTS, st.integers(0, 8), st.data())
def test_a_prefix_is_the_front_of_the_permuted_bits(
    fingerprint: int, hamming: int, data: st.DataObject
) -> None:
    permutation = data.draw(st.sampled_from(block_permutations(hamming, hamming + 2)))
    array = np.array([fingerprint], np.uint64)

    permuted = f"{permutation.apply(array)[0]:064b}"

    assert int(permuted[: permutation.prefix_bits], 2) == permutation.prefix(array)[0]


@pytest.mark.parametrize("extra", [1, 2, 3])
@settings(deadline=None, max_examples=150)
@given(FINGERPRINTS, st.integers(0, 8), st.data())
def test_every_pair_within_the_distance_shares_a_prefix(
    extra: int, fingerprint: int, hamming: int, data: st.DataObject
) -> None:
    bits = data.draw(st.sets(st.integers(0, 63), max_size=hamming))
    near = fingerprint ^ sum(1 << bit for bit in bits)
    pair = np.array([fingerprint, near], np.uint64)

    prefixes = [p.prefix(pair) for p in block_permutations(hamming, hamming + extra)]

    assert any(left == right for left, right in prefixes)


@pytest.mark.parametrize("shape", [(1, 1), (1, 2), (2, 1), (2, 2)])
@settings(deadline=None, max_examples=100)
@given(FINGERPRINTS, st.integers(0, 5), st.data())
def test_so_does_every_pair_in_a_design_of_two_levels(
    shape: tuple[int, int], fingerprint: int, hamming: int, data: st.DataObject
) -> None:
    bits = data.draw(st.sets(st.integers(0, 63), max_size=hamming))
    near = fingerprint ^ sum(1 << bit for bit in bits)
    pair = np.array([fingerprint, near], np.uint64)

    permutations = block_permutations(hamming, hamming + shape[0], hamming + shape[1])

    assert any(left == right for left, right in (p.prefix(pair) for p in permutations))
    for permutation in permutations:
        permuted = permutation.apply(pair)
        assert permutation.reverse(permuted).tolist() == pair.tolist()
        assert np.bitwise_count(permuted).tolist() == np.bitwise_count(pair).tolist()


@given(st.floats(0.3, 1.0), st.floats(0.5, 0.9999), st.integers(1, 256))
def test_a_design_reaches_the_recall_and_no_longer_band_would(
    threshold: float, recall: float, values: int
) -> None:
    def best(rows: int) -> float:
        return find_probability(threshold, BandDesign(values // rows, rows))

    try:
        design = design_bands(threshold, recall, values)
    except SettingsError:
        assert best(1) < recall
        return
    fewer = BandDesign(design.bands - 1, design.rows)
    assert find_probability(threshold, design) >= recall > find_probability(threshold, fewer)
    assert all(best(rows) < recall for rows in range(design.rows + 1, values + 1))
