"""Grids of settings, and what each point of one gives."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from itertools import product
from typing import Any, NamedTuple

from pydantic import ValidationError

from stream_dedup.errors import SettingsError
from stream_dedup.evaluate.documents import Corpus
from stream_dedup.evaluate.measures import Intervals
from stream_dedup.evaluate.pipeline import decide_all
from stream_dedup.evaluate.truth import Report, Truth
from stream_dedup.settings import Settings, group_of

#: Other names that settings go by in a sweep.
_ALIASES = {"k": "hamming", "shingles": "shingle"}
#: Settings of the fingerprint that are not swept.
_FIXED = {"seed", "seed_file", "window", "max_characters"}
_MOST_POINTS = 10_000

Axis = tuple[str, list[str]]


class Point(NamedTuple):
    """One point of a grid.

    Attributes:
        values: settings by name, as they stand in the grid.
        report: what it gives; None where the settings do not go together.
        reason: why not.
        seconds: time that the pipeline took.
    """

    values: dict[str, Any]
    report: Report | None
    reason: str
    seconds: float


def parse_axis(text: str) -> Axis:
    """Read ``threshold=0.6:0.95:0.05``, ``hamming=0:8`` or ``shingle=word:2,word:3``.

    Raises:
        SettingsError: it is none of these, or the setting is not one of the fingerprint.
    """
    name, mark, values = text.partition("=")
    name = _ALIASES.get(name.strip(), name.strip())
    known = name in Settings.model_fields and group_of(name) == "fingerprint"
    if not mark or not values.strip() or not known or name in _FIXED:
        names = [
            name
            for name in Settings.model_fields
            if group_of(name) == "fingerprint" and name not in _FIXED
        ]
        msg = f"{text!r} is not a sweep. Write NAME=LOW:HIGH:STEP or NAME=A,B with a name of "
        raise SettingsError(msg + f"{', '.join(names)}.")
    listed = [value.strip() for value in values.split(",")]
    if len(listed) > 1 or not re.fullmatch(r"[\d.]+(:[\d.]+){1,2}", values.strip()):
        return name, listed
    return name, _steps(values.strip())


def _steps(span: str) -> list[str]:
    try:
        low, high, *step = (Decimal(part) for part in span.split(":"))
    except InvalidOperation as error:
        msg = f"{span!r} is not a span of numbers. Write LOW:HIGH or LOW:HIGH:STEP."
        raise SettingsError(msg) from error
    width = step[0] if step else Decimal(1)
    if width <= 0 or high < low or (high - low) / width >= _MOST_POINTS:
        msg = f"{span!r} has no points or too many. Write LOW:HIGH:STEP with LOW below HIGH."
        raise SettingsError(msg)
    return [str(low + width * number) for number in range(int((high - low) / width) + 1)]


def grid(axes: Sequence[Axis]) -> list[dict[str, str]]:
    """Return every combination of the values of some axes; none without an axis.

    Raises:
        SettingsError: a setting has two axes, or there are more than 10,000 points.
    """
    names = [name for name, _ in axes]
    points = [dict(zip(names, values, strict=True)) for values in product(*(v for _, v in axes))]
    if len(set(names)) < len(names) or len(points) > _MOST_POINTS:
        msg = f"A sweep has each setting once and at most {_MOST_POINTS} points. Sweep less."
        raise SettingsError(msg)
    return points if axes else []


def at_point(settings: Settings, values: dict[str, Any]) -> Settings:
    """Return the settings with those of a point in place of theirs.

    Raises:
        SettingsError: they do not go together.
    """
    try:
        return Settings.model_validate(settings.model_dump() | values)
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        msg = f"{_written(values)}: {reason.removeprefix('Value error, ')}. Leave the point out."
        raise SettingsError(msg) from error


def run_sweep(
    settings: Settings,
    *,
    points: Sequence[dict[str, Any]],
    corpus: Corpus,
    truth: Truth,
    how: Intervals,
    progress: Callable[[Point], object] = lambda _point: None,
) -> list[Point]:
    """Run the pipeline once for each point of a grid."""
    found = []
    for values in points:
        found.append(_measured(settings, values, corpus, truth, how))
        progress(found[-1])
    return found


def _measured(
    settings: Settings, values: dict[str, Any], corpus: Corpus, truth: Truth, how: Intervals
) -> Point:
    began = time.perf_counter()
    typed = values
    try:
        changed = at_point(settings, values)
        typed = {name: getattr(changed, name) for name in values}
        originals = decide_all(changed, corpus.documents)
    except SettingsError as error:
        return Point(typed, None, str(error), 0.0)
    seconds = time.perf_counter() - began
    return Point(typed, truth.score(originals, how), "", seconds)


def _written(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())
