"""``stream-dedup sample``: pairs to label."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from stream_dedup.cli.options import settings_options
from stream_dedup.cli.truth import documents_argument, seed_option
from stream_dedup.evaluate.documents import read_corpus
from stream_dedup.evaluate.join import resembling_pairs
from stream_dedup.evaluate.request import sets_of
from stream_dedup.evaluate.sampling import sample, strata
from stream_dedup.settings import Settings
from stream_dedup.stream.files import STANDARD, open_output

_EPILOG = """\b
Examples:
  stream-dedup sample posts.jsonl --count 200 -o to-label.jsonl
  (write 1 or 0 for each null after "label")
  stream-dedup evaluate posts.jsonl --pairs to-label.jsonl
  stream-dedup tune posts.jsonl --pairs to-label.jsonl --precision 0.98

\b
Exit codes:
  0   done
  2   a flag or a setting is wrong
  65  a document cannot be read, or the file cannot be written
"""


@click.command("sample", epilog=_EPILOG)
@documents_argument
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    default=STANDARD,
    help="File to write; without it, standard output.",
)
@click.option(
    "--count",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Pairs to draw, as many from each stratum.",
)
@click.option(
    "--floor",
    type=click.FloatRange(0.05, 1, max_open=True),
    default=0.3,
    show_default=True,
    help="Exact resemblance from which pairs are drawn; below it, none is.",
)
@seed_option
@settings_options("input", "fingerprint")
def sample_command(
    *,
    documents: tuple[Path, ...],
    output: Path,
    count: int,
    floor: float,
    random_seed: int,
    settings: Settings,
) -> None:
    """Draw pairs of documents for a person to label, stratified by exact resemblance.

    Each line is one pair with both ids and texts, its similarity and the label null. Replace null
    by 1 for duplicates and 0 for others; pairs that stay null are left out. `evaluate` and `tune`
    weigh each pair by how many of its stratum there are.
    """
    corpus = read_corpus(documents, settings, None)
    pairs = resembling_pairs(sets_of(corpus, settings, settings.shingle), floor)
    drawn = sample(corpus, pairs, count, random_seed)
    with open_output(output) as file:
        file.write(b"".join(msgspec.json.encode(pair) + b"\n" for pair in drawn))
    for stratum in strata(pairs):
        taken = sum(pair.stratum == stratum.name for pair in drawn)
        click.echo(f"{stratum.name:<9} {taken:>6,} of {len(stratum.pairs):,} pairs", err=True)
