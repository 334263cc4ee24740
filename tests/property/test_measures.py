"""Measures from counts equal their definitions, pair by pair and document by document."""

from __future__ import annotations

from itertools import combinations
from math import comb, isclose

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stream_dedup.evaluate.join import resembling_pairs
from stream_dedup.evaluate.measures import (
    Intervals,
    components,
    wilson,
)
from stream_dedup.evaluate.reference import (
    ReferenceTruth,
    count_pairs,
    exact_rule,
    with_near_original,
)
from stream_dedup.evaluate.sets import Rows, resemblances, shingle_sets
from stream_dedup.evaluate.truth import GroupTruth, LabelledPair, PairTruth, Report
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.settings import Settings

QUICK = Intervals(resamples=20)
THRESHOLD, ACCEPT = 0.5, 0.4
TEXTS = st.lists(
    st.lists(st.sampled_from("abcdef"), max_size=7).map(" ".join), min_size=1, max_size=14
)


@st.composite
def decisions(draw: st.DrawFn, size: int) -> Rows:
    """Draw decisions as the pipeline makes them: each goes to an earlier original or is one."""
    originals: list[int] = []
    for position in range(size):
        alone = [place for place, original in enumerate(originals) if place == original]
        originals.append(draw(st.sampled_from([*alone, position])))
    return np.array(originals, np.int64)


@st.composite
def decided_groups(draw: st.DrawFn) -> tuple[Rows, Rows]:
    gold = draw(st.lists(st.integers(0, 5), min_size=1, max_size=14))
    return draw(decisions(len(gold))), np.array(gold, np.int64)


@st.composite
def decided_texts(draw: st.DrawFn) -> tuple[list[str], Rows]:
    texts = draw(TEXTS)
    return texts, draw(decisions(len(texts)))


def ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def same(left: float | None, right: float | None) -> bool:
    if left is None or right is None:
        return left is right
    return isclose(left, right, abs_tol=1e-9)


@settings(deadline=None)
@given(decided_groups())
def test_pairs_and_documents_are_counted_as_they_are_defined(given_: tuple[Rows, Rows]) -> None:
    predicted, gold = (column.tolist() for column in given_)

    report = GroupTruth(given_[1]).score(given_[0], QUICK)

    pairs = list(combinations(range(len(gold)), 2))
    both = sum(predicted[a] == predicted[b] and gold[a] == gold[b] for a, b in pairs)
    found = sum(predicted[a] == predicted[b] for a, b in pairs)
    wanted = sum(gold[a] == gold[b] for a, b in pairs)
    assert same(report["pairs"]["precision"], ratio(both, found))
    assert same(report["pairs"]["recall"], ratio(both, wanted))
    assert same(report["pairs"]["f1"], ratio(2 * both, found + wanted))
    sets = [group_sets(predicted, at) == group_sets(gold, at) for at in range(len(gold))]
    assert same(report["documents"]["accuracy"], sum(sets) / len(sets))
    assert report["counts"]["gold_pairs"] == wanted


@settings(deadline=None)
@given(decided_groups())
def test_groups_are_measured_as_they_are_defined(given_: tuple[Rows, Rows]) -> None:
    predicted, gold = (column.tolist() for column in given_)
    count = len(gold)

    groups = GroupTruth(given_[1]).score(given_[0], QUICK)["groups"]

    shared = [len(group_sets(predicted, at) & group_sets(gold, at)) for at in range(count)]
    precision = sum(n / len(group_sets(predicted, at)) for at, n in enumerate(shared)) / count
    recall = sum(n / len(group_sets(gold, at)) for at, n in enumerate(shared)) / count
    assert same(groups["bcubed_precision"], precision)
    assert same(groups["bcubed_recall"], recall)
    assert same(groups["bcubed_f1"], 2 * precision * recall / (precision + recall))
    assert same(groups["ari"], naive_ari(predicted, gold))


def group_sets(groups: list[int], document: int) -> set[int]:
    return {other for other, group in enumerate(groups) if group == groups[document]}


def naive_ari(left: list[int], right: list[int]) -> float:
    """Return the index by its four kinds of pairs (Hubert and Arabie 1985; Steinley 2004)."""
    kinds = {(a, b): 0 for a in (True, False) for b in (True, False)}
    for one, other in combinations(range(len(left)), 2):
        kinds[left[one] == left[other], right[one] == right[other]] += 1
    a, b, c, d = kinds[True, True], kinds[True, False], kinds[False, True], kinds[False, False]
    below = (a + b) * (b + d) + (a + c) * (c + d)
    return 2 * (a * d - b * c) / below if below else 1.0


@settings(deadline=None)
@given(st.integers(1, 20).flatmap(lambda n: st.tuples(st.just(n), edges(n))))
def test_components_are_what_edges_connect(given_: tuple[int, list[tuple[int, int]]]) -> None:
    count, pairs = given_
    ends = np.array(pairs, np.int64).reshape(-1, 2).T

    labels = components(count, ends[0], ends[1]).tolist()

    expected = list(range(count))
    for _ in range(count):
        for a, b in pairs:
            expected[a] = expected[b] = min(expected[a], expected[b])
    assert labels == expected


def edges(count: int) -> st.SearchStrategy[list[tuple[int, int]]]:
    node = st.integers(0, count - 1)
    return st.lists(st.tuples(node, node), max_size=20)


