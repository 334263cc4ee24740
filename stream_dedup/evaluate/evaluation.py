"""One evaluation from documents and truth to report, sweep, curves and mistakes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from stream_dedup.evaluate import plots
from stream_dedup.evaluate.curves import histogram, s_curve
from stream_dedup.evaluate.documents import Corpus
from stream_dedup.evaluate.join import resembling_pairs
from stream_dedup.evaluate.measures import Intervals
from stream_dedup.evaluate.pipeline import decide_all
from stream_dedup.evaluate.plots import Picture
from stream_dedup.evaluate.request import sets_of
from stream_dedup.evaluate.sets import Rows
from stream_dedup.evaluate.sweep import Point, grid, run_sweep
from stream_dedup.evaluate.truth import Report, Truth
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.settings import Settings, group_of
from stream_dedup.types import Method

#: Least resemblance that pictures show, and the least that is ever taken for them by itself.
_FLOOR, _LEAST_FLOOR = 0.3, 0.05


class Evaluation(NamedTuple):
    """What an evaluation found.

    Attributes:
        settings: the settings in force.
        corpus: the documents.
        truth: what they were held to.
        originals: (documents,) position of each document's original.
        report: the measures.
        points: the sweep.
        how: how intervals were made.
        seconds: time that the pipeline took.
    """

    settings: Settings
    corpus: Corpus
    truth: Truth
    originals: Rows
    report: Report
    points: list[Point]
    how: Intervals
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """Return everything that is printed for machines."""
        return {
            "truth": self.truth.name,
            "settings": settings_in_force(self.settings),
            "confidence": self.how.confidence,
            "seconds": round(self.seconds, 3),
            **self.report,
            "sweep": [
                {
                    "settings": {name: _plain(value) for name, value in point.values.items()},
                    **(point.report or {"reason": point.reason}),
                }
                for point in self.points
            ],
        }


def evaluate(
    settings: Settings,
    corpus: Corpus,
    truth: Truth,
    how: Intervals,
    *,
    sweep: Sequence[dict[str, Any]] = (),
    progress: Callable[[Point], object] = lambda _point: None,
) -> Evaluation:
    """Run the pipeline in the order of arrival, measure it, and do the same along a sweep."""
    began = time.perf_counter()
    originals = decide_all(settings, corpus.documents)
    seconds = time.perf_counter() - began
    points = run_sweep(
        settings, points=sweep, corpus=corpus, truth=truth, how=how, progress=progress
    )
    report = truth.score(originals, how)
    return Evaluation(settings, corpus, truth, originals, report, points, how, seconds)


def curve_grid(settings: Settings) -> list[dict[str, str]]:
    """Return the points of a precision-recall curve when no sweep is asked for.

    Hamming distances from 0 to 8; thresholds by .05 from .5, or from .1 below the one in force.
    """
    if settings.method is Method.SIMHASH:
        return grid([("hamming", [str(distance) for distance in range(9)])])
    first = max(5, min(50, 5 * round(20 * settings.threshold - 2)))
    return grid([("threshold", [f"{percent / 100:g}" for percent in range(first, 100, 5)])])


def pictures(done: Evaluation, floor: float | None = None) -> list[Picture]:
    """Return the pictures of an evaluation.

    Args:
        done: the evaluation.
        floor: least resemblance of the pairs in the S-curve and the histogram; None takes .3, or
            .1 below the threshold if that is less.
    """
    settings = done.settings
    if floor is None:
        floor = min(_FLOOR, max(_LEAST_FLOOR, settings.threshold - 0.1))
    pairs = resembling_pairs(sets_of(done.corpus, settings, settings.shingle), floor)
    curve = s_curve(Fingerprinter(settings), done.corpus, pairs, done.how.confidence)
    gold = done.corpus.groups if done.truth.name == "groups" else None
    names = ("in one gold group", "others") if gold is not None else ("joined", "not joined")
    counted = histogram(pairs, done.originals if gold is None else gold)
    drawn = [plots.s_curve(curve), plots.similarity(counted, *names)]
    if done.points:
        drawn.insert(0, plots.precision_recall(done.points, done.report))
    return drawn


def settings_in_force(settings: Settings) -> dict[str, Any]:
    """Return the fingerprint settings but the secret seed."""
    values = settings.model_dump(mode="json")
    return {
        name: value
        for name, value in values.items()
        if group_of(name) == "fingerprint" and name not in {"seed", "seed_file"}
    }


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Method) else value
