"""``stream-dedup query``: whether texts are known, without registering them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path

import click

from stream_dedup.cli.options import settings_options
from stream_dedup.errors import InputError
from stream_dedup.query import Answer, Query, Question, Standing, open_index
from stream_dedup.settings import Settings
from stream_dedup.stream.files import STANDARD, read_lines, read_text
from stream_dedup.stream.lines import JsonLines, TextLines, line_bytes
from stream_dedup.stream.poison import Poison
from stream_dedup.stream.stages import LineFormat
from stream_dedup.types import Document

#: Lines asked about together.
_BATCH = 256

_EPILOG = """\b
Examples:
  stream-dedup query "The ferry leaves at nine." --state originals.db
  stream-dedup query - --redis-url redis://redis:6379/0 --explain < text.txt
  stream-dedup query --file posts.jsonl --json | jq 'select(.known | not)'
  stream-dedup query --file titles.txt --format text --state originals.db

\b
Exit codes, like those of grep:
  0   a text is known
  1   none is
  2   a flag or a setting is wrong
  65  a document cannot be read
  69  Redis is out of reach, or has no such index
  73  the state file cannot be used, or a run is using it
  78  the index was made with other fingerprint settings
"""


@click.command(epilog=_EPILOG)
@click.argument("text", required=False)
@click.option(
    "--file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="File of many documents, JSON lines (plain, gzip or zstd), - for standard input.",
)
@click.option(
    "--format",
    "line_format",
    type=click.Choice(["jsonl", "text"]),
    default="jsonl",
    show_default=True,
    help="What a line of that file is: a JSON object, or the text itself.",
)
@click.option(
    "--state",
    type=click.Path(dir_okay=False, path_type=Path),
    help="State file of `run` to ask; without it, the index in Redis.",
)
@click.option("--explain", is_flag=True, help="Say why, and list the originals that come nearest.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each document.")
@settings_options("input", "fingerprint", "redis")
@click.pass_context
def query(
    context: click.Context,
    *,
    text: str | None,
    file: Path | None,
    line_format: str,
    state: Path | None,
    explain: bool,
    as_json: bool,
    settings: Settings,
) -> None:
    """Say whether a text is known, what its original is and how similar the two are.

    TEXT is the text itself, or - for one text on standard input. Nothing is registered and nothing
    written: of Redis it takes no more than the right to read. Documents of a file are not compared
    with each other. A document without an event time is asked about as of now.
    """
    if (text is None) == (file is None):
        msg = "Give a text, - for standard input, or documents with --file."
        raise click.UsageError(msg)
    lines: LineFormat = TextLines(settings) if line_format == "text" else JsonLines(settings)
    documents = _one(text or "", settings) if file is None else _all(file, lines, settings)
    questions = (
        Question(document, document.id if file is not None else None, explain)
        for document in documents
    )
    known = False
    with closing(open_index(settings, state)) as index:
        asked = Query(settings, index)
        while part := list(islice(questions, _BATCH)):
            for answer in asked.ask(part):
                click.echo(answer.json_line() if as_json else _sentences(answer))
                known = known or answer.known
    context.exit(0 if known else 1)


def _one(text: str, settings: Settings) -> Iterator[Document]:
    if text != str(STANDARD):
        yield Document("", text)
        return
    try:
        yield Document("", read_text(STANDARD, settings.max_document_bytes))
    except (OSError, UnicodeDecodeError) as error:
        msg = f"Standard input cannot be read: {error}. Send text in UTF-8."
        raise InputError(msg) from error


def _all(path: Path, lines: LineFormat, settings: Settings) -> Iterator[Document]:
    for line in read_lines(path, 0, line_bytes(settings)):
        try:
            yield lines.decode(line)
        except Poison as poison:
            msg = f"{line.name} is not a document: {poison.detail} Correct it, or leave it out."
            raise InputError(msg) from poison


def _sentences(answer: Answer) -> str:
    name = "" if answer.id is None else f"{answer.id}  "
    if not answer.known:
        lines = [f"{name}new"]
    else:
        kind = "exact" if answer.status is Standing.EXACT_DUPLICATE else "near"
        scores = []
        if answer.similarity is not None:
            scores.append(f"{answer.measure or 'similarity'} {answer.similarity:.4f}")
        if answer.hamming_distance is not None:
            scores.append(f"Hamming distance {answer.hamming_distance}")
        known = f"known: {kind} duplicate of {answer.original_id}, {', '.join(scores)}"
        lines = [f"{name}{known}, duplicate id {answer.duplicate_id}"]
    if answer.why is not None:
        lines.append(f"  {answer.why.reason}")
        lines += [
            f"  {sighting.original_id}: score {sighting.score:g}, {sighting.tables_hit} of "
            f"{answer.why.tables} table keys, {'near' if sighting.near else 'not near'}"
            for sighting in answer.why.candidates
        ]
    return "\n".join(lines)
