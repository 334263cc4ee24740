"""``stream-dedup explain``: why documents match, or do not."""

from __future__ import annotations

import re
from contextlib import closing
from itertools import islice
from pathlib import Path

import click
import msgspec
from click.core import ParameterSource

from stream_dedup.cli.options import settings_options
from stream_dedup.deduplicator import Stages
from stream_dedup.errors import InputError
from stream_dedup.explain import LISTED, Comparison, Sighting, compare, look_up
from stream_dedup.query import open_index
from stream_dedup.settings import Settings
from stream_dedup.stream.files import read_lines, read_text
from stream_dedup.stream.lines import JsonLines, line_bytes
from stream_dedup.stream.poison import Poison
from stream_dedup.types import Document

_EPILOG = """\b
Examples:
  stream-dedup explain posts.jsonl:3 posts.jsonl:9
  stream-dedup explain old.txt new.txt --method simhash
  stream-dedup explain new.txt --state originals.db
  stream-dedup explain new.txt --redis-url redis://redis:6379/0
  echo 'some text' | stream-dedup explain - --state originals.db --json

\b
Exit codes:
  0   done, match or no match
  2   a flag or a setting is wrong
  65  a document cannot be read
  69  Redis is out of reach, or has no such index
  73  the state file cannot be used, or a run is using it
  78  the state file, or the index in Redis, was made with other fingerprint settings
"""


@click.command(epilog=_EPILOG)
@click.argument("document")
@click.argument("other", required=False)
@click.option(
    "--state",
    type=click.Path(dir_okay=False, path_type=Path),
    help="State file of `run` to look the document up in; it is not changed.",
)
@click.option(
    "--redis",
    is_flag=True,
    help="Look the document up in the index in Redis, at redis_url; a --redis-url implies it. "
    "Nothing is written there.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the explanation as JSON.")
@settings_options("input", "fingerprint", "redis")
@click.pass_context
def explain(
    context: click.Context,
    *,
    document: str,
    other: str | None,
    state: Path | None,
    redis: bool,
    as_json: bool,
    settings: Settings,
) -> None:
    """Say why two documents match or do not, or which originals of an index one comes near.

    DOCUMENT and OTHER are text files, FILE:LINE for one line of a JSON lines file, or - for
    standard input.
    """
    redis = redis or context.get_parameter_source("redis_url") is ParameterSource.COMMANDLINE
    if [other is not None, state is not None, redis].count(True) != 1:
        msg = "Give a second document, or a state file with --state, or --redis."
        raise click.UsageError(msg)
    read = _read(document, settings)
    stages = Stages(settings)
    if other is not None:
        compared = compare(stages, read, _read(other, settings))
        click.echo(msgspec.json.encode(compared) if as_json else _comparison(compared))
        return
    with closing(open_index(settings, state)) as index:
        found = look_up(stages, index, read)
    if as_json:
        click.echo(msgspec.json.encode([sighting.model_dump() for sighting in found]))
    else:
        click.echo(_sightings(found))


def _read(name: str, settings: Settings) -> Document:
    """Read one document."""
    match = re.fullmatch(r"(.+):(\d+)", name)
    if match and not Path(name).exists():
        return _read_line(Path(match[1]), int(match[2]), settings)
    try:
        return Document(name, read_text(Path(name), settings.max_document_bytes))
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{name} cannot be read: {error}. Name a UTF-8 text file, or FILE:LINE."
        raise InputError(msg) from error


def _read_line(path: Path, number: int, settings: Settings) -> Document:
    lines = read_lines(path, 0, line_bytes(settings))
    wanted = f"{path.name}:{number}"
    line = next((line for line in islice(lines, number) if line.name == wanted), None)
    if line is None:
        msg = f"{path} has no document in line {number}. Name a line that has one."
        raise InputError(msg)
    try:
        return JsonLines(settings).decode(line)
    except Poison as poison:
        msg = f"{wanted} is not a document: {poison.detail} Name another line."
        raise InputError(msg) from poison


def _comparison(found: Comparison) -> str:
    estimated = found.estimated_resemblance
    rows = {
        "shingles": "{} and {}, {} in common".format(*found.shingles, found.shingles_in_common),
        "resemblance": f"{found.resemblance:.4f} exact"
        + ("" if estimated is None else f", {estimated:.4f} estimated"),
        "containment": "{:.4f} of the first in the second, {:.4f} of the second in the "
        "first".format(*found.containment),
        "Hamming distance": f"{found.hamming_distance} of {found.simhash_bits} bits (SimHash)",
        "table keys shared": f"{len(found.tables_hit)} of {found.tables}",
    }
    if found.measure is not None:
        rows |= {found.measure.value: f"{found.score:.4f} by {found.verify_by}, which decides"}
    lines = [f"{'Match' if found.match else 'No match'}. {found.reason}"]
    lines += [f"  {name:<18}  {value}" for name, value in rows.items()]
    if found.differences:
        lines.append("  first differences")
        lines += [f"    {left!r} / {right!r}" for left, right in found.differences]
    return "\n".join(lines)


def _sightings(found: list[Sighting]) -> str:
    if not found:
        return "No match. No original shares a table key with this document."
    near = sum(sighting.near for sighting in found)
    verdict = "Match" if near else "No match"
    lines = [f"{verdict}. {len(found)} originals share a table key, {near} of them near."]
    lines.append("  score   tables  near  original")
    for sighting in found[:LISTED]:
        passed = "yes" if sighting.near else "no"
        lines.append(
            f"  {sighting.score:<7g} {sighting.tables_hit:>6}  {passed:<4}  {sighting.original_id}"
        )
    return "\n".join(lines)
