"""Proposes settings: a grid is measured on one half of the documents, its best on the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from stream_dedup.errors import SettingsError
from stream_dedup.evaluate.documents import Corpus
from stream_dedup.evaluate.measures import Intervals
from stream_dedup.evaluate.pipeline import decide_all
from stream_dedup.evaluate.sets import Rows
from stream_dedup.evaluate.sweep import Axis, Point, at_point, grid, run_sweep
from stream_dedup.evaluate.truth import Report, Truth
from stream_dedup.settings import Settings

#: Shingles of the grid.
SHINGLES = ("word:1", "word:2", "word:3", "char:3", "char:4", "char:5", "char:7")
#: Documents up to which low thresholds are tried too: there, most pairs are candidates.
FEW_DOCUMENTS = 5_000
#: Points around the best whose neighbourhood is measured with a finer step.
_REFINED = 3
_STEP, _FINE = 5, 1


class Aim(NamedTuple):
    """What is wanted.

    Attributes:
        measure: ``pairs.f1`` or another measure, section and name.
        precision: least pairs.precision; None asks for none.
        recall: least pairs.recall; None asks for none.
    """

    measure: str = "pairs.f1"
    precision: float | None = None
    recall: float | None = None

    def rank(self, report: Report) -> tuple[float, ...]:
        """Return a key by which better reports are greater.

        With a wanted precision the greatest recall among the points that have it is best, and the
        other way round; points that miss it come after all that have it, the nearest first.
        """
        pairs = report["pairs"]
        precision, recall = _known(pairs["precision"]), _known(pairs["recall"])
        lacking = max(0.0, (self.precision or 0.0) - precision)
        lacking += max(0.0, (self.recall or 0.0) - recall)
        section, name = self.measure.split(".")
        wanted = _known(report[section][name])
        if self.precision is not None and self.recall is None:
            wanted = recall
        elif self.recall is not None and self.precision is None:
            wanted = precision
        return (-lacking, wanted, _known(pairs["f1"]))


class Proposal(NamedTuple):
    """What tuning found.

    Attributes:
        points: every point of the grid, the best first, measured on the tuning half.
        settings: those of the best point.
        held_out: the best point on the other half.
        everything: the best point on all documents; not held out.
        documents: documents of the tuning half and of the other.
    """

    points: list[Point]
    settings: Settings
    held_out: Report
    everything: Report
    documents: tuple[int, int]


def default_grid(documents: int) -> list[dict[str, str]]:
    """Return the grid: MinHash by shingle and threshold, SimHash by shingle and distance.

    Thresholds go from .1 to .95 by .05, for more than 5,000 documents from .4.
    """
    first = 10 if documents <= FEW_DOCUMENTS else 40
    thresholds = [f"{percent / 100:g}" for percent in range(first, 96, _STEP)]
    shingle: Axis = ("shingle", list(SHINGLES))
    minhash = grid([("method", ["minhash"]), shingle, ("threshold", thresholds)])
    distances = [str(distance) for distance in range(9)]
    return minhash + grid([("method", ["simhash"]), shingle, ("hamming", distances)])


def halves(truth: Truth, seed: int) -> tuple[Rows, Rows]:
    """Split the documents into two halves of whole groups, at random; each in order of arrival.

    The largest groups are dealt first, each to the half with fewer documents.
    """
    labels = np.unique(truth.connected(), return_inverse=True)[1]
    sizes = np.bincount(labels)
    shuffled = np.random.default_rng(seed).permutation(len(sizes))
    order = shuffled[np.argsort(-sizes[shuffled], kind="stable")]
    taken = [0, 0]
    side = np.zeros(len(sizes), np.int64)
    for group in order.tolist():
        side[group] = int(taken[1] < taken[0])
        taken[side[group]] += int(sizes[group])
    return np.flatnonzero(side[labels] == 0), np.flatnonzero(side[labels] == 1)


def tune(
    settings: Settings,
    *,
    points: Sequence[dict[str, Any]],
    corpus: Corpus,
    truth: Truth,
    aim: Aim,
    how: Intervals,
    progress: Callable[[Point], object] = lambda _point: None,
) -> Proposal:
    """Measure every point on one half, refine around the best, and hold the best to the rest.

    Each half is a stream of its own. Around the best three MinHash points thresholds are tried by
    steps of .01.
    """
    tuned, rest = halves(truth, how.seed)
    part, known = corpus.take(tuned), truth.restrict(tuned)
    quick = how._replace(resamples=0)
    found: list[Point] = []
    for refining in (False, True):
        tried = _finer(_best(found, aim)) if refining else points
        found += run_sweep(
            settings, points=tried, corpus=part, truth=known, how=quick, progress=progress
        )
    ranked = _middle_first(_best(found, aim), aim)
    if not ranked:
        msg = f"No point of the grid can be used: {found[0].reason}. Give another --grid."
        raise SettingsError(msg)
    chosen = at_point(settings, ranked[0].values)
    other = corpus.take(rest)
    return Proposal(
        ranked,
        chosen,
        truth.restrict(rest).score(decide_all(chosen, other.documents), how),
        truth.score(decide_all(chosen, corpus.documents), how),
        (len(tuned), len(rest)),
    )


def _best(points: list[Point], aim: Aim) -> list[Point]:
    usable = [(point, point.report) for point in points if point.report is not None]
    ranked = sorted(usable, key=lambda one: aim.rank(one[1]), reverse=True)
    return [point for point, _ in ranked]


def _middle_first(ranked: list[Point], aim: Aim) -> list[Point]:
    """Put in front the point in the middle of the longest run of equally good thresholds.

    Its neighbours are as good as it, so it depends least on the documents that it was tuned on.
    """
    level: dict[str, list[Point]] = {}
    for point in ranked:
        if point.report and aim.rank(point.report) == aim.rank(ranked[0].report or {}):
            fixed = {name: point.values[name] for name in point.values if name != "threshold"}
            level.setdefault(str(fixed), []).append(point)
    if not level:
        return ranked
    run = max(level.values(), key=len)
    run = sorted(run, key=lambda point: point.values.get("threshold", 0.0))
    middle = run[len(run) // 2]
    return [middle, *(point for point in ranked if point is not middle)]


def _finer(ranked: list[Point]) -> list[dict[str, Any]]:
    """Return points between the best ones' thresholds and their neighbours'."""
    near: dict[str, dict[str, Any]] = {}
    for point in ranked[:_REFINED]:
        if "threshold" not in point.values:
            continue
        middle = round(100 * point.values["threshold"])
        for percent in range(middle - _STEP + _FINE, middle + _STEP, _FINE):
            if percent != middle and 5 <= percent <= 100:
                values = point.values | {"threshold": percent / 100}
                near[str(values)] = values
    return list(near.values())


def _known(value: float | None) -> float:
    return -1.0 if value is None else value
