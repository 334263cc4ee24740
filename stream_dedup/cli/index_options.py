"""Which index a command works on: a state file, or the one in Redis."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from stream_dedup.deduplicator import Deduplicator
from stream_dedup.settings import Settings


def state_option() -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command ``--state``."""
    return click.option(
        "--state",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="File that keeps the originals, if they are not in Redis.",
    )


def open_index(context: click.Context, settings: Settings, state: Path | None) -> Deduplicator:
    """Open the index in a state file, or in Redis if none is named.

    Raises:
        ServiceError: Redis is out of reach.
        StateError: the state file cannot be used.
        ConfigurationMismatch: the index was built with other fingerprint settings.
    """
    if state is None:
        # Imported here because a state file does without the client.
        from stream_dedup.index.redis import RedisIndex  # noqa: PLC0415

        return Deduplicator(settings, index=RedisIndex.connect(settings))
    if context.get_parameter_source("redis_url") is ParameterSource.COMMANDLINE:
        msg = "--state and --redis-url name two places for the originals. Name one."
        raise click.UsageError(msg)
    return Deduplicator(settings, state=state)
