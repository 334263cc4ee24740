"""The exact join finds what brute force finds."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dedup.evaluate import join
from stream_dedup.evaluate.join import Pairs, resembling_pairs
from stream_dedup.evaluate.sets import ShingleSets, first_equals, resemblances, shingle_sets
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.settings import Settings

THRESHOLDS = st.sampled_from([0.05, 0.1, 0.3, 0.5, 0.6, 2 / 3, 0.75, 0.8, 0.9, 0.95, 1.0])
WORDS = st.sampled_from(["a", "b", "c", "d", "e", "f", "漢", "字", "!", " "])
TEXTS = st.lists(st.lists(WORDS, max_size=12).map(" ".join), max_size=25)
SETTINGS = st.sampled_from(["word:1", "word:2", "word:3", "char:2", "char:3"])


def as_sets(texts: list[str], shingle: str) -> tuple[ShingleSets, list[set[int]]]:
    """Return the sets, and the same as Python sets."""
    sets = shingle_sets(Fingerprinter(Settings(shingle=shingle)), texts)
    bounds = sets.starts.tolist()
    plain = [set(sets.shingles[a:b].tolist()) for a, b in pairwise(bounds)]
    return sets, plain


def brute_force(plain: list[set[int]], threshold: float) -> dict[tuple[int, int], float]:
    """Compare the first document of every set with all others."""
    firsts = [place for place, one in enumerate(plain) if one and one not in plain[:place]]
    exact = {
        (left, right): len(plain[left] & plain[right]) / len(plain[left] | plain[right])
        for left, right in combinations(firsts, 2)
    }
    return {pair: value for pair, value in exact.items() if value >= threshold}


def as_dict(pairs: Pairs) -> dict[tuple[int, int], float]:
    columns = (pairs.earlier.tolist(), pairs.later.tolist(), pairs.resemblance.tolist())
    return {(left, right): exact for left, right, exact in zip(*columns, strict=True)}


@settings(deadline=None)
@given(TEXTS, SETTINGS, THRESHOLDS)
def test_the_join_equals_brute_force(texts: list[str], shingle: str, threshold: float) -> None:
    sets, plain = as_sets(texts, shingle)

    pairs = resembling_pairs(sets, threshold)

    assert as_dict(pairs) == brute_force(plain, threshold)
    assert list(as_dict(pairs)) == sorted(as_dict(pairs))


@settings(deadline=None)
@given(TEXTS, THRESHOLDS)
def test_pairs_that_are_looked_at_in_many_parts_are_the_same(
    texts: list[str], threshold: float
) -> None:
    sets, plain = as_sets(texts, "word:1")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(join, "_EVENTS", 1)
        pairs = resembling_pairs(sets, threshold)

    assert as_dict(pairs) == brute_force(plain, threshold)


@settings(deadline=None)
@given(TEXTS, SETTINGS)
def test_equal_sets_are_led_by_the_first(texts: list[str], shingle: str) -> None:
    sets, plain = as_sets(texts, shingle)

    leaders = first_equals(sets).tolist()

    assert leaders == [plain.index(one) if one else -1 for one in plain]


@settings(deadline=None)
@given(TEXTS)
def test_resemblance_is_shared_of_all_shingles(texts: list[str]) -> None:
    sets, plain = as_sets(texts, "word:2")
    ends = np.array([(a, b) for a in range(len(plain)) for b in range(len(plain))], np.int64)
    left, right = ends.reshape(-1, 2)[::-1].T

    exact = resemblances(sets, left, right).tolist()

    assert exact == [
        len(plain[a] & plain[b]) / max(1, len(plain[a] | plain[b]))
        for a, b in zip(left.tolist(), right.tolist(), strict=True)
    ]


def test_a_text_without_a_token_resembles_only_an_equal_one() -> None:
    sets, plain = as_sets(["!!!", "???", "!!!", "", " "], "word:3")

    assert first_equals(sets).tolist() == [0, 1, 0, -1, -1]
    assert [len(one) for one in plain] == [1, 1, 1, 0, 0]
    assert not len(resembling_pairs(sets, 0.05).earlier)
