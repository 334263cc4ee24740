"""Tables find every pair that they promise to find."""

from __future__ import annotations

from math import exp, lgamma

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dedup.errors import SettingsError
from stream_dedup.tables.bands import BandDesign, design_bands, error_rates, find_probability
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


@pytest.mark.parametrize("shape", [(1, 0), (2, 0), (1, 1), (1, 2)])
@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**128 - 1), st.integers(0, 16), st.data())
def test_so_does_every_pair_of_128_bits(
    shape: tuple[int, int], fingerprint: int, hamming: int, data: st.DataObject
) -> None:
    outer, inner = shape
    hamming = min(hamming, 4) if inner else hamming
    bits = data.draw(st.sets(st.integers(0, 127), max_size=hamming))
    near = fingerprint ^ sum(1 << bit for bit in bits)
    pair = np.array([divmod(value, 2**64) for value in (fingerprint, near)], np.uint64)

    permutations = block_permutations(
        hamming, hamming + outer, hamming + inner if inner else 0, bits=128
    )

    assert any(left == right for left, right in (p.prefix(pair) for p in permutations))
    for permutation in permutations:
        permuted = permutation.apply(pair)
        assert permutation.prefix_bits <= 53
        assert permutation.reverse(permuted).tolist() == pair.tolist()
        assert np.bitwise_count(permuted).sum(axis=1).tolist() == [
            value.bit_count() for value in (fingerprint, near)
        ]
        front = permuted[:, 0] >> np.uint64(64 - permutation.prefix_bits)
        assert permutation.prefix(pair).tolist() == front.tolist()


@settings(deadline=None)
@given(st.floats(0.3, 1.0), st.integers(1, 40), st.integers(1, 20))
def test_error_rates_are_the_areas_on_either_side_of_the_threshold(
    threshold: float, bands: int, rows: int
) -> None:
    """Held against the same integrals by the rule of midpoints, and the whole by its formula."""
    design = BandDesign(bands, rows)
    steps = 2_000

    rates = error_rates(threshold, design)

    def area(low: float, high: float) -> float:
        points = (low + (high - low) * (step + 0.5) / steps for step in range(steps))
        return (high - low) * sum(find_probability(point, design) for point in points) / steps

    assert rates.false_area == pytest.approx(area(0.0, threshold), abs=1e-4)
    assert rates.missed_area == pytest.approx(1 - threshold - area(threshold, 1.0), abs=1e-4)
    assert rates.missed_at == 1.0 - find_probability(threshold, design)
    assert 0.0 <= rates.missed_share <= rates.missed_at + 1e-9
    assert 0.0 <= rates.false_share <= find_probability(threshold, design) + 1e-9
    # The integral of (1 - x^r)^b from 0 to 1 is a beta function.
    missed = lgamma(1 + 1 / rows) + lgamma(bands + 1) - lgamma(bands + 1 + 1 / rows)
    whole = rates.false_area + 1 - threshold - rates.missed_area
    assert whole == pytest.approx(1 - exp(missed), abs=1e-9)


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
