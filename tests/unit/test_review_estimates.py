"""Precision and recall from labelled pairs: against populations whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from stream_dedup.evaluate.measures import wilson
from stream_dedup.review.agreement import agreement
from stream_dedup.review.estimates import Asked, Count, by_gain, estimate, sizes

#: Least score, pairs and share of duplicates of each stratum, taken and left.
TAKEN = [(0.8, 800, 0.6), (0.825, 900, 0.75), (0.85, 1500, 0.9), (0.9, 2500, 0.98), (0.95, 4000, 1)]
LEFT = [(0.5, 6000, 0.02), (0.6, 2500, 0.1), (0.7, 700, 0.25), (0.75, 500, 0.45)]
ORIGINALS = 40_000


class Population:
    """Pairs whose labels are known, drawn at random from the shares above."""

    def __init__(self, generator: np.random.Generator) -> None:
        self.taken = [generator.random(size) < share for _, size, share in TAKEN]
        stratum = np.repeat(np.arange(len(LEFT)), [size for _, size, _ in LEFT])
        rest = np.full(ORIGINALS - len(stratum), -1)
        self.stratum = generator.permutation(np.concatenate([stratum, rest]))
        shares = np.array([*(share for _, _, share in LEFT), 0.0])
        self.left = generator.random(ORIGINALS) < shares[self.stratum]
        found = sum(int(one.sum()) for one in self.taken)
        self.precision = found / sum(len(one) for one in self.taken)
        self.recall = found / (found + int(self.left.sum()))

    def label(self, generator: np.random.Generator, each: int, asked: int) -> list[Count]:
        """Label ``each`` pairs of every stratum, of those left among ``asked`` originals."""
        counts = []
        for (low, size, _), labels in zip(TAKEN, self.taken, strict=True):
            drawn = generator.choice(labels, each, replace=False)
            counts.append(Count(True, low, size, each, int(drawn.sum()), each))
        chosen = generator.permutation(ORIGINALS)[:asked]
        for place, (low, _, _) in enumerate(LEFT):
            found = chosen[self.stratum[chosen] == place]
            drawn = self.left[found[:each]]
            counts.append(Count(False, low, len(found), len(drawn), int(drawn.sum()), len(drawn)))
        return counts


@pytest.mark.parametrize(("each", "asked"), [(10, 2_000), (10, ORIGINALS), (30, 2_000)])
def test_intervals_cover_the_truth_about_as_often_as_they_say(each: int, asked: int) -> None:
    generator = np.random.default_rng(each + asked)
    covered = np.zeros(2)
    runs = 300
    for _ in range(runs):
        population = Population(generator)
        counts = population.label(generator, each, asked)
        (found,) = estimate(counts, Asked(ORIGINALS, asked), 0.8, [0.8])
        covered += [
            found.precision.low <= population.precision <= found.precision.high,
            found.recall.low <= population.recall <= found.recall.high,
        ]

    # 95 % are wanted; the standard error of these shares is 1.3 %.
    assert (covered / runs >= 0.9).all()


def test_labelling_by_gain_gives_narrower_intervals_than_labelling_evenly() -> None:
    generator = np.random.default_rng(1)
    population = Population(generator)
    asked = Asked(ORIGINALS, ORIGINALS)
    labels = [*population.taken]
    labels += [population.left[population.stratum == place] for place in range(len(LEFT))]
    lows = [(True, low) for low, _, _ in TAKEN] + [(False, low) for low, _, _ in LEFT]
    given = [0] * len(labels)

    def counted() -> list[Count]:
        return [
            Count(taken, low, len(all_), count, int(all_[:count].sum()), count)
            for (taken, low), all_, count in zip(lows, labels, given, strict=True)
        ]

    for _ in range(270):
        given[by_gain(counted(), asked, 0.8)[0]] += 1
    (chosen,) = estimate(counted(), asked, 0.8, [0.8])
    given[:] = [30] * len(labels)
    (even,) = estimate(counted(), asked, 0.8, [0.8])

    assert chosen.recall.low <= population.recall <= chosen.recall.high
    width = [one.precision.high - one.precision.low for one in (chosen, even)]
    width = [
        w + one.recall.high - one.recall.low for w, one in zip(width, (chosen, even), strict=True)
    ]
    assert width[0] < width[1]


def test_an_estimate_is_the_weighted_mean_of_its_strata() -> None:
    counts = [
        Count(True, 0.8, 100, 10, 6, 10),
        Count(True, 0.9, 300, 10, 9, 10),
        Count(False, 0.7, 20, 10, 5, 10),
    ]

    low, now, high = estimate(counts, Asked(1000, 100), 0.8, [0.7, 0.8, 0.9])

    assert now.duplicates == 400
    assert now.precision.value == pytest.approx((60 + 270) / 400)
    # The 20 found for a tenth of the originals stand for 200, half of them duplicates.
    assert now.recall.value == pytest.approx(330 / 430)
    assert (low.duplicates, low.recall.value) == (600, 1.0)
    assert low.precision.value == pytest.approx(430 / 600)
    assert high.duplicates == 300
    assert high.precision.value == pytest.approx(0.9)
    assert high.recall.value == pytest.approx(270 / 430)


def test_one_stratum_has_the_interval_of_wilson() -> None:
    counts = [Count(True, 0.8, 10**9, 20, 17, 20)]

    (found,) = estimate(counts, Asked(0, 0), 0.8, [0.8])

    assert found.precision[1:] == pytest.approx(wilson(17, 20, 0.95), abs=1e-6)


def test_what_is_labelled_in_full_is_known() -> None:
    counts = [Count(True, 0.8, 20, 20, 17, 20), Count(False, 0.7, 10, 10, 3, 10)]

    (found,) = estimate(counts, Asked(50, 50), 0.8, [0.8])

    assert found.precision == pytest.approx((0.85, 0.85, 0.85))
    assert found.recall == pytest.approx((0.85, 0.85, 0.85))


def test_without_labels_anything_is_possible() -> None:
    counts = [Count(True, 0.8, 20, 0, 0, 0), Count(False, 0.7, 10, 0, 0, 0)]

    (found,) = estimate(counts, Asked(50, 50), 0.8, [0.8])

    assert found.precision[1:] == (0.0, 1.0)
    assert found.recall.low == 0.0
    assert found.recall.high == 1.0


def test_pairs_that_the_tables_lost_are_lost_at_every_threshold() -> None:
    counts = [Count(True, 0.8, 100, 10, 10, 10), Count(False, 0.8, 100, 10, 10, 10)]

    found = estimate(counts, Asked(500, 500), 0.8, [0.7, 0.8])

    assert [one.recall.value for one in found] == [0.5, 0.5]
    assert [one.duplicates for one in found] == [100, 100]


def test_nothing_is_estimated_of_nothing() -> None:
    (found,) = estimate([], Asked(0, 0), 0.8, [0.8])

    assert found.precision.value is None
    assert found.recall.value is None
    assert by_gain([], Asked(0, 0), 0.8) == []


def test_each_stratum_is_begun_from_the_threshold_outwards() -> None:
    counts = [
        Count(True, 0.95, 1000, 0, 0, 0),
        Count(True, 0.8, 10, 1, 1, 1),
        Count(False, 0.75, 10, 0, 0, 0),
        Count(True, 0.85, 100_000, 2, 1, 2),
    ]

    assert by_gain(counts, Asked(100, 100), 0.8) == [1, 2, 0, 3]


def test_sizes_of_a_sample_are_scaled_up() -> None:
    counts = [Count(True, 0.8, 7, 0, 0, 0), Count(False, 0.7, 3, 0, 0, 0)]

    assert sizes(counts, Asked(5000, 1000)).tolist() == [7.0, 15.0]


class TestAgreement:
    """Cohen's kappa."""

    def test_equals_the_example_of_the_textbook(self) -> None:
        # Fleiss, Levin and Paik, "Statistical methods for rates and proportions", 3rd ed., section
        # 18.1: kappa .68 with a standard error of .087 for these 100 diagnoses by two raters.
        found = agreement(np.array([[75, 1, 4], [5, 4, 1], [0, 0, 10]]))

        assert found.pairs == 100
        assert found.same == pytest.approx(0.89)
        assert found.kappa == pytest.approx(0.6765, abs=1e-4)
        assert found.interval == pytest.approx(
            (0.676 - 1.96 * 0.087, 0.676 + 1.96 * 0.087), abs=0.003
        )

    def test_equals_an_example_worked_by_hand(self) -> None:
        # o = 35 / 50, e = .5 * .6 + .5 * .4.
        assert agreement(np.array([[20, 5], [10, 15]])).kappa == pytest.approx(0.4)

    def test_is_0_where_labels_are_independent(self) -> None:
        assert agreement(np.array([[9, 21], [21, 49]])).kappa == pytest.approx(0)

    def test_is_1_where_labels_are_equal(self) -> None:
        assert agreement(np.array([[5, 0], [0, 3]]))[2:] == (1.0, (1.0, 1.0))

    def test_says_nothing_for_one_label_or_no_pair(self) -> None:
        assert agreement(np.array([[3, 2], [0, 0]]))[1:] == (0.6, None, None)
        assert agreement(np.array([[5, 0], [0, 0]]))[1:] == (1.0, None, None)
        assert agreement(np.zeros((3, 3), np.int64)) == (0, None, None, None)

    def test_interval_covers_the_truth_about_as_often_as_it_says(self) -> None:
        generator = np.random.default_rng(3)
        cells = np.array([0.4, 0.1, 0.15, 0.35])
        truth = agreement((cells.reshape(2, 2) * 10**6).astype(np.int64)).kappa
        assert truth is not None
        hits = 0
        for _ in range(1000):
            found = agreement(generator.multinomial(60, cells).reshape(2, 2))
            assert found.interval is not None
            hits += found.interval[0] <= truth <= found.interval[1]

        assert 0.92 <= hits / 1000 <= 0.98
