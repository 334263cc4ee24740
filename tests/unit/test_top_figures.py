"""Figures of the live view, against values computed by hand."""

from __future__ import annotations

import math

import pytest

from stream_dedup.top.figures import Partition, figures_of
from stream_dedup.top.monitor import Monitor
from stream_dedup.top.scrape import Change, Quantile, Scrape, quantile
from stream_dedup.top.sources import Look
from tests.models.exposition import AFTER, BEFORE


def scrape(at: float, **samples: float) -> Scrape:
    """Make a scrape of counters without labels."""
    return Scrape.of(at, [(f"stream_dedup_{name}", {}, value) for name, value in samples.items()])


@pytest.fixture(scope="module")
def change() -> Change:
    return Change([(Scrape.parse(1000.0, BEFORE), Scrape.parse(1010.0, AFTER))])


class TestChange:
    def test_a_rate_is_over_the_time_between(self, change: Change) -> None:
        # (1600 - 1000) + (700 - 500) + (195 - 0) in 10 s; the last series is new.
        assert change.rate("documents_total") == pytest.approx(99.5)
        assert change.seconds == 10.0

    def test_labels_choose(self, change: Change) -> None:
        assert change.increase("documents_total", status="original") == 600
        assert change.increase("documents_total", status="none such") is None

    def test_what_nobody_tells_is_none(self, change: Change) -> None:
        assert change.rate("absent_total") is None
        assert change.sum("absent") is None
        assert change.largest("absent") is None
        assert change.slope("absent") is None
        assert change.quantile("absent", 0.5) is None
        assert change.increases("absent_total", "kind") == {}

    def test_other_programs_metrics_are_left(self, change: Change) -> None:
        assert "other_total" not in Scrape.parse(0.0, AFTER).samples

    def test_after_a_restart_all_that_was_counted_is_new(self) -> None:
        before = scrape(0.0, documents_total=1000, sweeps_total=1)
        after = scrape(10.0, documents_total=40, sweeps_total=2)

        change = Change([(before, after)])

        assert change.increase("documents_total") == 40
        assert change.increase("sweeps_total") == 2

    def test_a_gauge_that_falls_is_no_restart(self) -> None:
        before = scrape(0.0, consumer_lag_records=9, documents_total=10)
        after = scrape(10.0, consumer_lag_records=3, documents_total=15)

        change = Change([(before, after)])

        assert change.increase("documents_total") == 5
        assert change.slope("consumer_lag_records") == pytest.approx(-0.6)

    def test_endpoints_add_up_each_over_its_own_time(self) -> None:
        change = Change(
            [
                (scrape(0.0, documents_total=0), scrape(10.0, documents_total=100)),
                (scrape(5.0, documents_total=50), scrape(10.0, documents_total=150)),
                (None, scrape(10.0, documents_total=1_000_000)),
            ]
        )

        assert change.rate("documents_total") == pytest.approx(10 + 20)
        assert change.increase("documents_total") == 200
        assert change.sum("documents_total") == 1_000_250

    def test_no_time_between_is_no_change(self) -> None:
        assert (
            Change([(scrape(5.0, documents_total=1), scrape(5.0, documents_total=2))]).rate(
                "documents_total"
            )
            is None
        )


class TestQuantile:
    # 50 values up to 0.1, 48 up to 1, 2 beyond.
    buckets = ((0.1, 50.0), (1.0, 98.0), (math.inf, 100.0))

    def test_is_interpolated_in_its_bucket(self) -> None:
        found = quantile(0.74, self.buckets)

        # The 24th of the 48 between 0.1 and 1.
        assert found is not None
        assert found.value == pytest.approx(0.1 + 0.9 * 24 / 48)
        assert not found.is_beyond

    def test_the_first_bucket_begins_at_0(self) -> None:
        assert quantile(0.25, self.buckets) == Quantile(0.05, is_beyond=False)

    def test_the_last_bucket_has_no_end(self) -> None:
        assert quantile(0.99, self.buckets) == Quantile(1.0, is_beyond=True)

    def test_an_empty_bucket_is_passed(self) -> None:
        found = quantile(0.5, [(1.0, 0.0), (2.0, 0.0), (4.0, 10.0), (math.inf, 10.0)])

        assert found == Quantile(3.0, is_beyond=False)

    @pytest.mark.parametrize("buckets", [[], [(1.0, 0.0), (math.inf, 0.0)]])
    def test_of_nothing_is_none(self, buckets: list[tuple[float, float]]) -> None:
        assert quantile(0.5, buckets) is None


