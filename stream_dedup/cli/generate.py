"""``stream-dedup generate``: write a synthetic stream whose duplicates are known."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from stream_dedup.errors import SettingsError
from stream_dedup.generate import LANGUAGES, GeneratedDocument, Kind, StreamShape
from stream_dedup.generate import generate as generate_documents
from stream_dedup.stream.files import STANDARD, open_output

F = TypeVar("F", bound=Callable[..., Any])

#: Documents written together.
_BATCH = 500
_DEFAULT = StreamShape()

_EPILOG = """\b
Examples:
  stream-dedup generate -n 100000 -o documents.jsonl
  stream-dedup generate -n 1000000 --language mixed --duplicate-share 0.5 -o documents.jsonl.zst
  stream-dedup generate -n 100000 --viral 3 --viral-copies 10000 --no-truth -o viral.jsonl.gz
  stream-dedup generate -n 3 --seed 7 | head -1
"""


def _option(flag: str, name: str, help_text: str, **more: Any) -> Callable[[F], F]:
    """Return an option for one field of the stream's shape, with that field's default."""
    default = getattr(_DEFAULT, name)
    return click.option(
        *flag.split(), name, default=default, show_default=True, help=help_text, **more
    )


@click.command(epilog=_EPILOG)
@_option("-n --documents", "documents", "Documents to write.")
@_option("--duplicate-share", "duplicate_share", "Share that are copies, 0 to below 1.")
@_option("--exact-share", "exact_share", "Share of the copies that are exact, 0 to 1.")
@_option("--edits", "edits", "Words replaced in a near copy; fewer where it would get too far.")
@_option("--resemblance", "resemblance", "Least resemblance of a near copy to its original.")
@_option("--words", "words", "Mean words of a document, 5 to 10000.")
@_option(
    "--language",
    "language",
    "Script of the pseudo-text.",
    type=click.Choice([*LANGUAGES, "mixed"]),
)
@_option("--viral", "viral", "Viral posts.")
@_option("--viral-copies", "viral_copies", "Copies of each viral post.")
@_option("--distance", "distance", "Documents within which a copy follows its original.")
@_option("--rate", "rate", "Mean documents per second of event time.")
@_option("--seed", "seed", "Same options and seed, same bytes.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    default=STANDARD,
    help="File to write; .gz and .zst are compressed. Without it, standard output.",
)
@click.option("--no-truth", is_flag=True, help="Leave the truth field out.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the summary as JSON: to standard output with --output, else to standard error.",
)
def generate(*, output: Path, no_truth: bool, as_json: bool, **fields: Any) -> None:
    """Write synthetic documents, one JSON object a line, with known truth.

    Each has id, text, time and truth: the id of the original it was made from (group) and whether
    it is an original, an exact or a near copy (kind). Words are made up, so documents of different
    groups share next to nothing.
    """
    try:
        shape = StreamShape(**fields)
    except SettingsError as error:
        raise click.UsageError(str(error)) from error
    started = time.perf_counter()
    with open_output(output) as file:
        summary = _write(shape, file.write, with_truth=not no_truth)
    summary["seconds"] = round(time.perf_counter() - started, 3)
    summary["seed"] = shape.seed
    text = msgspec.json.encode(summary).decode() if as_json else _sentence(summary)
    click.echo(text, err=output == STANDARD or not as_json)


def _write(
    shape: StreamShape, write: Callable[[bytes], None], *, with_truth: bool
) -> dict[str, Any]:
    """Write every document and return the counts."""
    kinds: Counter[str] = Counter()
    written = 0
    documents = generate_documents(shape)
    while lines := list(_lines(islice(documents, _BATCH), kinds, with_truth=with_truth)):
        chunk = b"".join(lines)
        write(chunk)
        written += len(chunk)
    counts = {kind.value: kinds[kind] for kind in Kind}
    return {"documents": kinds.total(), **counts, "bytes": written}


def _lines(
    documents: Iterator[GeneratedDocument], kinds: Counter[str], *, with_truth: bool
) -> Iterator[bytes]:
    for document in documents:
        if document.truth is not None:
            kinds[document.truth.kind] += 1
        shown = document if with_truth else msgspec.structs.replace(document, truth=None)
        yield msgspec.json.encode(shown) + b"\n"


def _sentence(summary: dict[str, Any]) -> str:
    return (
        "{documents} documents: {original} originals, {exact} exact and {near} near copies; "
        "{bytes} bytes in {seconds} s".format(**summary)
    )