@settings(deadline=None)
@given(decided_texts())
def test_reference_pairs_are_counted_as_they_are_defined(given_: tuple[list[str], Rows]) -> None:
    texts, originals = given_
    sets = shingle_sets(Fingerprinter(Settings(shingle="word:1")), texts)
    exact = all_resemblances(texts)
    pairs = [pair for pair, value in exact.items() if value >= THRESHOLD]
    truth = ReferenceTruth(resembling_pairs(sets, THRESHOLD), sets, ACCEPT)

    report = truth.score(originals, QUICK)

    found = [(a, b) for a, b in pairs if originals[a] == originals[b]]
    alone = originals == np.arange(len(texts))
    counts = report["counts"]
    assert same(report["pairs"]["recall"], ratio(len(found), len(pairs)))
    assert counts["reference_pairs"] == len(pairs)
    assert counts["missed_originals"] == sum(bool(alone[a] and alone[b]) for a, b in pairs)
    assert counts["chains"] == len(pairs) - len(found) - counts["missed_originals"]
    right = [
        exact[min(a, b), max(a, b)] >= ACCEPT for a, b in enumerate(originals.tolist()) if a != b
    ]
    assert same(report["pairs"]["precision"], ratio(sum(right), len(right)))
    near = [
        b for b in range(len(texts)) if any(alone[a] and exact[a, b] >= THRESHOLD for a in range(b))
    ]
    called = sum(bool(not alone[b]) for b in near)
    assert same(report["documents"]["recall"], ratio(called, len(near)))


def all_resemblances(texts: list[str]) -> dict[tuple[int, int], float]:
    """Return the resemblance of every pair of texts, by sets of words."""
    words = [set(text.split()) for text in texts]
    return {
        (a, b): len(words[a] & words[b]) / max(1, len(words[a] | words[b]))
        for a, b in combinations(range(len(texts)), 2)
    }


@settings(deadline=None)
@given(TEXTS)
def test_the_exact_rule_takes_the_earliest_original(texts: list[str]) -> None:
    sets = shingle_sets(Fingerprinter(Settings(shingle="word:1")), texts)
    exact = all_resemblances(texts)

    pairs = resembling_pairs(sets, THRESHOLD)
    rule = exact_rule(pairs).tolist()

    expected: list[int] = []
    for b in range(len(texts)):
        near = [a for a in range(b) if expected[a] == a and exact[a, b] >= THRESHOLD]
        expected.append(near[0] if near else b)
    assert rule == expected
    # What the rule decides has no near original that it missed.
    originals = np.array(rule, np.int64)
    assert not (with_near_original(pairs, originals) & (originals == np.arange(len(texts)))).any()
    assert (count_pairs(pairs, originals).originals == 0).all()


@settings(deadline=None)
@given(decided_texts(), st.data())
def test_a_truth_is_restricted_to_whole_groups(
    given_: tuple[list[str], Rows], data: st.DataObject
) -> None:
    """The scores of the two parts add up to the whole, when decisions do not cross them."""
    texts, _ = given_
    sets = shingle_sets(Fingerprinter(Settings(shingle="word:1")), texts)
    pairs = resembling_pairs(sets, THRESHOLD)
    truth = ReferenceTruth(pairs, sets, ACCEPT)
    labels = truth.connected()
    chosen = data.draw(st.sets(st.sampled_from(sorted(set(labels.tolist())))))
    inside = np.isin(labels, list(chosen))
    rule = exact_rule(pairs)

    def counts(part: Rows) -> Report:
        place = np.searchsorted(part, rule[part])
        return truth.restrict(part).score(place, QUICK)

    parts = [counts(np.flatnonzero(inside)), counts(np.flatnonzero(~inside))]
    whole = truth.score(rule, QUICK)
    for name in ("reference_pairs", "reference_pairs_found", "attached", "chains", "originals"):
        assert sum(part["counts"][name] for part in parts) == whole["counts"][name]


@settings(deadline=None)
@given(decided_groups(), st.data())
def test_every_pair_labelled_gives_the_measures_of_groups(
    given_: tuple[Rows, Rows], data: st.DataObject
) -> None:
    originals, gold = given_
    assume(len(gold) > 1)
    pairs = [
        LabelledPair(a, b, bool(gold[a] == gold[b])) for a, b in combinations(range(len(gold)), 2)
    ]
    data.draw(st.randoms(use_true_random=False)).shuffle(pairs)

    labelled = PairTruth(pairs, len(gold)).score(originals, QUICK)
    grouped = GroupTruth(gold).score(originals, QUICK)

    for name in ("precision", "recall", "f1"):
        assert same(labelled["pairs"][name], grouped["pairs"][name])


@settings(deadline=None)
@given(st.integers(0, 200), st.integers(1, 200))
def test_wilson_holds_the_share(successes: int, trials: int) -> None:
    assume(successes <= trials)

    interval = wilson(successes, trials, 0.95)

    assert interval is not None
    low, high = interval
    assert 0 <= low <= successes / trials <= high <= 1
    # Its ends solve |share - p| = z sqrt(p (1 - p) / n).
    for end in (low, high):
        if 0 < end < 1:
            spread = 1.959963984540054 * (end * (1 - end) / trials) ** 0.5
            assert isclose(abs(successes / trials - end), spread, abs_tol=1e-9)


def test_choose_two_is_what_the_pairs_of_a_large_group_are_counted_by() -> None:
    count = 300_000
    originals = np.zeros(count, np.int64)

    report = GroupTruth(np.zeros(count, np.int64)).score(originals, QUICK)

    assert report["counts"]["gold_pairs"] == comb(count, 2)
    assert report["pairs"]["f1"] == report["groups"]["ari"] == 1.0


def test_resemblances_of_nothing_are_nothing() -> None:
    sets = shingle_sets(Fingerprinter(Settings()), [])
    none = np.zeros(0, np.int64)

    assert resemblances(sets, none, none).shape == (0,)
    assert exact_rule(resembling_pairs(sets, 0.5)).shape == (0,)