class TestFigures:
    def test_documents(self, change: Change) -> None:
        documents = figures_of(change).documents

        assert documents.per_second == pytest.approx(99.5)
        assert documents.dead_letters_per_second == pytest.approx(0.5)
        assert documents.shares == pytest.approx(
            {
                "original": 0.6,
                "near_duplicate": 0.2,
                "exact_duplicate": 0.195,
                "dead_letter": 0.005,
            }
        )

    def test_lag(self, change: Change) -> None:
        lag = figures_of(change).lag

        assert lag.records == 500
        assert [(one.partition, one.records) for one in lag.partitions] == [
            ("0", 400),
            ("10", 100),
            ("2", 0),
        ]
        # 500 fewer in 10 s.
        assert lag.per_second == pytest.approx(-50)
        assert lag.drained_in == pytest.approx(10)

    def test_a_partition_that_moved_is_where_it_has_a_lag(self) -> None:
        labels = {"topic": "documents", "partition": "3"}
        left = Scrape.of(10.0, [("stream_dedup_consumer_lag_records", labels, 0.0)])
        taken = Scrape.of(10.0, [("stream_dedup_consumer_lag_records", labels, 7.0)])

        lag = figures_of(Change([(None, left), (None, taken)])).lag

        assert lag.partitions == [Partition("documents", "3", 7.0)]
        assert lag.records == 7

    @pytest.mark.parametrize(
        ("before", "after", "drained_in"),
        [(100, 100, None), (100, 200, None), (100_000, 99_999, None), (100, 50, 10.0), (5, 0, 0.0)],
    )
    def test_a_lag_is_drained_if_it_shrinks(
        self, before: float, after: float, drained_in: float | None
    ) -> None:
        pair = (scrape(0, consumer_lag_records=before), scrape(10, consumer_lag_records=after))

        assert figures_of(Change([pair])).lag.drained_in == drained_in

    def test_latencies(self, change: Change) -> None:
        figures = figures_of(change)

        # 50 decisions up to 1 ms, 50 up to 10 ms: the 99th is the 49th of the second 50.
        assert figures.decision.p50 == Quantile(0.001, is_beyond=False)
        assert figures.decision.p99 is not None
        assert figures.decision.p99.value == pytest.approx(0.001 + 0.009 * 49 / 50)
        assert figures.end_to_end.p99 == Quantile(1.0, is_beyond=True)

    def test_stages(self, change: Change) -> None:
        assert figures_of(change).stages == pytest.approx({"decide": 0.75, "publish": 0.25})

    def test_index(self, change: Change) -> None:
        index = figures_of(change).index

        assert (index.originals, index.planned) == (500_000, 1_000_000)
        # 600 came and 100 were swept in 10 s.
        assert index.per_second == pytest.approx(50)
        assert index.full_in == pytest.approx(10_000)
        assert (index.entries, index.tables) == (1_500_000, 2)
        assert (index.fullest_key, index.mean_key) == (1204, 3.25)
        assert (index.memory_used, index.memory_limit) == (768 * 2**20, 2**30)
        assert (index.memory_planned, index.fullest_node) == (1536 * 2**20, 0.75)

    def test_matching(self, change: Change) -> None:
        matching = figures_of(change).matching

        assert matching.candidates == pytest.approx(1.0)
        assert matching.planned_candidates == 0.8
        assert matching.capped == pytest.approx(0.01)
        assert matching.accepted == pytest.approx(0.25)

    def test_troubles(self, change: Change) -> None:
        troubles = figures_of(change).troubles

        assert list(troubles) == ["aborts", "Redis errors", "restarts"]
        assert (troubles["aborts"].lately, troubles["aborts"].in_all) == (1, 4)
        assert (troubles["Redis errors"].lately, troubles["Redis errors"].in_all) == (2, 7)

    def test_state(self, change: Change) -> None:
        state = figures_of(change).state

        assert state.ready is True
        assert (state.workers, state.restarts, state.partitions) == (2, 1, 3)
        assert state.cores == pytest.approx(1.5)
        assert state.resident == 200 * 2**20
        assert (state.versions, state.configurations) == (["0.1.0"], ["79f7c85549efdeff"])

    def test_shadow(self, change: Change) -> None:
        shadow = figures_of(change).shadow

        assert shadow is not None
        assert shadow.per_second == pytest.approx(10)
        assert (shadow.differing, shadow.skipped, shadow.backlog) == (0.1, 5, None)

    def test_of_nothing_all_is_none(self) -> None:
        figures = figures_of(Change([]))

        assert figures.seconds == 0
        assert figures.documents.per_second is None
        assert figures.lag.records is None
        assert figures.state.ready is None
        assert figures.index.originals is None
        assert (figures.stages, figures.troubles, figures.shadow) == ({}, {}, None)

    def test_a_worker_that_is_not_ready_makes_all_not_ready(self) -> None:
        change = Change([(None, scrape(0.0, ready=1)), (None, scrape(0.0, ready=0))])

        assert figures_of(change).state.ready is False


class Scripted:
    """A source that tells one look after the other."""

    window = 10.0

    def __init__(self, *looks: Look) -> None:
        self._looks = iter(looks)

    def look(self) -> Look:
        return next(self._looks)


class TestMonitor:
    def test_figures_are_over_the_window_and_the_curve_over_steps(self) -> None:
        counts = [0, 10, 30, 60, 100, 150, 210]
        monitor = Monitor(
            Scripted(
                *(
                    Look({"a": scrape(4.0 * step, documents_total=count)}, {})
                    for step, count in enumerate(counts)
                )
            )
        )

        for _ in counts:
            view = monitor.look()

        # Three steps of 4 s are the first to be at least 10 s.
        assert view.figures.seconds == 12.0
        assert view.figures.documents.per_second == pytest.approx((210 - 60) / 12)
        assert view.curve == pytest.approx([2.5, 5.0, 7.5, 10.0, 12.5, 15.0])

    def test_an_endpoint_that_is_down_is_a_problem_and_goes_on_later(self) -> None:
        monitor = Monitor(
            Scripted(
                Look({"a": scrape(0.0, documents_total=0)}, {}),
                Look({}, {"a": "It does not answer."}),
                Look({"a": scrape(4.0, documents_total=40)}, {}),
            )
        )

        views = [monitor.look() for _ in range(3)]

        assert views[1].problems == {"a": "It does not answer."}
        assert views[1].answering == []
        assert views[1].figures.documents.per_second is None
        assert views[2].figures.documents.per_second == pytest.approx(10)

    def test_a_source_that_knows_the_past_needs_one_look(self) -> None:
        monitor = Monitor(
            Scripted(
                Look(
                    {"a": scrape(120.0, documents_total=600)},
                    {},
                    {"a": scrape(0.0, documents_total=0)},
                    [1.0, 2.0, 5.0],
                )
            )
        )

        view = monitor.look()

        assert view.figures.documents.per_second == pytest.approx(5)
        assert view.curve == [1.0, 2.0, 5.0]
