"""``stream-dedup evaluate``: how good the decisions are."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import msgspec

from stream_dedup.cli.options import settings_options
from stream_dedup.cli.truth import documents_argument, truth_options
from stream_dedup.evaluate import plots
from stream_dedup.evaluate.evaluation import Evaluation, curve_grid, evaluate, pictures
from stream_dedup.evaluate.measures import Intervals
from stream_dedup.evaluate.report import html, terminal
from stream_dedup.evaluate.request import Request, prepare
from stream_dedup.evaluate.sweep import Point, grid, parse_axis
from stream_dedup.settings import Settings
from stream_dedup.stream.files import open_output

_EPILOG = """\b
Examples:
  stream-dedup evaluate posts.jsonl --group-field truth.group
  stream-dedup evaluate posts.jsonl --pairs labelled.jsonl --json | jq .pairs.f1
  stream-dedup evaluate posts.jsonl --save-reference reference.tsv.gz
  stream-dedup evaluate posts.jsonl --reference reference.tsv.gz --sweep threshold=0.6:0.95:0.05
  stream-dedup evaluate posts.jsonl --sweep shingle=word:2,word:3 --sweep k=0:8 --method simhash
  stream-dedup evaluate posts.jsonl --html report.html --plots pictures

\b
Exit codes:
  0   done, whatever the figures
  2   a flag or a setting is wrong, or the extra `evaluate` is not installed
  65  a document or a pair cannot be read, or a file cannot be written
"""


@click.command("evaluate", epilog=_EPILOG)
@documents_argument
@truth_options
@click.option(
    "--sweep",
    "sweeps",
    multiple=True,
    metavar="NAME=VALUES",
    help="Measure along LOW:HIGH:STEP or A,B,C of a setting too; several make a grid.",
)
@click.option(
    "--plots",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for PNG pictures: precision and recall, S-curve, similarity.",
)
@click.option(
    "--html",
    "page",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File for a report with pictures and the mistakes, one HTML page.",
)
@click.option(
    "--floor",
    type=click.FloatRange(0.05, 1),
    help="Exact resemblance from which the pictures show pairs. Without it .3, or .1 below the "
    "threshold.",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@settings_options("input", "fingerprint")
def evaluate_command(
    *,
    documents: tuple[Path, ...],
    request: Request,
    how: Intervals,
    sweeps: tuple[str, ...],
    folder: Path | None,
    page: Path | None,
    floor: float | None,
    as_json: bool,
    settings: Settings,
) -> None:
    """Decide documents in the order of arrival and measure the decisions.

    DOCS are files of JSON lines, as for `run`. Measured are precision, recall and F1 of pairs,
    documents whose whole group is right, and the adjusted Rand index and B-cubed of groups, each
    with a confidence interval. Without labels, exact all-pairs resemblance is the reference.
    docs/evaluation.md defines every figure.
    """
    points = grid([parse_axis(sweep) for sweep in sweeps])
    drawn = folder is not None or page is not None
    if drawn:
        plots.require("matplotlib")
    if page is not None:
        plots.require("jinja2")
    corpus, truth = prepare(documents, settings, request)
    if drawn and not points:
        points = curve_grid(settings)
    done = evaluate(settings, corpus, truth, how, sweep=points, progress=tell)
    if drawn:
        title = f"Evaluation of {', '.join(path.name for path in documents)}"
        _draw(done, floor, folder, page, title)
    click.echo(msgspec.json.encode(done.as_json()) if as_json else terminal(done))


def _draw(
    done: Evaluation, floor: float | None, folder: Path | None, page: Path | None, title: str
) -> None:
    shown = pictures(done, floor)
    if folder is not None:
        for path in plots.save(shown, folder):
            click.echo(f"Wrote {path}.", err=True)
    if page is not None:
        with open_output(page) as output:
            output.write(html(done, shown, title).encode("utf-8", "replace"))
        click.echo(f"Wrote {page}.", err=True)


def tell(point: Point) -> None:
    """Tell whoever waits at a terminal which point of a grid is done."""
    if sys.stderr.isatty():
        values = ", ".join(f"{name} {value}" for name, value in point.values.items())
        click.echo(f"{values}: {point.seconds:.1f} s", err=True)
