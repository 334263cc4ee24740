"""``stream-dedup learn boilerplate``: count the lines that documents of an origin share."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import click
import msgspec

from stream_dedup.cli.options import inputs_argument, settings_options
from stream_dedup.errors import InputError
from stream_dedup.settings import Settings
from stream_dedup.stream.files import Line, open_output, read_lines
from stream_dedup.stream.lines import JsonLines, line_bytes
from stream_dedup.stream.poison import Poison
from stream_dedup.text.boilerplate import Boilerplate
from stream_dedup.text.learn import BoilerplateLearner
from stream_dedup.types import Document

#: Documents counted together.
_BATCH = 1024
#: Origins that the summary names.
_LARGEST = 5

_EPILOG = """\b
Examples:
  stream-dedup learn boilerplate posts.jsonl --origin-field site -o boilerplate.bin
  stream-dedup learn boilerplate pages.jsonl.zst --clean markup,numbers -o boilerplate.bin
  stream-dedup run pages.jsonl.zst --clean markup,numbers,boilerplate \\
      --boilerplate-file boilerplate.bin -o annotated.jsonl

\b
Exit codes:
  0   done
  2   a flag or a setting is wrong
  65  a line is not a document, or a file cannot be read or written
"""


class _Found(msgspec.Struct, frozen=True):
    """What was learned, as it is printed."""

    documents: int
    origins: int
    origins_with_boilerplate: int
    lines: int
    digest: str


@click.command(epilog=_EPILOG)
@inputs_argument("documents", "DOCUMENTS...")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write, for the setting boilerplate_file.",
)
@click.option(
    "--min-documents",
    type=click.IntRange(min=2),
    default=10,
    show_default=True,
    help="Documents of its origin that must have a line.",
)
@click.option(
    "--min-share",
    type=click.FloatRange(0, 1),
    default=0.05,
    show_default=True,
    help="Share of its origin's documents that must have it as well.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
@settings_options("input", also=("clean",))
def boilerplate(
    *,
    documents: tuple[Path, ...],
    output: Path,
    min_documents: int,
    min_share: float,
    as_json: bool,
    settings: Settings,
) -> None:
    """Learn which lines the documents of an origin have in common: menus, notices, share buttons.

    DOCUMENTS are files of JSON lines (plain, gzip or zstd), or - for standard input. Give --clean
    as for run: the steps before boilerplate are applied first. Best learned from originals, or a
    text that is often copied counts as often. Memory stays below 500 MB, whatever the number of
    documents; what it does not hold is kept in a temporary folder (TMPDIR), 16 bytes a line.
    """
    with tempfile.TemporaryDirectory(prefix="stream-dedup-") as folder:
        learner = BoilerplateLearner(settings, Path(folder))
        read = _read(documents, settings)
        while batch := list(islice(read, _BATCH)):
            learner.add(batch)
        learned = learner.learn(min_documents, min_share)
    with open_output(output) as file:
        file.write(learned.encode())
    found = _Found(
        learner.documents, learner.origins, len(learned.origins), learned.lines, learned.digest
    )
    click.echo(msgspec.json.encode(found) if as_json else _sentences(found, learned))


def _read(paths: Iterable[Path], settings: Settings) -> Iterator[Document]:
    lines = JsonLines(settings)
    for path in paths:
        for line in read_lines(path, 0, line_bytes(settings)):
            yield _decode(line, lines)


def _decode(line: Line, lines: JsonLines) -> Document:
    try:
        return lines.decode(line)
    except Poison as poison:
        msg = f"{line.name} is not a document: {poison.detail} Correct it, or leave it out."
        raise InputError(msg) from poison


def _sentences(found: _Found, learned: Boilerplate) -> str:
    total = (
        f"{found.lines:,} boilerplate lines in {found.origins_with_boilerplate:,} of "
        f"{found.origins:,} origins, from {found.documents:,} documents"
    )
    largest = sorted(learned.origins.items(), key=lambda item: (-item[1].lines, item[0]))
    lines = [
        f"{one.lines:>12,}  lines in {one.documents:,} documents of {origin or '(no origin)'}"
        for origin, one in largest[:_LARGEST]
    ]
    return "\n".join([total, *lines])
