"""``stream-dedup learn frequencies``: in how many documents each shingle occurs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import msgspec

from stream_dedup.cli.options import inputs_argument, settings_options
from stream_dedup.errors import InputError, SettingsError
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.fingerprint.frequencies import CELLS, Frequencies, read_frequencies
from stream_dedup.fingerprint.hashing import frequencies_origin
from stream_dedup.fingerprint.weights import distinct
from stream_dedup.settings import Settings
from stream_dedup.stream.files import read_lines
from stream_dedup.stream.lines import JsonLines, line_bytes
from stream_dedup.stream.poison import Poison
from stream_dedup.types import Document, Method

#: Documents shingled together.
_BATCH = 256

_EPILOG = """\b
Examples:
  stream-dedup learn frequencies posts.jsonl -o posts.freq
  stream-dedup learn frequencies more.jsonl.gz --extend posts.freq -o posts.freq
  kcat -C -b localhost:9092 -t documents -q | stream-dedup learn frequencies - -o live.freq
  stream-dedup run posts.jsonl --method simhash --weights tfidf --frequencies-file posts.freq

\b
Exit codes:
  0   done
  2   a flag or a setting is wrong
  65  a line is not a document (see --skip), or a file cannot be read or written
"""


@click.command(epilog=_EPILOG)
@inputs_argument("inputs", "INPUT...")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="File to write.",
)
@click.option(
    "--extend",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File of frequencies to go on from; it may be the one that is written.",
)
@click.option(
    "--cell-bits",
    type=click.IntRange(10, 28),
    default=CELLS.bit_length() - 1,
    show_default=True,
    help="Size of the table: 2 to this power of cells in each of 4 rows, 4 bytes each.",
)
@click.option(
    "--every",
    type=click.IntRange(min=1),
    default=100_000,
    show_default=True,
    help="Write the file anew after so many documents.",
)
@click.option("--skip", is_flag=True, help="Leave out lines that are no documents.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
@settings_options("input", "fingerprint")
def frequencies(
    *,
    inputs: tuple[Path, ...],
    output: Path,
    extend: Path | None,
    cell_bits: int,
    every: int,
    skip: bool,
    as_json: bool,
    settings: Settings,
) -> None:
    """Learn from documents how rare each shingle is, for weights = "tfidf".

    INPUT is a file of JSON lines (plain, gzip or zstd), or - for standard input, which may be a
    stream without end: the file is written anew every so many documents, and when the command is
    interrupted. An index is used with one file, the same from its first document to its last.
    """
    learned = _begin(settings, extend, 1 << cell_bits)
    # Shingles are the same by any method, and these need no frequencies.
    shingler = Fingerprinter(
        settings.model_copy(update={"method": Method.MINHASH, "weights": "tf"})
    )
    skipped = unwritten = 0
    try:
        for documents, left_out in _batches(inputs, settings, skip=skip):
            shingles = shingler.shingles(
                [document.text for document in documents],
                [document.origin for document in documents],
            )
            learned.add(distinct(shingles).hashes, len(documents))
            skipped += left_out
            unwritten += len(documents)
            if unwritten >= every:
                learned.write(output)
                unwritten = 0
    except KeyboardInterrupt:
        learned.write(output)
        raise
    if not learned.documents:
        msg = "There was no document to learn from. Name a file that has some."
        raise InputError(msg)
    learned.write(output)
    summary = {
        "documents": learned.documents,
        "shingles": learned.shingles,
        "skipped": skipped,
        "digest": learned.digest(),
    }
    click.echo(msgspec.json.encode(summary).decode() if as_json else _sentence(summary))


def _begin(settings: Settings, extend: Path | None, cells: int) -> Frequencies:
    """Return what is gone on from."""
    origin = frequencies_origin(settings)
    if extend is None:
        return Frequencies(origin, cells)
    learned = read_frequencies(extend)
    if learned.origin != origin:
        msg = (
            f"{extend} was learned with other settings: another shingle (it has "
            f"{learned.origin.shingle}) or seed. Extend it with the same, or begin a new file."
        )
        raise SettingsError(msg)
    return learned


def _batches(
    inputs: Sequence[Path], settings: Settings, *, skip: bool
) -> Iterator[tuple[list[Document], int]]:
    """Yield documents, and how many lines were left out between them."""
    lines = JsonLines(settings)
    documents: list[Document] = []
    skipped = 0
    for path in inputs:
        for line in read_lines(path, 0, line_bytes(settings)):
            try:
                documents.append(lines.decode(line))
            except Poison as poison:
                if not skip:
                    msg = (
                        f"{line.name} is not a document: {poison.detail} Leave it out with --skip."
                    )
                    raise InputError(msg) from poison
                skipped += 1
            if len(documents) == _BATCH:
                yield documents, skipped
                documents, skipped = [], 0
    if documents or skipped:
        yield documents, skipped


def _sentence(summary: dict[str, object]) -> str:
    return "{documents:,} documents, {shingles:,} distinct shingles; {skipped:,} skipped".format(
        **summary
    )
