"""What the pages ask of the window, held against the documents themselves."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dedup.review import charts, queries
from stream_dedup.review.queries import Place, Sort, Totals
from stream_dedup.review.seen import Seen
from stream_dedup.review.window import Window
from stream_dedup.types import Status

MINUTE = 60_000
NAMES = [f"{number:024x}" for number in range(3)]
MOST = 10


def seen(**fields: object) -> Seen:
    plain = {"id": "a", "duplicate_id": NAMES[0], "original_id": "a", "status": Status.ORIGINAL}
    fixed = {"method": "minhash", "configuration": "0" * 16, "at": 0, "text": "text"}
    return Seen(**{**plain, **fixed, **fields})  # type: ignore[arg-type]


documents = st.lists(
    st.builds(
        seen,
        id=st.sampled_from(["a", "ab", "b", 1, "1", 'q"', "é"]),
        duplicate_id=st.sampled_from(NAMES),
        status=st.sampled_from(list(Status)),
        similarity=st.sampled_from([None, 0.8, 0.85, 0.85, 1.0]),
        hamming_distance=st.sampled_from([None, 0, 3]),
        at=st.sampled_from([0, 1, MINUTE, 3600_000, 86_400_000 * 400]) | st.integers(0, 10**12),
        source=st.sampled_from(["", "x", "y"]),
    ),
    max_size=20,
)


def _filled(folder: str | Path, held: list[Seen]) -> Window:
    window = Window.open(Path(folder) / "window.db", 1000)
    window.add(held)
    return window


@settings(max_examples=40, deadline=None)
@given(documents)
def test_counts_are_those_of_a_count(held: list[Seen]) -> None:
    with TemporaryDirectory() as folder:
        window = _filled(folder, held)
        with window.reader() as database:
            totals = queries.totals(database)
            over_time = queries.over_time(database, 12)
            alike, apart = queries.similarities(database), queries.distances(database)
            largest = queries.largest_groups(database, 5)
            sources = queries.frequent_sources(database, 5)
        window.close()
    counts = Counter(one.status for one in held)
    wanted = Totals(*(counts[status] for status in Status))
    assert totals == wanted
    if over_time is None:
        assert not held
    else:
        steps = over_time.counts
        assert len(steps) <= 12
        assert Totals(*map(sum, zip(*steps, strict=True))) == wanted
        counted = Counter((one.at - over_time.begin) // over_time.step for one in held)
        assert [one.documents for one in steps] == [counted[at] for at in range(len(steps))]
    duplicates = [one for one in held if one.status is not Status.ORIGINAL]
    assert sum(map(sum, alike.values())) == sum(one.similarity is not None for one in duplicates)
    assert sum(map(sum, apart.values())) == sum(
        one.similarity is None and one.hamming_distance is not None for one in duplicates
    )
    sizes = sorted(Counter(one.duplicate_id for one in held).values(), reverse=True)
    assert [one["documents"] for one in largest] == [size for size in sizes if size > 1]
    named = Counter(one.source for one in held if one.source)
    assert {one["source"]: one["documents"] for one in sources} == named


def _nearness(one: Seen) -> float:
    if one.similarity is not None:
        return one.similarity
    return -1000 if one.hamming_distance is None else -one.hamming_distance


@settings(max_examples=40, deadline=None)
@given(documents, st.sampled_from(list(Sort)), st.integers(1, 4))
def test_pages_of_a_group_are_its_members_in_order(held: list[Seen], sort: Sort, most: int) -> None:
    numbered = list(enumerate(held, 1))
    with TemporaryDirectory() as folder:
        window = _filled(folder, held)
        with window.reader() as database:
            for name in NAMES:
                own = [(row, one) for row, one in numbered if one.duplicate_id == name]
                without = own[-1][0] if own else None
                key = _nearness if sort in {Sort.NEAREST, Sort.FARTHEST} else lambda one: one.at
                wanted = sorted((key(one), row) for row, one in own if row != without)
                if sort.descends:
                    wanted.reverse()
                pages = list(_pages(database, name, sort, most, without))
                assert [row for page in pages for row in page] == [row for _, row in wanted]
        window.close()


def _pages(
    database: sqlite3.Connection, name: str, sort: Sort, most: int, without: int | None
) -> Iterator[list[int]]:
    """Read all pages forwards, and each again backwards."""
    found = []
    page = queries.members(database, name, sort, most, without=without)
    assert page.before is None
    while True:
        found.append(page)
        if page.after is None:
            break
        page = queries.members(database, name, sort, most, after=page.after, without=without)
    for one, other in pairwise(found):
        assert other.before is not None
        back = queries.members(database, name, sort, most, before=other.before, without=without)
        assert [row["row"] for row in back.rows] == [row["row"] for row in one.rows]
        assert back.after == one.after
        assert (back.before is None) == (one.before is None)
    for one in found:
        yield [row["row"] for row in one.rows]


@pytest.mark.parametrize(
    ("word", "ids"),
    [("1", [1, "1"]), ("a", ["a"]), ('q"', ['q"']), ("é", ["é"]), ("c", []), ("", [])],
)
def test_ids_are_found_in_both_types(tmp_path: Path, word: str, ids: list[object]) -> None:
    held = [seen(id=name) for name in ("a", "ab", "b", 1, "1", 'q"', "é")]
    window = _filled(tmp_path, held)
    with window.reader() as database:
        found = [queries.read_id(one["id"]) for one in queries.with_id(database, word, 9)]
        beginning = queries.beginning_with(database, "a", 9)
        assert [queries.read_id(one["id"]) for one in beginning] == ["ab"]
        assert [queries.read_id(one["id"]) for one in queries.beginning_with(database, "q", 9)] == [
            'q"'
        ]
    window.close()
    assert sorted(map(repr, found)) == sorted(map(repr, ids))


def test_that_every_query_goes_by_an_index(tmp_path: Path) -> None:
    window = _filled(tmp_path, [seen()])
    planned: list[str] = []
    with window.reader() as database:
        asked: list[str] = []
        database.set_trace_callback(asked.append)
        for sort in Sort:
            queries.members(database, NAMES[0], sort, 9, after=Place(0.5, 1), without=3)
            queries.members(database, NAMES[0], sort, 9, before=Place(0.5, 1))
        queries.with_id(database, "1", 9)
        queries.beginning_with(database, "a", 9)
        queries.largest_groups(database, 9)
        queries.growing_groups(database, 9)
        queries.frequent_sources(database, 9)
        queries.group(database, NAMES[0])
        queries.group_begun_by(database, "a")
        queries.texts_after(database, 5, 9)
        queries.over_time(database, 9)
        database.set_trace_callback(None)
        for query in asked:
            planned += [row["detail"] for row in database.execute(f"EXPLAIN QUERY PLAN {query}")]
    window.close()
    assert len(planned) >= len(asked) > 15
    # What is looked through are the tables of counts by time, but for the finest, and short lists.
    scans = [step for step in planned if step.startswith("SCAN") and "INDEX" not in step]
    assert {step.split()[1] for step in scans} <= {"hours", "days", "g", "(subquery-1)"}


class TestCharts:
    @settings(max_examples=40, deadline=None)
    @given(st.lists(st.tuples(*[st.integers(0, 10**6)] * 3), min_size=1, max_size=30))
    def test_bars_stay_within(self, counts: list[tuple[int, int, int]]) -> None:
        found = queries.OverTime(1_790_000_000_000, 3_600_000, [Totals(*one) for one in counts])
        for chart in (charts.rate(found), charts.shares(found)):
            assert len(chart.bars) == len(counts)
            _check_bars(chart)
            assert all(0 <= tick.at <= 100.001 for tick in chart.across)

    @given(st.dictionaries(st.integers(0, 100), st.tuples(*[st.integers(1, 10**6)] * 2)))
    def test_histograms_stay_within(self, found: dict[int, tuple[int, int]]) -> None:
        for chart in (charts.similarity(found), charts.distance(found)):
            _check_bars(chart)
            assert len(chart.rows) == len(found)


def _check_bars(chart: charts.Chart) -> None:
    for bar in chart.bars:
        assert bar.left >= 0
        assert bar.left + bar.width <= 100.001
        assert all(segment.top >= -0.01 for segment in bar.segments)
        assert sum(segment.height for segment in bar.segments) <= charts.HEIGHT + 0.1
