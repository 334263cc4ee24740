"""The live view, drawn at several sizes; ``golden/top-WIDTHxHEIGHT.txt`` are views to look at.

After a change on purpose: look at what the failing test shows, and write it with
``STREAM_DEDUP_TEST_REWRITE=1 pytest tests/unit/test_top_view.py``.
"""

from __future__ import annotations

import io
import math
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from stream_dedup.top import words
from stream_dedup.top.figures import figures_of
from stream_dedup.top.monitor import View
from stream_dedup.top.scrape import Change, Quantile, Scrape
from stream_dedup.top.view import draw
from tests.models.exposition import AFTER, BEFORE

GOLDEN = Path(__file__).parent / "golden"
NOW = 1_000_011.0
CURVE = [100 + 80 * math.sin(step / 6) for step in range(200)]
DOWN = {"127.0.0.1:9465": "It does not answer (Connection refused)."}


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def view(problems: dict[str, str] | None = None) -> View:
    pair = (Scrape.parse(NOW - 11, BEFORE), Scrape.parse(NOW - 1, AFTER))
    return View(figures_of(Change([pair])), CURVE, ["127.0.0.1:9464"], problems or {})


def drawn(shown: View, width: int, height: int) -> list[str]:
    console = Console(
        width=width, height=height, color_system=None, record=True, file=io.StringIO()
    )
    console.print(draw(shown, width=width, height=height, now=NOW, hint="q ends"))
    return console.export_text().splitlines()


@pytest.mark.parametrize(("width", "height"), [(50, 60), (80, 24), (110, 32), (200, 50)])
def test_is_as_it_was_looked_at(width: int, height: int) -> None:
    lines = drawn(view(), width, height)

    golden = GOLDEN / f"top-{width}x{height}.txt"
    if os.environ.get("STREAM_DEDUP_TEST_REWRITE"):
        golden.write_text("\n".join(lines) + "\n")
    assert lines == golden.read_text().splitlines()


@pytest.mark.parametrize("problems", [{}, DOWN])
@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 30), (132, 24), (200, 50)])
def test_fits(width: int, height: int, problems: dict[str, str]) -> None:
    lines = drawn(view(problems), width, height)

    assert len(lines) <= height
    assert {len(line) for line in lines[-3:]} == {width}


@pytest.mark.parametrize("width", [40, 76, 80, 131, 132, 300])
def test_no_line_is_longer_than_the_terminal(width: int) -> None:
    assert max(map(len, drawn(view(DOWN), width, 24))) <= width


def test_names_what_does_not_answer() -> None:
    others = DOWN | {"127.0.0.1:9466": "It has not answered within 3 s."}

    assert drawn(view(others), 80, 24)[1] == (
        "127.0.0.1:9465: It does not answer (Connection refused). And 1 other."
    )


def test_without_an_answer_everything_is_a_dash() -> None:
    lines = drawn(View(figures_of(Change([])), [], [], DOWN), 80, 24)

    assert "● no answer" in lines[0]
    text = "\n".join(lines)
    assert "original        -" in text
    assert "originals    -" in text
    assert re.search(r"decision +- +- │", text)


def test_many_partitions_show_the_worst() -> None:
    lags = [
        ("stream_dedup_consumer_lag_records", {"topic": "documents", "partition": str(n)}, n)
        for n in range(64)
    ]
    shown = View(figures_of(Change([(None, Scrape.of(0.0, lags))])), [], ["a"], {})

    text = "\n".join(drawn(shown, 80, 24))

    assert all(f"documents/{number} " in text for number in (63, 62, 61, 60))
    assert "documents/59" not in text
    assert "63 of 64 partitions behind" in text


class TestWords:
    @pytest.mark.parametrize(
        ("number", "text"),
        [(None, "-"), (0, "0"), (1234567, "1,234,567"), (12_345_678, "12.3 M"), (5e12, "5.0 T")],
    )
    def test_count(self, number: float | None, text: str) -> None:
        assert words.count(number) == text

    @pytest.mark.parametrize(
        ("number", "text"), [(None, "-"), (0, "0/s"), (0.42, "0.4/s"), (-1234.4, "-1,234/s")]
    )
    def test_rate(self, number: float | None, text: str) -> None:
        assert words.rate(number) == text

    @pytest.mark.parametrize(
        ("number", "text"),
        [
            (None, "-"),
            (0, "0.0"),
            (0.042, "0.042"),
            (5e-13, "< 0.001"),
            (3.25, "3.2"),
            (12345, "12,345"),
        ],
    )
    def test_mean(self, number: float | None, text: str) -> None:
        assert words.mean(number) == text

    @pytest.mark.parametrize(
        ("part", "text"), [(None, "-"), (0, "0.0 %"), (0.0001, "< 0.1 %"), (0.5474, "54.7 %")]
    )
    def test_share(self, part: float | None, text: str) -> None:
        assert words.share(part) == text

    @pytest.mark.parametrize(
        ("number", "text"),
        [(None, "-"), (0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (2**40, "1.0 TiB")],
    )
    def test_size(self, number: float | None, text: str) -> None:
        assert words.size(number) == text

    @pytest.mark.parametrize(
        ("number", "text"),
        [(None, "-"), (0.00123, "1.2 ms"), (0.0351, "35 ms"), (2.5, "2.5 s"), (80, "1 m 20 s")],
    )
    def test_seconds(self, number: float | None, text: str) -> None:
        assert words.seconds(number) == text

    @pytest.mark.parametrize(
        ("number", "text"),
        [
            (None, "-"),
            (0, "0 s"),
            (59.6, "1 m"),
            (3700, "1 h 1 m"),
            (86_400 * 3 + 4 * 3600, "3 d 4 h"),
            (31_536_000 * 1200.0, "1,200 y"),
        ],
    )
    def test_span(self, number: float | None, text: str) -> None:
        assert words.span(number) == text

    def test_a_quantile_beyond_all_bounds_says_so(self) -> None:
        assert words.quantile(Quantile(10.0, is_beyond=True)) == "> 10.0 s"
        assert words.quantile(Quantile(0.5, is_beyond=False)) == "500 ms"
        assert words.quantile(None) == "-"

    def test_a_curve_fills_its_lines_by_the_largest_value(self) -> None:
        console = Console(width=6, color_system=None, record=True, file=io.StringIO())

        console.print(words.Curve([9.0, 0.0, 4.0, 8.0, 16.0], 2, "green"))

        assert console.export_text() == " ▁   █\n █▁▄██\n"
