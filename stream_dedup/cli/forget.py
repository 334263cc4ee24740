"""``stream-dedup forget``: remove documents from an index by their ids."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import click
import msgspec

from stream_dedup.cli.index_options import open_index, state_option
from stream_dedup.cli.options import settings_options
from stream_dedup.cli.sweep import told
from stream_dedup.errors import InputError
from stream_dedup.index.base import Index
from stream_dedup.index.expiry import Swept
from stream_dedup.settings import Settings
from stream_dedup.types import DocumentId, ids_meant_by

#: Ids forgotten together.
_IDS = 10_000
#: Characters of a line that names one.
_LINE_CHARACTERS = 1 << 20

_EPILOG = """\b
Examples:
  stream-dedup forget post-17 post-23 --redis-url redis://10.0.0.1:6379
  stream-dedup forget 1017 --config worker.toml --sweep
  stream-dedup forget - --state originals.db < ids.txt

\b
Exit codes:
  0   done; also when an id had no original
  2   a flag or a setting is wrong
  65  a line is no id
  69  Redis is out of reach, or the index keeps no ids
  73  the state file cannot be used
  78  the index was built with other fingerprint settings
"""


class Forgotten(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the command did; its JSON form is printed with ``--json``.

    Attributes:
        ids: ids that were given.
        originals: originals that had them, and are gone.
        unknown: ids that no original had.
        swept: what the sweep removed.
    """

    ids: int
    originals: int
    unknown: int
    swept: dict[str, int] | None = None


@click.command("forget", epilog=_EPILOG)
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@state_option()
@click.option("--sweep", is_flag=True, help="Sweep the index afterwards: see stream-dedup sweep.")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
@settings_options("fingerprint", "forgetting", "redis")
@click.pass_context
def forget_command(
    context: click.Context,
    *,
    ids: tuple[str, ...],
    state: Path | None,
    sweep: bool,
    as_json: bool,
    settings: Settings,
) -> None:
    """Forget documents: remove the originals that have these ids.

    What an original was is gone at once and matches no document any more; the next one that would
    have been its duplicate is an original. Decisions that are published stand. Workers may go on.

    ID is a document id, or - for lines of standard input that are one each. A whole number means
    the document of that number, and also the one whose id is a string of these digits; in JSON
    quotes it is the string alone.
    """
    counts = [0, 0, 0]
    swept: Swept | None = None
    with open_index(context, settings, state) as deduplicator:
        given = _given(ids)
        while batch := list(islice(given, _IDS)):
            for at, count in enumerate(_forget(deduplicator.index, batch)):
                counts[at] += count
        if sweep:
            swept = deduplicator.index.sweep()
    given_ids, originals, unknown = counts
    done = Forgotten(given_ids, originals, unknown, swept._asdict() if swept else None)
    if as_json:
        click.echo(msgspec.json.encode(done).decode())
    else:
        click.echo("\n".join([*_sentences(done), *(told(swept) if swept else [])]))


def _given(ids: Sequence[str]) -> Iterator[str]:
    for one in ids:
        if one == "-":
            while line := sys.stdin.readline(_LINE_CHARACTERS):
                if len(line) == _LINE_CHARACTERS:
                    msg = f"The line that begins with {line[:20]!r} is too long to be an id."
                    raise InputError(f"{msg} Give an id a line.")
                if not line.isspace():
                    yield line.strip()
        else:
            yield one


def _forget(index: Index, given: Sequence[str]) -> tuple[int, int, int]:
    """Forget ids; return how many there were, their originals, and those without any."""
    meant: list[DocumentId] = []
    owners: list[int] = []
    for at, text in enumerate(given):
        for one in read_id(text):
            meant.append(one)
            owners.append(at)
    originals = [0] * len(given)
    for at, count in zip(owners, index.forget(meant), strict=True):
        originals[at] += count
    return len(given), sum(originals), originals.count(0)


def read_id(text: str) -> list[DocumentId]:
    """Return the document ids that a word on the command line means.

    Raises:
        InputError: it begins like a JSON string and is none.
    """
    if text.startswith('"'):
        try:
            return [msgspec.json.decode(text, type=str)]
        except msgspec.DecodeError as error:
            msg = f"{text} is no id: {error}. Write it without quotes, or as a JSON string."
            raise InputError(msg) from error
    return ids_meant_by(text)


def _sentences(done: Forgotten) -> list[str]:
    lines = [f"{done.originals:>12,}  originals forgotten, of {done.ids:,} ids"]
    if done.unknown:
        lines.append(f"{done.unknown:>12,}  ids had none")
    return lines
