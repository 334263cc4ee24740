"""Pictures of an evaluation, drawn with Matplotlib (``stream-dedup[evaluate]``)."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from stream_dedup.errors import InputError, SettingsError
from stream_dedup.evaluate.curves import Histogram, SCurve
from stream_dedup.evaluate.sweep import Point
from stream_dedup.replacing import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Readable on white and on black; apart for the colour-blind (Okabe and Ito 2008).
BLUE, ORANGE, GREY = "#2b8cd6", "#e08214", "#8a8f98"
#: Text and lines in an SVG take the colour of the page around it. No other colour is this one.
_INK = "#0a0b0c"
_METADATA = ("Creator", "Date", "Format", "Type")
_NUMBERED_ID = re.compile(r' id="[A-Za-z2._]+_\d+"')
_SIZE = (7.2, 4.5)
_DPI = 144
#: Colours and dashes of the lines of a grid; orange is for the settings in force.
_LINES = (BLUE, "#3fa66b", "#a862c6", "#d64545", "#9a7b4f", "#17a2b0")
_DASHES = ("-", "--", ":")
#: Named points are at least this part of the picture apart, one in so many.
_NAMED = 14


class Picture(NamedTuple):
    """A picture to draw.

    Attributes:
        name: of its file, without the ending.
        title: what it shows.
        note: how to read it, in a sentence or two.
        draw: draws it.
    """

    name: str
    title: str
    note: str
    draw: Callable[[Axes], None]


def precision_recall(points: Sequence[Point], chosen: Any) -> Picture:
    """Draw precision over recall, a line for each setting but the one that makes the line.

    Args:
        points: a sweep; its last axis makes the line, each value of the others one of its own.
        chosen: report of the settings in force, marked.
    """

    def draw(axes: Axes) -> None:
        lines: dict[str, list[tuple[float, float, str]]] = {}
        for point in points:
            pairs = point.report["pairs"] if point.report else {}
            if pairs.get("precision") is not None and pairs.get("recall") is not None:
                *fixed, (_, last) = point.values.items()
                label = ", ".join(f"{name} {value}" for name, value in fixed)
                step = f"{last:g}" if isinstance(last, float) else str(last)
                line = lines.setdefault(label, [])
                line.append((pairs["recall"], pairs["precision"], step))
        _draw_lines(axes, lines)
        recall, precision = chosen["pairs"]["recall"], chosen["pairs"]["precision"]
        if recall is not None and precision is not None:
            axes.plot([recall], [precision], "D", color=ORANGE, ms=8, zorder=4)
            axes.annotate(
                "settings in force",
                (recall, precision),
                textcoords="offset points",
                xytext=(-9, -15),
                ha="right",
                color=ORANGE,
            )
        _fit(axes, [point for line in lines.values() for point in line] + [(recall, precision, "")])
        axes.set(xlabel="recall of pairs", ylabel="precision of pairs")

    swept = list(points[0].values)[-1] if points else "threshold"
    note = f"Each point is a run of the pipeline with another {swept}; the number is its value."
    return Picture("precision-recall", "Precision and recall", note, draw)


def _draw_lines(axes: Axes, lines: dict[str, list[tuple[float, float, str]]]) -> None:
    for number, (label, line) in enumerate(lines.items()):
        recalls, precisions = [one[0] for one in line], [one[1] for one in line]
        style: Any = {
            "color": _LINES[number % len(_LINES)],
            "linestyle": _DASHES[number // len(_LINES) % len(_DASHES)],
        }
        axes.plot(recalls, precisions, marker="o", ms=4.5, lw=1.6, label=label or None, **style)
    for recall, precision, step in _spread([one for line in lines.values() for one in line]):
        axes.annotate(
            step,
            (recall, precision),
            textcoords="offset points",
            xytext=(5, 5),
            fontsize=8,
            color=_INK,
        )
    if any(lines):
        _legend(axes)


def _spread(points: list[tuple[float, float, str]]) -> list[tuple[float, float, str]]:
    """Choose points to name that stand apart from all that are named before them."""
    ends = np.array([one[:2] for one in points]).reshape(-1, 2)
    low, high = ends.min(axis=0, initial=1.0), ends.max(axis=0, initial=0.0)
    places = (ends - low) / np.maximum(high - low, 1e-9)
    named: list[int] = []
    for at in range(len(points)):
        if not named or np.hypot(*(places[at] - places[named]).T).min() > 1 / _NAMED:
            named.append(at)
    return [points[at] for at in named]


def _legend(axes: Axes) -> None:
    """Put the legend below the picture, where it hides nothing."""
    axes.legend(
        frameon=False, fontsize=8.5, loc="upper left", bbox_to_anchor=(-0.02, -0.13), ncols=3
    )


def _fit(axes: Axes, points: list[tuple[Any, Any, str]]) -> None:
    """Show the part of the unit square that has points in it, with 1 at the upper right."""
    known = np.array([one[:2] for one in points if None not in one[:2]], np.float64)
    low = known.reshape(-1, 2).min(axis=0, initial=0.99)
    margin = 0.08 * (1 - low)
    axes.set_xlim(max(-0.02, low[0] - margin[0]), 1 + margin[0])
    axes.set_ylim(max(-0.02, low[1] - margin[1]), 1 + margin[1])


def s_curve(curve: SCurve) -> Picture:
    """Draw which share of pairs share a table key, measured and as the theory has it."""

    def draw(axes: Axes) -> None:
        from matplotlib.colors import to_rgb  # noqa: PLC0415

        grid = np.linspace(0, 1, 201)
        theory = curve.theory(grid)
        if theory is not None and curve.design is not None:
            bands, rows = curve.design
            label = f"theory, $1 - (1 - J^{{{rows}}})^{{{bands}}}$"
            axes.plot(grid, theory, color=GREY, lw=2, label=label)
        errors = [curve.measured - curve.low, curve.high - curve.measured]
        axes.errorbar(
            curve.resemblance,
            curve.measured,
            yerr=np.maximum(errors, 0),
            fmt="o",
            color=BLUE,
            ms=4.5,
            ecolor=(*to_rgb(BLUE), 0.45),
            elinewidth=1.4,
            label=f"measured, {curve.pairs.sum():,} pairs",
        )
        axes.set(xlim=(0, 1.01), ylim=(-0.02, 1.04), ylabel="share of pairs with a common key")
        axes.set_xlabel("exact resemblance")
        _legend(axes)

    note = (
        "Of the pairs of each resemblance, the share that the tables make candidates, with its "
        "interval. Pairs from templates are not independent and may lie off the line."
    )
    return Picture("s-curve", "Which pairs share a table key", note, draw)


def similarity(found: Histogram, near: str, other: str) -> Picture:
    """Draw the pairs by resemblance, near ones and others, on a logarithmic scale."""

    def draw(axes: Axes) -> None:
        kinds = ((found.other, ORANGE, other), (found.near, BLUE, near))
        for filled in (True, False):  # outlines above all areas
            for counts, color, name in kinds:
                axes.stairs(
                    np.where(counts > 0, counts, np.nan),
                    found.edges,
                    baseline=0.5,
                    fill=filled,
                    color=color,
                    alpha=0.35 if filled else None,
                    lw=1.8,
                    label=f"{name}, {counts.sum():,} pairs" if filled else None,
                )
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.set_ylim(bottom=0.5)
        axes.set(xlabel="exact resemblance", ylabel="pairs (logarithmic)")
        axes.set_xlim(found.edges[0], 1)
        _legend(axes)

    note = (
        f"Pairs of different texts from resemblance {found.edges[0]:.3g} on. Where the two "
        "overlap, no threshold tells them apart."
    )
    return Picture("similarity", "Pairs by resemblance", note, draw)


def save(pictures: Sequence[Picture], folder: Path) -> list[Path]:
    """Write each picture as a PNG file into a folder, made if it does not exist.

    Raises:
        InputError: they cannot be written.
        SettingsError: Matplotlib is not installed.
    """
    written = []
    for picture in pictures:
        with _drawn(picture, "#1d2127") as figure:
            path = folder / f"{picture.name}.png"
            try:
                folder.mkdir(parents=True, exist_ok=True)
                with replacing(path) as partial:
                    figure.savefig(partial, format="png", dpi=_DPI, facecolor="white")
            except OSError as error:
                msg = f"{path} cannot be written: {error.strerror}. Name another folder."
                raise InputError(msg) from error
            written.append(path)
    return written


def svg(picture: Picture) -> str:
    """Return a picture as an SVG element whose text and lines have the colour of the page.

    Raises:
        SettingsError: Matplotlib is not installed.
    """
    with _drawn(picture, _INK) as figure:
        stream = io.StringIO()
        figure.axes[0].set_title("")
        figure.savefig(stream, format="svg", transparent=True, metadata=dict.fromkeys(_METADATA))
    text = stream.getvalue()
    # Several pictures stand in one page, so names that nothing refers to must go.
    text = _NUMBERED_ID.sub("", text[text.index("<svg") :])
    return text.replace(_INK, "currentColor")


@contextmanager
def _drawn(picture: Picture, ink: str) -> Iterator[Figure]:
    """Draw a picture; ``ink`` is the colour of text and axes."""
    require("matplotlib")
    from matplotlib import rc_context  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    style: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": picture.name,
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "text.color": ink,
        "axes.labelcolor": ink,
        "axes.edgecolor": ink,
        "xtick.color": ink,
        "ytick.color": ink,
        "axes.grid": True,
        "grid.color": GREY,
        "grid.alpha": 0.25,
    }
    with rc_context(style):
        figure = Figure(figsize=_SIZE, layout="constrained")
        axes = figure.add_subplot()
        picture.draw(axes)
        axes.set_title(picture.title, loc="left", fontweight="bold")
        yield figure


def require(library: str) -> None:
    """Say how to install what draws.

    Raises:
        SettingsError: it is not installed.
    """
    try:
        import_module(library)
    except ImportError as error:
        msg = (
            f"Pictures and reports need {library}, which is not installed. Install it with "
            "pip install 'stream-dedup[evaluate]'."
        )
        raise SettingsError(msg) from error
