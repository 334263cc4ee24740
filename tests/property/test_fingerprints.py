"""Fingerprints of batches are what their definitions say, written out in plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dedup.fingerprint.banding import SIGNATURE_VALUES
from stream_dedup.fingerprint.classic import ClassicMinHash
from stream_dedup.fingerprint.frequencies import MOST_DOCUMENTS, Frequencies, Origin
from stream_dedup.fingerprint.fused import Fused
from stream_dedup.fingerprint.hashing import derive
from stream_dedup.fingerprint.minhash import BINS, MinHash
from stream_dedup.fingerprint.simhash import SimHash, simhash
from stream_dedup.fingerprint.weights import Weighting, distinct
from stream_dedup.settings import Settings
from stream_dedup.text.shingles import Shingles, finalize
from stream_dedup.types import Method, Score

#: Some with many repeats, some that differ in their lowest bits only.
SHINGLES = st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 9), st.sampled_from([5 << 40, 7]))
HASHES = st.lists(SHINGLES, max_size=60)
TEXTS = st.lists(HASHES, min_size=1, max_size=6)
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


class TestClassic:
    METHOD = ClassicMinHash(Settings(minhash="classic"))
    FACTORS = derive("", "minhash factors", SIGNATURE_VALUES)
    TERMS = derive("", "minhash terms", SIGNATURE_VALUES)

    def signature(self, hashes: Sequence[int]) -> list[int]:
        return [
            min(((factor * (value >> 32) + term & MASK) >> 32 for value in hashes), default=0)
            for factor, term in zip(self.FACTORS, self.TERMS, strict=True)
        ]

    @settings(deadline=None, max_examples=50)
    @given(TEXTS)
    def test_a_signature_is_that_of_the_definition(self, texts: list[list[int]]) -> None:
        expected = [self.signature(text) for text in texts]

        signatures = self.METHOD.signatures(shingles(texts))
        _, sketches = self.METHOD.fingerprint(shingles(texts))

        assert signatures.tolist() == expected
        assert sketches.tolist() == [[value & 0xFF for value in row] for row in expected]


@settings(deadline=None)
@given(TEXTS)
def test_distinct_shingles_are_those_of_each_text_once(texts: list[list[int]]) -> None:
    found = distinct(shingles(texts))

    parts = np.split(found.hashes, found.starts[1:-1])
    assert [sorted(part.tolist()) for part in parts] == [sorted(set(text)) for text in texts]


def test_distinct_shingles_may_differ_only_in_bits_that_the_fast_sort_does_not_see() -> None:
    """Three values in turn, alike but for the lowest bits, in many texts."""
    text = [8, 9, 10, 8, 9, 10, 2**63, 8]

    found = distinct(shingles([text] * 300))

    assert np.diff(found.starts).tolist() == [4] * 300


def weighted_bits(weights: dict[int, int], bits: int, upper: np.uint64) -> int:
    """Return a SimHash bit by bit; ``upper`` keys the hash that gives the upper 64 of 128."""
    found = 0
    for bit in range(bits):
        ones = 0
        for value, weight in weights.items():
            word = np.array([value], np.uint64)
            word = finalize(word, upper) if bit >= 64 else word
            ones += weight * (int(word[0]) >> bit % 64 & 1)
        found |= (2 * ones > sum(weights.values())) << bit
    return found


class TestSimHash:
    UPPER = np.uint64(derive("", "simhash upper")[0])

    @pytest.mark.parametrize("weights", ["one", "tf"])
    @pytest.mark.parametrize("bits", [64, 128])
    @settings(deadline=None, max_examples=25)
    @given(texts=st.lists(st.lists(SHINGLES, max_size=12), min_size=1, max_size=3))
    def test_is_what_the_definition_says(
        self, weights: str, bits: int, texts: list[list[int]]
    ) -> None:
        method = SimHash(Settings.model_validate({"simhash_bits": bits, "weights": weights}))

        sketches = method.sketches(shingles(texts))

        assert sketches.shape == (len(texts), bits // 8)
        for text, sketch in zip(texts, sketches, strict=True):
            counts = Counter(text if weights == "tf" else set(text))
            expected = weighted_bits(counts, bits, self.UPPER)
            assert int.from_bytes(sketch.tobytes(), "little") == expected

    @settings(deadline=None)
    @given(
        texts=st.lists(
            st.lists(st.tuples(SHINGLES, st.integers(1, 255)), max_size=20), min_size=1, max_size=4
        )
    )
    def test_weights_are_summed_exactly(self, texts: list[list[tuple[int, int]]]) -> None:
        weights = np.array([weight for text in texts for _, weight in text], np.uint8)

        found = simhash(shingles([[value for value, _ in text] for text in texts]), weights)

        for text, value in zip(texts, found.tolist(), strict=True):
            total = Counter[int]()
            for shingle, weight in text:
                total[shingle] += weight
            assert value == weighted_bits(total, 64, self.UPPER)

    @pytest.mark.parametrize("count", [254, 255, 256, 511, 70_001])
    def test_the_largest_weights_of_many_shingles_do_not_overflow(self, count: int) -> None:
        hashes = np.full(count, 0xF0F0_F0F0_F0F0_F0F0, np.uint64)
        hashes[: count // 2] = 0xFFFF_0000_FFFF_0000

        found = simhash(Shingles(hashes, np.array([0, count])), np.full(count, 255, np.uint8))

        # Of an odd number the second kind is in the majority; of an even one a bit needs both.
        agreed = 0xF0F0_0000_F0F0_0000 if count % 2 == 0 else 0xF0F0_F0F0_F0F0_F0F0
        assert found.tolist() == [agreed]


class TestFrequencies:
    def learned(self, texts: Sequence[Sequence[int]], cells: int = 1 << 12) -> Frequencies:
        frequencies = Frequencies(Origin("word:3", 0), cells)
        frequencies.add(distinct(shingles(texts)).hashes, len(texts))
        return frequencies

    @settings(deadline=None)
    @given(TEXTS, st.sampled_from([16, 1 << 12]))
    def test_a_count_is_never_too_small(self, texts: list[list[int]], cells: int) -> None:
        known = Counter(value for text in texts for value in set(text))
        asked = np.array(list(known), np.uint64)

        counts = self.learned(texts, cells).counts(asked).tolist()

        assert all(count >= known[value] for count, value in zip(counts, known, strict=True))

    @settings(deadline=None)
    @given(TEXTS, st.randoms(use_true_random=False))
    def test_documents_in_any_order_and_any_number_of_sittings_give_the_same(
        self, texts: list[list[int]], random: object
    ) -> None:
        parts = Frequencies(Origin("word:3", 0), 1 << 12)
        for text in reversed(texts):
            parts.add(distinct(shingles([text])).hashes, 1)

        assert parts.digest() == self.learned(texts).digest()

    @settings(deadline=None)
    @given(st.integers(1, MOST_DOCUMENTS), st.data())
    def test_a_weight_is_the_logarithm_in_eighths(
        self, documents: int, data: st.DataObject
    ) -> None:
        """2^(w - 1/2) <= ((N + n) / n)^8 < 2^(w + 1/2), squared, in whole numbers."""
        count = data.draw(st.integers(0, documents))
        frequencies = self.learned([[1]])
        frequencies.documents = documents
        frequencies._counts[:] = count

        (weight,) = frequencies.weights(np.array([1], np.uint64)).tolist()

        power = Fraction(documents + max(count, 1), max(count, 1)) ** 16
        assert power >= Fraction(2) ** (2 * weight - 1)
        assert power < Fraction(2) ** (2 * weight + 1)

    def test_a_shingle_weighs_the_more_the_fewer_documents_have_it(self) -> None:
        frequencies = self.learned([[1, 2, 3], [1, 2], [1], [1]])

        weights = frequencies.weights(np.array([1, 2, 3, 4], np.uint64)).tolist()

        # log2(1 + 4 / n) for n = 4, 2, 1, and for one that is not known.
        assert weights == [8, 13, 19, 19]


class TestFused:
    @pytest.mark.parametrize("minhash", ["one-permutation", "classic"])
    @settings(deadline=None, max_examples=25)
    @given(texts=TEXTS)
    def test_is_both_side_by_side(self, minhash: str, texts: list[list[int]]) -> None:
        chosen = Settings.model_validate({"method": "fused", "minhash": minhash})
        first = MinHash(chosen) if minhash == "one-permutation" else ClassicMinHash(chosen)
        fused, second = Fused(chosen, first), SimHash(chosen)
        given_ = shingles(texts)

        keys, sketches = fused.fingerprint(given_)

        parts = first.fingerprint(given_), second.fingerprint(given_)
        assert np.array_equal(keys, np.hstack([part[0] for part in parts]))
        assert np.array_equal(sketches, np.hstack([part[1] for part in parts]))
        assert fused.prefix_bits == first.prefix_bits + second.prefix_bits

    @settings(deadline=None)
    @given(
        st.integers(0, 256),
        st.integers(0, 8),
        st.sampled_from([0.0, 0.3, 0.6, 0.8, 1.0]),
        st.integers(0, 6),
    )
    def test_near_is_alike_or_close_and_not_too_unlike(
        self, differing: int, distance: int, floor: float, hamming: int
    ) -> None:
        chosen = Settings(method=Method.FUSED, fused_resemblance=floor, hamming=hamming)
        method = Fused(chosen, MinHash(chosen))
        left, right = np.ones((2, 1, method.sketch_bytes), np.uint8)
        right[0, :differing] = 2
        right[0, BINS] ^= (1 << distance) - 1 if distance else 0

        scores, near = method.compare(left, right)

        resemblance = (BINS - differing) / BINS
        assert scores.tolist() == [resemblance]
        assert method.scores(left, right) == [Score(round(resemblance, 4), distance)]
        assert near.tolist() == [
            resemblance >= 0.8 or (distance <= hamming and resemblance >= floor)
        ]


def test_tfidf_weights_are_those_of_the_file(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("learned") / "some.freq"
    origin = Origin("word:3", derive("", "frequencies")[0])
    frequencies = Frequencies(origin, 1 << 12)
    frequencies.add(np.array([1, 2, 1], np.uint64), 2)
    frequencies.write(path)

    weighted = Weighting(Settings(weights="tfidf", frequencies_file=path)).weigh(
        shingles([[1, 2, 1], [3]])
    )

    assert weighted.weights is not None
    # As often as it occurs, so each occurrence weighs the same.
    assert weighted.weights.tolist() == [8, 13, 8, 13]
