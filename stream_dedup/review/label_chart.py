"""The picture of what each threshold gives: two lines with their intervals, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stream_dedup.review.estimates import AtThreshold, Share
from stream_dedup.review.strata import Scale

#: Percent of the width between two words below the picture, so that they fit on a phone.
_APART = 12


class Line(NamedTuple):
    """A measure over the thresholds; numbers are percent of the picture, from its upper left.

    Attributes:
        name: the measure.
        points: of the line, as SVG writes them.
        band: outline of the intervals, as SVG writes it.
        dots: where the estimates are, with what they say.
    """

    name: str
    points: str
    band: str
    dots: list[tuple[float, float, str]]


class Curve(NamedTuple):
    """The picture.

    Attributes:
        lines: precision and recall.
        now: where the threshold in force is, in percent from the left.
        ticks: places and words below the picture.
        levels: places and words at its left.
    """

    lines: list[Line]
    now: float
    ticks: list[tuple[float, str]]
    levels: list[tuple[float, str]]


def curve(found: Sequence[AtThreshold], scale: Scale) -> Curve:
    """Draw what the thresholds give."""
    low, high = found[0].threshold, found[-1].threshold
    width = (high - low) or 1.0

    def across(threshold: float) -> float:
        return round(100 * (threshold - low) / width, 2)

    ticks: list[tuple[float, str]] = []
    for one in found:
        # Words that would run into one another are left out, but for that of the one in force.
        clear = all(abs(across(one.threshold) - place) >= _APART for place, _ in ticks)
        if clear and (
            one.threshold == scale.near_from
            or abs(across(one.threshold) - across(scale.near_from)) >= _APART
        ):
            ticks.append((across(one.threshold), scale.told(one.threshold)))
    return Curve(
        [
            _line("precision", [(across(one.threshold), one.precision) for one in found]),
            _line("recall", [(across(one.threshold), one.recall) for one in found]),
        ],
        across(scale.near_from),
        ticks,
        [(100.0 - level, f"{level} %") for level in (0, 25, 50, 75, 100)],
    )


def _line(name: str, shares: Sequence[tuple[float, Share]]) -> Line:
    known = [
        (x, share, 100 * (share.value or 0.0)) for x, share in shares if share.value is not None
    ]
    upper = [(x, 100 - 100 * share.high) for x, share, _ in known]
    lower = [(x, 100 - 100 * share.low) for x, share, _ in known]
    return Line(
        name,
        _written([(x, 100 - value) for x, _, value in known]),
        _written([*upper, *reversed(lower)]),
        [
            (x, round(100 - value, 2), f"{name} {value:.0f} % ({told(share)})")
            for x, share, value in known
        ],
    )


def told(share: Share) -> str:
    """Return an interval in percent, as people read it."""
    return f"{100 * share.low:.0f} to {100 * share.high:.0f}"


def _written(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:g},{y:.2f}" for x, y in points)
