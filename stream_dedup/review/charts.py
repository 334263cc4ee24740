"""Charts as SVG that the server makes: bars, with their numbers as a table beside.

No script draws them, so they need no exception from the content policy, follow the colours of the
page, come with each refreshed part of it, and are there for readers of the screen. Places along the
horizontal axis are in percent of the width, which no viewport has to be known for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from stream_dedup.review.queries import OverTime, Totals

#: Height of the bars, in pixels.
HEIGHT = 160
#: Bars of a chart over time, at most; on a phone each is still some pixels wide.
_BARS = 72
_FEW_BARS = 12
_TICKS = 6
_DAY_MS = 86_400_000
_TICK_STEPS = tuple(
    minutes * 60_000
    for minutes in (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 10080, 20160, 43200)
)


class Segment(NamedTuple):
    """A part of a bar; pixels from the top."""

    kind: str
    top: float
    height: float


class Bar(NamedTuple):
    """A bar; places in percent of the width.

    Attributes:
        left: where it begins.
        width: how wide it is.
        segments: its parts.
        title: what it says, in words.
    """

    left: float
    width: float
    segments: list[Segment]
    title: str


class Tick(NamedTuple):
    """A mark on an axis: percent of the width, or pixels from the top.

    Attributes:
        at: where.
        text: what it says.
        anchor: which end of the text stands there: ``start``, ``middle`` or ``end``.
        optional: whether a narrow screen leaves it out.
    """

    at: float
    text: str
    anchor: str = "middle"
    optional: bool = False


class Chart(NamedTuple):
    """A chart.

    Attributes:
        name: its id in the page.
        title: what it shows.
        note: how to read it, or what it shows at a glance, in a sentence.
        kinds: the kinds of segment and their names.
        bars: the bars.
        across: marks of the horizontal axis.
        up: marks of the vertical axis.
        head: head of the table.
        rows: its rows.
    """

    name: str
    title: str
    note: str
    kinds: Mapping[str, str]
    bars: list[Bar]
    across: list[Tick]
    up: list[Tick]
    head: Sequence[str]
    rows: list[Sequence[str]]


_KINDS = {"original": "originals", "near": "near duplicates", "exact": "exact duplicates"}


def bars_for(documents: int) -> int:
    """Return how many steps of time to draw: fewer where there is little to see in each."""
    return min(_BARS, max(_FEW_BARS, documents // 3))


def rate(found: OverTime) -> Chart:
    """Draw how many documents came, in steps of time."""
    values = [_by_kind(one) for one in found.counts]
    step = _span(found.step)
    busiest = max(one.documents for one in found.counts)
    return _stacked(
        found,
        values,
        _scale(busiest),
        name="rate",
        title=f"Documents per {step}",
        note=f"The busiest {step} had {busiest:,} documents.",
    )


def shares(found: OverTime) -> Chart:
    """Draw which share of the documents of each step of time were what."""
    values = []
    for one in found.counts:
        whole = one.documents or 1
        values.append({kind: 100 * part / whole for kind, part in _by_kind(one).items()})
    everything = Totals(*map(sum, zip(*found.counts, strict=True)))
    share = 100 * everything.duplicates / (everything.documents or 1)
    return _stacked(
        found,
        values,
        [0, 25, 50, 75, 100],
        name="shares",
        title="Share of originals and duplicates",
        note=f"{share:.1f} % of all are duplicates.",
        unit=" %",
    )


def similarity(found: Mapping[int, tuple[int, int]]) -> Chart:
    """Draw how many duplicates have which similarity, in percent rounded down."""
    low = min(90, *found) if found else 90
    chart = _histogram(
        "similarity",
        "Duplicates by similarity",
        {value: found.get(value, (0, 0)) for value in range(low, 101)},
        lambda value: f"{value / 100:.2f}",
    )
    return chart._replace(head=["similarity from", *chart.head[1:]])


def distance(found: Mapping[int, tuple[int, int]]) -> Chart:
    """Draw how many duplicates have which Hamming distance."""
    high = max(8, *found) if found else 8
    chart = _histogram(
        "distance",
        "Duplicates by Hamming distance",
        {value: found.get(value, (0, 0)) for value in range(high + 1)},
        str,
    )
    return chart._replace(head=["differing bits", *chart.head[1:]])


def _by_kind(counts: Totals) -> dict[str, float]:
    return {"original": counts.originals, "near": counts.near, "exact": counts.exact}


def _stacked(
    found: OverTime,
    values: list[dict[str, float]],
    scale: Sequence[float],
    *,
    name: str,
    title: str,
    note: str,
    unit: str = "",
) -> Chart:
    width = 100 / len(values)
    bars: list[Bar] = []
    rows: list[Sequence[str]] = []
    for at, (one, counts) in enumerate(zip(values, found.counts, strict=True)):
        when = _moment(found.begin + at * found.step)
        cells = [f"{value:.1f}{unit}" if unit else f"{value:,}" for value in one.values()]
        words = ", ".join(f"{cell} {_KINDS[kind]}" for kind, cell in zip(one, cells, strict=True))
        bars.append(Bar(at * width, width, _segments(one, scale[-1]), f"{when}: {words}"))
        if counts.documents:
            rows.append([when, *cells])
    return Chart(
        name,
        title,
        note,
        _KINDS,
        bars,
        _time_ticks(found, len(values)),
        _up_ticks(scale, unit),
        ["from (UTC)", *_KINDS.values()],
        rows,
    )


def _histogram(
    name: str, title: str, found: Mapping[int, tuple[int, int]], spell: Callable[[int], str]
) -> Chart:
    """Draw counts on a logarithmic scale, on which one document is seen beside a million."""
    # A little air above the highest bar; at least as much as ten documents take.
    decades = math.log10(1.15 * max(9, *map(sum, found.values())) + 1)
    width = 100 / len(found)
    bars: list[Bar] = []
    rows: list[Sequence[str]] = []
    for at, (value, (exact, near)) in enumerate(found.items()):
        top = HEIGHT * math.log10(exact + near + 1) / decades
        whole = exact + near or 1
        parts = {"near": top * near / whole, "exact": top * exact / whole}
        words = f"{spell(value)}: {near:,} near duplicates, {exact:,} exact duplicates"
        bars.append(Bar(at * width, width, _segments(parts, HEIGHT), words))
        if exact or near:
            rows.append([spell(value), f"{near:,}", f"{exact:,}"])
    every = max(1, math.ceil(len(found) / _TICKS / 5) * 5 if len(found) > 12 else 2)
    across = [
        Tick((at + 0.5) * width, spell(value), optional=bool(value // every % 2))
        for at, value in enumerate(found)
        if value % every == 0
    ]
    scale = [HEIGHT * math.log10(10**power + 1) / decades for power in range(math.ceil(decades))]
    up = [
        Tick(round(HEIGHT - height, 2), _short(10**power), "end")
        for power, height in enumerate(scale)
        if height <= HEIGHT
    ]
    kinds = {kind: _KINDS[kind] for kind in ("near", "exact")}
    total = sum(map(sum, found.values()))
    note = f"{total:,} duplicate{'s' * (total != 1)}; the scale is logarithmic."
    return Chart(name, title, note, kinds, bars, across, up, ["", *kinds.values()], rows)


def _segments(parts: Mapping[str, float], whole: float) -> list[Segment]:
    """Stack the parts of a bar from below."""
    segments, top = [], float(HEIGHT)
    for kind, part in parts.items():
        if part > 0:
            height = HEIGHT * part / (whole or 1)
            top -= height
            segments.append(Segment(kind, round(top, 2), round(height, 2)))
    return segments


def _scale(highest: float) -> list[float]:
    """Return round numbers from 0 to at least the highest, about four apart."""
    raw = max(highest, 1) / 4
    power = 10 ** math.floor(math.log10(raw))
    step = max(1, next(power * one for one in (1, 2, 2.5, 5, 10) if power * one >= raw))
    return [step * at for at in range(math.ceil(max(highest, 1) / step) + 1)]


def _up_ticks(scale: Sequence[float], unit: str) -> list[Tick]:
    high = scale[-1]
    return [
        Tick(round(HEIGHT - HEIGHT * value / high, 2), _short(value) + unit, "end")
        for value in scale
    ]


def _short(value: float) -> str:
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _time_ticks(found: OverTime, bars: int) -> list[Tick]:
    """Mark round times; the date where the day changes."""
    span = found.step * bars
    step = next((one for one in _TICK_STEPS if one * _TICKS >= span), None)
    step = step or -(-span // _TICKS // _DAY_MS) * _DAY_MS
    ticks: list[Tick] = []
    for at in range(-(-found.begin // step) * step, found.begin + span + 1, step):
        place = 100 * (at - found.begin) / span
        anchor = "start" if place < 5 else "end" if place > 95 else "middle"
        time = datetime.fromtimestamp(at / 1000, UTC)
        is_date = step >= _DAY_MS or at % _DAY_MS == 0
        text = time.strftime("%-d %b" if step < 300 * _DAY_MS else "%b %Y") if is_date else ""
        ticks.append(Tick(place, text or time.strftime("%H:%M"), anchor, bool(len(ticks) % 2)))
    return ticks


def _moment(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M")


def _span(milliseconds: int) -> str:
    for size, name in ((_DAY_MS, "day"), (3_600_000, "hour"), (60_000, "minute")):
        if milliseconds % size == 0:
            number = milliseconds // size
            return name if number == 1 else f"{number} {name}s"
    return f"{milliseconds / 1000:g} s"
