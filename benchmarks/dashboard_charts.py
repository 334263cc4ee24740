"""The charts of a dashboard: lines, heatmaps and bars, with values written as Grafana does."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from benchmarks.dashboard_answers import Answer, Line

INK, FAINT = "#24292e", "#6b7280"
#: Series named in a legend.
LEGENDS = 8
#: What a value is divided by, and what the quotient is called.
_SECONDS = ((86_400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"))
_BYTES = ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))
_COUNTS = ((1e6, "M"), (1e3, "K"), (1.0, ""))
_GRID, _MARK, _BAR = "#e6e9ec", "#5794f2", "#3274d9"
_COLORS = (
    *("#56a64b", "#e0b400", "#3274d9", "#ff780a", "#e02f44", "#8f3bb8"),
    *("#37a2a2", "#c15c17", "#7eb26d", "#6d1f62", "#447ebc", "#967302"),
)


def shown(value: float, unit: str) -> str:
    """Write a value with its unit, as short as Grafana does."""
    if not math.isfinite(value):
        return "∞" if value > 0 else "–"
    match unit:
        case "percentunit":
            return f"{_digits(value * 100)} %"
        case "s":
            return _scaled(value, _SECONDS)
        case "bytes":
            return _scaled(value, _BYTES)
        case "ops":
            return f"{shown(value, 'short')}/s"
        case _:
            return _scaled(value, _COUNTS)


def _scaled(value: float, steps: Sequence[tuple[float, str]]) -> str:
    if not value:
        return "0"
    factor, name = next(((f, n) for f, n in steps if abs(value) >= f), steps[-1])
    return f"{_digits(value / factor)} {name}".rstrip()


def _digits(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def legend_columns(answer: Answer) -> int:
    """Return how many names of a legend stand side by side."""
    longest = max((len(line.legend) for line in answer.lines), default=1)
    return max(1, int(answer.panel.size[0] * 6.5 / (longest + 6)))


def _plain(axes: Axes, answer: Answer) -> bool:
    """Prepare axes; return whether there is nothing to draw."""
    axes.tick_params(labelsize=7, length=0, colors=FAINT, pad=2)
    axes.spines[:].set_visible(False)
    if any(np.isfinite(line.values).any() for line in answer.lines):
        return False
    axes.set(xticks=[], yticks=[])
    axes.text(0.5, 0.5, "No data", ha="center", va="center", color=FAINT, fontsize=9)
    return True


def line_chart(
    axes: Axes, answer: Answer, minutes: NDArray[np.float64], moments: list[float]
) -> None:
    """Draw lines over time, each on its own or on top of the last, with a mark for each moment."""
    if _plain(axes, answer):
        return
    defaults = answer.panel.json["fieldConfig"]["defaults"]
    custom = defaults["custom"]
    lines = [line for line in answer.lines if np.isfinite(line.values).any()]
    if len(lines) > LEGENDS:
        lines.sort(key=lambda line: -float(np.nanmax(line.values)))
    colors = [_COLORS[at % len(_COLORS)] for at in range(len(lines))]
    if "stacking" in custom:
        parts = np.nan_to_num([line.values for line in lines])
        axes.stackplot(minutes, parts, colors=colors, alpha=0.35, linewidth=0)
        for upper, color in zip(np.cumsum(parts, axis=0), colors, strict=True):
            axes.plot(minutes, upper, color=color, linewidth=1)
    else:
        for line, color in zip(lines, colors, strict=True):
            axes.plot(minutes, line.values, color=color, linewidth=1.2)
    _scale(axes, defaults)
    _time_axis(axes, minutes, moments)
    _legend(axes, answer, lines, colors)


def _scale(axes: Axes, defaults: dict[str, object]) -> None:
    unit, custom = str(defaults["unit"]), defaults["custom"]
    assert isinstance(custom, dict)
    if "scaleDistribution" in custom:
        axes.set_yscale("log")
        axes.minorticks_off()
    else:
        highest = axes.dataLim.ymax
        top = defaults.get("max", highest * 1.08 if highest > 0 else 1)
        assert isinstance(top, int | float)
        axes.set_ylim(0, top)
        axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(lambda value, _: shown(value, unit))
    axes.grid(axis="y", color=_GRID, linewidth=0.8)


def heat_map(
    axes: Axes, answer: Answer, minutes: NDArray[np.float64], moments: list[float]
) -> None:
    """Draw how many observations fell between two bounds, over time."""
    if _plain(axes, answer):
        return
    lines = _by_bound(answer.lines)
    counts = np.diff(np.nan_to_num([line.values for line in lines]), axis=0, prepend=0)
    used = np.flatnonzero(counts.sum(axis=1))
    if not used.size:
        used = np.array([0])
    low, high = max(0, used.min() - 1), used.max() + 2
    unit = str(answer.panel.json["fieldConfig"]["defaults"]["unit"])
    names = [shown(float(line.labels["le"]), unit) for line in lines[low:high]]
    cells = np.where(counts > 0, np.sqrt(np.maximum(counts, 0)), np.nan)[low:high]
    heights = np.arange(len(names))
    axes.pcolormesh(minutes, heights, cells, cmap="Oranges", vmin=0, shading="nearest")
    step = -(-len(names) // 7)
    axes.set_yticks(heights[::step] + 0.5, names[::step])
    _time_axis(axes, minutes, moments)


def bar_chart(axes: Axes, answer: Answer, *_: object) -> None:
    """Draw a bar for each series; of cumulative buckets, for what falls between two bounds."""
    if _plain(axes, answer):
        return
    lines = answer.lines
    values = np.array([line.values[-1] for line in lines])
    names = [line.legend for line in lines]
    if "le" in lines[0].labels:
        lines = _by_bound(lines)
        values = np.diff([line.values[-1] for line in lines], prepend=0)
        names = [f"{float(line.labels['le']):g}".replace("inf", "∞") for line in lines]
    axes.bar(np.arange(len(names)), values, color=_BAR, width=0.8)
    axes.set_xticks(np.arange(len(names)), names)
    axes.set(yticks=[], ylim=(0, max(values.max(), 1) * 1.15))
    size = 6.5 if "le" in lines[0].labels else 5.5
    for at, value in enumerate(values):
        text = shown(float(value), "short")
        axes.text(at, value, text, ha="center", va="bottom", fontsize=size, color=INK)


def _by_bound(lines: Sequence[Line]) -> list[Line]:
    return sorted(lines, key=lambda line: float(line.labels["le"]))


def _time_axis(axes: Axes, minutes: NDArray[np.float64], moments: list[float]) -> None:
    for moment in moments:
        axes.axvline(moment, color=_MARK, linewidth=0.8, linestyle=(0, (2, 3)))
    axes.set_xlim(minutes[0], minutes[-1])
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g} min")


def _legend(axes: Axes, answer: Answer, lines: list[Line], colors: list[str]) -> None:
    named = [
        Patch(color=color, label=line.legend) for line, color in zip(lines, colors, strict=True)
    ][:LEGENDS]
    axes.legend(
        handles=named,
        loc="upper left",
        bbox_to_anchor=(-0.02, -0.09),
        ncols=legend_columns(answer),
        fontsize=7,
        frameon=False,
        labelcolor=INK,
        handlelength=1,
        handleheight=0.4,
        columnspacing=1.2,
        labelspacing=0.25,
    )
