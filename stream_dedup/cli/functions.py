"""``stream-dedup functions``: what this version needs to have in Redis beside the data."""

from __future__ import annotations

from contextlib import closing

import click

from stream_dedup.cli.options import settings_options
from stream_dedup.errors import ServiceError
from stream_dedup.settings import Settings

_EPILOG = """\b
Examples:
  STREAM_DEDUP_REDIS_URL=redis://deployer:secret@redis:6379 stream-dedup functions load
  stream-dedup functions load --config deployer.toml

\b
Exit codes:
  0   done
  2   a flag or a setting is wrong
  69  Redis is out of reach, or the user may not load Functions
"""


@click.group(epilog=_EPILOG)
def functions() -> None:
    """Put into Redis the Functions that this version calls."""


@functions.command(epilog=_EPILOG)
@settings_options("redis")
def load(settings: Settings) -> None:
    """Load the Functions of this version, beside those of others.

    Workers load what they need when they start, if their Redis user may; where it may not, this is
    run before, as a user with +function|load. It may be repeated, and run at any time: programs of
    other versions have Functions of their own, which stay.
    """
    # Imported here because files do without the client.
    from stream_dedup.index.connection import connect  # noqa: PLC0415
    from stream_dedup.index.functions import LIBRARIES, load_all  # noqa: PLC0415

    with closing(connect(settings)) as client:
        refused = load_all(client)
    if refused:
        msg = (
            f"The Redis user may not load {', '.join(refused)}. Give it +function|load, or run "
            "this as a user that has it."
        )
        raise ServiceError(msg)
    click.echo(f"Loaded {', '.join(library.name for library in LIBRARIES)}.")
