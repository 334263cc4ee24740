"""``stream-dedup tune``: settings for a wanted precision or recall."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from stream_dedup.cli.evaluate import tell
from stream_dedup.cli.options import settings_options, write_settings
from stream_dedup.cli.truth import documents_argument, truth_options
from stream_dedup.evaluate.measures import Intervals
from stream_dedup.evaluate.report import aligned, measure_rows, shown, sweep_rows
from stream_dedup.evaluate.request import Request, prepare
from stream_dedup.evaluate.sweep import grid, parse_axis
from stream_dedup.evaluate.tuning import Aim, Proposal, default_grid, tune
from stream_dedup.settings import Settings

#: Points that are printed.
_LISTED = 10
_MEASURES = ("pairs.f1", "documents.accuracy", "groups.ari", "groups.bcubed_f1")

_EPILOG = """\b
Examples:
  stream-dedup tune posts.jsonl --pairs labelled.jsonl --precision 0.98 --write tuned.toml
  stream-dedup tune posts.jsonl --truth groups --measure documents.accuracy
  stream-dedup tune posts.jsonl --grid threshold=0.5:0.9:0.1 --grid shingle=word:2,word:3
  stream-dedup run posts.jsonl --config tuned.toml -o annotated.jsonl

\b
Exit codes:
  0   done; the wanted precision or recall may still be out of reach, the table says so
  2   a flag or a setting is wrong
  65  a document or a pair cannot be read
"""


@click.command("tune", epilog=_EPILOG)
@documents_argument
@truth_options
@click.option(
    "--precision",
    type=click.FloatRange(0, 1),
    help="Precision of pairs that is wanted; the best recall that has it is proposed.",
)
@click.option(
    "--recall",
    type=click.FloatRange(0, 1),
    help="Recall of pairs that is wanted; the best precision that has it is proposed.",
)
@click.option(
    "--measure",
    type=click.Choice(_MEASURES),
    default="pairs.f1",
    show_default=True,
    help="What is made best when neither is given, or both.",
)
@click.option(
    "--grid",
    "axes",
    multiple=True,
    metavar="NAME=VALUES",
    help="Settings to try, as for evaluate --sweep, instead of the grid in docs/evaluation.md.",
)
@click.option(
    "--write",
    type=click.Path(dir_okay=False, path_type=Path),
    help="New TOML file for the proposed settings.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the proposal as JSON.")
@settings_options("input")
def tune_command(
    *,
    documents: tuple[Path, ...],
    request: Request,
    how: Intervals,
    precision: float | None,
    recall: float | None,
    measure: str,
    axes: tuple[str, ...],
    write: Path | None,
    as_json: bool,
    settings: Settings,
) -> None:
    """Try settings on one half of the documents, and hold the best to the other half.

    The halves are made of whole groups of the truth. A point that reaches the wanted precision or
    recall goes before all that do not. The figures to believe are those of the held-out half.
    """
    corpus, truth = prepare(documents, settings, request)
    points: Sequence[dict[str, Any]] = grid([parse_axis(axis) for axis in axes])
    found = tune(
        settings,
        points=points or default_grid(len(corpus.documents)),
        corpus=corpus,
        truth=truth,
        aim=Aim(measure, precision, recall),
        how=how,
        progress=tell,
    )
    click.echo(msgspec.json.encode(_described(found)) if as_json else _sentences(found, how))
    if write is not None:
        _write(write, found)


def _described(found: Proposal) -> dict[str, Any]:
    return {
        "settings": found.points[0].values,
        "held_out": found.held_out,
        "all_documents": found.everything,
        "tuned": found.points[0].report,
        "documents": list(found.documents),
        "points": [
            {"settings": point.values, **(point.report or {})} for point in found.points[:_LISTED]
        ],
    }


def _sentences(found: Proposal, how: Intervals) -> str:
    tuned, rest = found.documents
    chosen = ", ".join(f"{name} {value}" for name, value in found.points[0].values.items())
    head = ("", "value", f"{how.confidence:.0%} interval")
    return "\n".join(
        [
            f"{len(found.points)} points on {tuned:,} documents; the best:",
            "",
            *aligned(sweep_rows(found.points[:_LISTED])),
            "",
            f"Proposed: {chosen}",
            f"On the {rest:,} documents held out:",
            "",
            *aligned([head, *measure_rows(found.held_out)]),
        ]
    )


def _write(path: Path, found: Proposal) -> None:
    """Write the proposed settings into a new file."""
    pairs = found.held_out["pairs"]
    held = ", ".join(f"{name} {shown(pairs[name])}" for name in ("precision", "recall", "f1"))
    comment = f"Tuned; on documents held out, pairs: {held}."
    write_settings(path, [comment], found.points[0].values)
