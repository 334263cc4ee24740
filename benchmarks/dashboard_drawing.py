"""Draws a dashboard as Grafana would lay it out: the same grid, units, colours and thresholds."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from benchmarks.dashboard_answers import Answer, Answers
from benchmarks.dashboard_charts import (
    FAINT,
    INK,
    LEGENDS,
    bar_chart,
    heat_map,
    legend_columns,
    line_chart,
    shown,
)

#: Of a cell of the grid, inches.
_CELL = (0.5, 0.3)
_DPI = 100
_NAMED = {"green": "#56a64b", "orange": "#ff780a", "red": "#e02f44", "text": "#24292e"}
_PAGE, _EDGE = "#ffffff", "#cfd5db"


def draw(title: str, answers: Answers, marks: Sequence[float], path: Path) -> None:
    """Write the picture of a dashboard.

    Args:
        title: of the dashboard.
        answers: its panels with their series.
        marks: moments that every line has a mark for, Unix time.
        path: file to write, PNG.
    """
    height = max(answer.panel.place[1] + answer.panel.size[1] for answer in answers.panels) + 2
    size = (24 * _CELL[0], height * _CELL[1])
    figure = Figure(figsize=size, facecolor=_PAGE)
    figure.text(0.006, 1 - 1.2 / height, title, fontsize=13, color=INK, weight="bold")
    minutes = (answers.times - answers.times[0]) / 60
    moments = [(mark - answers.times[0]) / 60 for mark in marks]
    for answer in answers.panels:
        (x, y), (w, h) = answer.panel.place, answer.panel.size
        box = (x / 24, 1 - (y + 2 + h) / height, w / 24, h / height)
        frame = figure.add_axes(_within(box, size, (0.04, 0.04, 0.04, 0.04)))
        _frame(frame, answer)
        if answer.panel.kind in _KINDS:
            axes = figure.add_axes(_within(box, size, _margins(answer)))
            _KINDS[answer.panel.kind](axes, answer, minutes, moments)
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=_DPI, facecolor=_PAGE)
    # A third of the size.
    picture = Image.open(drawn).convert("RGB").quantize(256, Image.Quantize.FASTOCTREE)
    picture.save(path, optimize=True)


def _within(
    box: tuple[float, float, float, float],
    size: tuple[float, float],
    margins: tuple[float, float, float, float],
) -> tuple[float, float, float, float]:
    """Take margins in inches (left, right, top, bottom) off a box in parts of the figure."""
    left, right, top, bottom = (
        margin / size[axis] for margin, axis in zip(margins, (0, 0, 1, 1), strict=True)
    )
    x, y, w, h = box
    return x + left, y + bottom, w - left - right, h - top - bottom


def _margins(answer: Answer) -> tuple[float, float, float, float]:
    match answer.panel.kind:
        case "timeseries":
            rows = (
                -(-min(len(answer.lines), LEGENDS) // legend_columns(answer)) if answer.lines else 1
            )
            return 0.55, 0.3, 0.38, 0.38 + 0.15 * rows
        case "heatmap":
            return 0.55, 0.3, 0.38, 0.32
        case "bargauge":
            return 0.2, 0.2, 0.5, 0.3
        case _:
            return 0.1, 0.1, 0.36, 0.1


def _frame(axes: Axes, answer: Answer) -> None:
    axes.set(xticks=[], yticks=[], xlim=(0, 1), ylim=(0, 1))
    if answer.panel.kind == "row":
        axes.axis("off")
        axes.text(0.003, 0.4, f"▾ {answer.panel.title}", fontsize=9.5, color=INK, va="center")
        return
    for spine in axes.spines.values():
        spine.set_color(_EDGE)
    inch = 1 / (answer.panel.size[1] * _CELL[1])
    place = 0.1 / (answer.panel.size[0] * _CELL[0])
    axes.text(place, 1 - 0.16 * inch, answer.panel.title, fontsize=8, color=INK, va="center")


def _stat(axes: Axes, answer: Answer, *_: object) -> None:
    defaults = answer.panel.json["fieldConfig"]["defaults"]
    axes.axis("off")
    text, color = defaults["noValue"], FAINT
    if answer.lines:
        value = float(answer.lines[0].values[-1])
        text = shown(value, defaults["unit"])
        steps = defaults["thresholds"]["steps"]
        color = [_NAMED[s["color"]] for s in steps if s["value"] is None or value >= s["value"]][-1]
    size = 22 if len(text) < 9 else 14
    axes.text(0.5, 0.45, text, ha="center", va="center", fontsize=size, color=color, weight="bold")


def _table(axes: Axes, answer: Answer, *_: object) -> None:
    """Write the rows that Grafana's merge makes: of each instance, or of each set of labels."""
    axes.axis("off")
    axes.set(xlim=(0, 1), ylim=(0, 1))
    (order,) = [
        step["options"]["indexByName"]
        for step in answer.panel.json["transformations"]
        if step["id"] == "organize"
    ]
    known = answer.found[0][0].labels if answer.found[0] else {}
    names = sorted(known, key=order.__getitem__)
    columns = [target.legend for target in answer.panel.targets]
    overrides = answer.panel.json["fieldConfig"]["overrides"]
    units = [override["properties"][0]["value"] for override in overrides]
    rows = [names + columns]
    for first in answer.found[0]:
        cells = [
            next((line for line in lines if line.labels.items() <= first.labels.items()), None)
            for lines in answer.found
        ]
        values = [
            "" if line is None else shown(float(line.values[-1]), unit)
            for line, unit in zip(cells, units, strict=True)
        ]
        rows.append([first.labels.get(name, "") for name in names] + values)
    height = 0.22 / (answer.panel.size[1] * _CELL[1] - 0.46)
    for at, row in enumerate(rows[: int(1 / height)]):
        for column, text in enumerate(row):
            x, y = 0.01 + column / len(row), 1 - (at + 0.6) * height
            weight = "normal" if at else "bold"
            axes.text(x, y, text, fontsize=8, color=INK, va="center", weight=weight)


_KINDS: dict[str, Callable[[Axes, Answer, NDArray[np.float64], list[float]], None]] = {
    "stat": _stat,
    "timeseries": line_chart,
    "heatmap": heat_map,
    "bargauge": bar_chart,
    "table": _table,
}
