"""``stream-dedup review``: a web page that shows people what was decided."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stream_dedup.cli.options import read_since, settings_options
from stream_dedup.errors import SettingsError
from stream_dedup.settings import Settings

if TYPE_CHECKING:
    from stream_dedup.review.reading.source import Source
    from stream_dedup.review.site import Ask

_EPILOG = """\b
Examples:
  stream-dedup review annotated.jsonl.zst
  stream-dedup review --state originals.db documents.jsonl
  stream-dedup review --topic --since 2h --config worker.toml
  STREAM_DEDUP_REVIEW_TOKEN_FILE=token.txt stream-dedup review --topic --review-host 0.0.0.0

\b
Exit codes:
  0   stopped by SIGTERM or SIGINT
  2   a setting is missing or out of range, or the address cannot be bound
  73  the state file or the file of the window cannot be used
  78  the state file was made with other fingerprint settings

Kafka may be away: the page shows what it has, and goes on when Kafka is back.
"""


@click.command(epilog=_EPILOG)
@click.argument(
    "files",
    nargs=-1,
    metavar="[FILE]...",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
)
@click.option(
    "--state",
    type=click.Path(dir_okay=False, path_type=Path),
    help="State file of `run`: the originals in it, or what it says of the documents in FILE.",
)
@click.option(
    "--topic",
    is_flag=True,
    help="The annotated topic (output_topic): its latest documents, and those to come.",
)
@click.option(
    "--since",
    callback=read_since,
    metavar="TIME",
    help="Begin in the topic with this time (2026-11-21T18:00, UTC unless it says otherwise), or "
    "so long ago (2h); without it, with as many documents as the window holds.",
)
@settings_options(
    "input", "fingerprint", "kafka", "redis", "review", also=("log_level", "log_format")
)
def review(
    *,
    files: tuple[Path, ...],
    state: Path | None,
    topic: bool,
    since: int | None,
    settings: Settings,
) -> None:
    """Show people what was decided: groups, pairs side by side, and labels of their own.

    FILE has annotated JSON lines (plain, gzip or zstd), - is standard input. The page is served on
    http://127.0.0.1:9466, to this machine only; on any other address it wants a token. Nothing that
    is shown is changed: the topic is read outside of any group, the state file and Redis are asked.
    """
    if topic + (state is not None or bool(files)) != 1:
        msg = "Give files of annotated documents, --state, or --topic."
        raise click.UsageError(msg)
    if since is not None and not topic:
        msg = "--since goes with --topic. Leave it out."
        raise click.UsageError(msg)
    # Imported here because every other command does without a HTTP server and templates.
    try:
        from stream_dedup.review import server  # noqa: PLC0415
    except ModuleNotFoundError as error:
        msg = f"{error.name} is not installed. Install it: pip install 'stream-dedup[review]'."
        raise SettingsError(msg) from error
    from stream_dedup_workers import logs  # noqa: PLC0415

    logs.configure("review", settings.log_format, settings.log_level)
    if topic:
        server.review(settings, *_topic(settings, since))
    elif state is not None:
        server.review(settings, *_state(settings, state, files))
    else:
        from stream_dedup.review.reading.file import Files  # noqa: PLC0415

        server.review(settings, Files(settings, files))


def _topic(settings: Settings, since: int | None) -> tuple[Source, Ask]:
    from stream_dedup.query import open_index  # noqa: PLC0415
    from stream_dedup.review.reading.topic import Topic  # noqa: PLC0415
    from stream_dedup.serve import source  # noqa: PLC0415

    index = source.Source(settings, lambda: open_index(settings, None))
    return Topic(settings, since), index.ask


def _state(settings: Settings, path: Path, documents: Sequence[Path]) -> tuple[Source, Ask]:
    from stream_dedup.review.reading.state import AskedState, State  # noqa: PLC0415

    asked = AskedState(settings, path)
    return State(asked, documents), asked.ask
