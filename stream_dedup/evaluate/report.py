"""An evaluation in words: a table for a terminal, and one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from stream_dedup import __version__
from stream_dedup.evaluate.evaluation import Evaluation, settings_in_force
from stream_dedup.evaluate.plots import Picture, require, svg
from stream_dedup.evaluate.sweep import Point
from stream_dedup.evaluate.truth import Report

#: Mistakes of each kind that a report shows, and characters of each text.
_MISTAKES = 10
_SHOWN = 400
_SECTIONS = ("pairs", "documents", "groups")

#: What each kind of truth counts, in a sentence for the reader of a report.
_EXPLANATIONS = {
    "groups": (
        "Pairs: two documents in one predicted group, against two in one gold group. A document is "
        "accurate when its predicted group is exactly its gold group."
    ),
    "pairs": (
        "Labelled pairs only; where they were drawn in strata, each stands for the pairs that it "
        "was drawn from. A document is accurate when all its labelled pairs are decided rightly."
    ),
    "reference": (
        "pairs.recall takes all pairs of at least the reference's resemblance, so also those that "
        "the rule keeps apart because duplicates are attached to originals only (chains); "
        "documents.recall takes the documents that had a near original before them. "
        "pairs.precision is the share of duplicates whose exact resemblance to their original is "
        "acceptable. Groups are compared with those of the exact rule."
    ),
}


def measure_rows(report: Report) -> list[tuple[str, str, str]]:
    """Return (name, value, interval) of every measure."""
    rows = []
    for section in _SECTIONS:
        for name, value in report[section].items():
            if not name.endswith(("_interval", "_counts")):
                interval = report[section].get(f"{name}_interval")
                between = "" if interval is None else f"{interval[0]:.4f} to {interval[1]:.4f}"
                rows.append((f"{section}.{name}", shown(value), between))
    return rows


def sweep_rows(points: Sequence[Point]) -> list[list[str]]:
    """Return a table of a sweep, its head first."""
    if not points:
        return []
    columns = {
        "precision": ("pairs", "precision"),
        "recall": ("pairs", "recall"),
        "F1": ("pairs", "f1"),
        "accuracy": ("documents", "accuracy"),
        "ARI": ("groups", "ari"),
    }
    names = list(points[0].values)
    rows = [[*names, *columns, "seconds"]]
    for point in points:
        values = [str(point.values.get(name, "")) for name in names]
        if point.report is None:
            cells = ["–"] * len(columns)
        else:
            cells = [shown(point.report[part][name]) for part, name in columns.values()]
        rows.append([*values, *cells, f"{point.seconds:.2f}"])
    return rows


def shown(value: float | None) -> str:
    """Return a measure to four places, or a dash where it is not defined."""
    return "–" if value is None else f"{value:.4f}"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Put cells in columns, the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if at else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def terminal(done: Evaluation) -> str:
    """Return an evaluation for a terminal."""
    counts = done.report["counts"]
    documents, originals = counts["documents"], counts["originals"]
    found = f"{originals:,} originals, {documents - originals:,} duplicates"
    head = ("", "value", f"{done.how.confidence:.0%} interval")
    lines = [
        f"{documents:,} documents, {found}; truth: {done.truth.name}",
        "",
        *aligned([head, *measure_rows(done.report)]),
        "",
        *(f"{count:>12,}  {name.replace('_', ' ')}" for name, count in counts.items()),
    ]
    if done.points:
        lines += ["", *aligned(sweep_rows(done.points))]
        reasons = {point.reason for point in done.points if point.report is None}
        lines += sorted(reasons)
    return "\n".join(lines)


def html(done: Evaluation, pictures: Sequence[Picture], title: str) -> str:
    """Return an evaluation as one HTML page without any other file.

    Raises:
        SettingsError: Jinja or Matplotlib is not installed.
    """
    require("jinja2")
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415
    from markupsafe import Markup  # noqa: PLC0415

    source = files("stream_dedup.evaluate").joinpath("report.html.j2").read_text("utf-8")
    page = Environment(autoescape=True, undefined=StrictUndefined).from_string(source)
    counts = done.report["counts"]
    return page.render(
        title=title,
        subtitle=f"{counts['documents']:,} documents, {counts['originals']:,} originals; truth: "
        f"{done.truth.name}; stream-dedup {__version__}",
        confidence=f"{done.how.confidence:.0%}",
        measures=measure_rows(done.report),
        explanation=_EXPLANATIONS[done.truth.name],
        counts=[(name.replace("_", " "), f"{value:,}") for name, value in counts.items()],
        # The only text that is not escaped: what Matplotlib wrote, from numbers and setting names.
        pictures=[
            {"title": one.title, "note": one.note, "svg": Markup(svg(one))}  # noqa: S704
            for one in pictures
        ],
        sweep=sweep_rows(done.points),
        mistakes=_mistakes(done),
        settings=list(settings_in_force(done.settings).items()),
    )


def _mistakes(done: Evaluation) -> list[tuple[str, str, list[list[dict[str, Any]]]]]:
    found = done.truth.mistakes(done.originals, _MISTAKES)
    return [
        (
            "Wrongly joined",
            "A duplicate, and the original that it should not have been attached to.",
            [[_shown(done, place) for place in pair] for pair in found.joined],
        ),
        (
            "Missed",
            "A document that was not attached, and what it should have been joined with.",
            [[_shown(done, place) for place in pair] for pair in found.missed],
        ),
    ]


def _shown(done: Evaluation, position: int) -> dict[str, Any]:
    document = done.corpus.documents[position]
    text = document.text
    return {"id": document.id, "text": text if len(text) <= _SHOWN else text[:_SHOWN] + " …"}
