"""``stream-dedup export`` and ``import``: the originals of an index as a Parquet file."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import cast

import click
import numpy as np

from stream_dedup.cli.options import settings_options
from stream_dedup.cli.rebuild import new_state
from stream_dedup.deduplicator import Deduplicator
from stream_dedup.errors import SettingsError
from stream_dedup.index.base import IndexBatch
from stream_dedup.index.rebuilding import Past, RedisRebuilding
from stream_dedup.index.redis import RedisIndex
from stream_dedup.settings import Settings

#: Originals registered together.
_WRITTEN = 2_000

_EPILOG = """\b
Exit codes:
  0   done
  2   a flag or a setting is wrong, or pyarrow is not installed
  65  the Parquet file cannot be read or written
  69  Redis is out of reach, or the index holds something else
  73  the state file cannot be used
  78  the index or the file was made with other fingerprint settings
"""
_EXPORT_EPILOG = f"""\b
Examples:
  stream-dedup export originals.parquet --redis-url redis://10.0.0.1:6379
  stream-dedup export originals.parquet --state originals.db

{_EPILOG}"""
_IMPORT_EPILOG = f"""\b
Examples:
  stream-dedup import originals.parquet --redis-namespace sd2
  stream-dedup import originals.parquet --state new.db

{_EPILOG}"""


@click.command(epilog=_EXPORT_EPILOG)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--state",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="State file to export; without it, the index in Redis.",
)
@settings_options("fingerprint", "redis")
def export(*, file: Path, state: Path | None, settings: Settings) -> None:
    """Write the originals of an index into a Parquet FILE, in order of registration.

    Workers may go on meanwhile: what they register after the export began is left out.
    """
    _check_installed()
    # Imported here because pyarrow is optional.
    from stream_dedup.index.parquet import write_originals  # noqa: PLC0415

    with _open(settings, state) as deduplicator:
        originals = deduplicator.index.read_originals()
        written = write_originals(file, originals, deduplicator.fingerprinter)
    click.echo(f"Wrote {written:,} originals to {file}.", err=True)


@click.command("import", epilog=_IMPORT_EPILOG)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--state",
    type=click.Path(dir_okay=False, path_type=Path),
    help="New state file to fill; without it, the index in Redis.",
)
@settings_options("fingerprint", "redis")
def import_command(*, file: Path, state: Path | None, settings: Settings) -> None:
    """Register the originals of a Parquet FILE that export wrote in a new index.

    The index in Redis must be empty. An import that was interrupted is made again, from the same
    file; nothing is registered twice.
    """
    _check_installed()
    # Imported here because pyarrow is optional.
    from stream_dedup.index.parquet import read_originals  # noqa: PLC0415

    registered = 0
    with ExitStack() as stack:
        place = state and stack.enter_context(new_state(state))
        deduplicator = stack.enter_context(_open(settings, place))
        batches = read_originals(file, deduplicator.fingerprinter)
        if isinstance(deduplicator.index, RedisIndex):
            registered = _into_redis(deduplicator, file.name, batches)
        else:
            for batch in batches:
                deduplicator.index.register(batch)
                registered += len(batch)
    click.echo(f"Registered {registered:,} originals from {file}.", err=True)


def _open(settings: Settings, state: Path | None) -> Deduplicator:
    if state is None:
        return Deduplicator(settings, index=RedisIndex.connect(settings))
    return Deduplicator(settings, state=state)


def _into_redis(deduplicator: Deduplicator, name: str, batches: Iterator[IndexBatch]) -> int:
    index = cast("RedisIndex", deduplicator.index)
    target = RedisRebuilding(index)
    target.start(f"file {name}")
    registered = 0
    for batch in batches:
        for start in range(0, len(batch), _WRITTEN):
            some = batch.rows(range(start, start + _WRITTEN))
            none = np.zeros(len(some), np.int64)
            registered += target.register(some, Past(none, none))
    target.finish()
    return registered


def _check_installed() -> None:
    if importlib.util.find_spec("pyarrow") is None:
        msg = (
            "Parquet needs the package pyarrow, which is not installed. Install it (pip install "
            "'stream-dedup[parquet]')."
        )
        raise SettingsError(msg)
