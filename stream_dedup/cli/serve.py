"""``stream-dedup serve``: answers over HTTP whether texts are known."""

from __future__ import annotations

import json
from pathlib import Path

import click

from stream_dedup.cli.options import settings_options
from stream_dedup.errors import SettingsError
from stream_dedup.settings import Settings

_EPILOG = """\b
Examples:
  stream-dedup serve --redis-url redis://redis:6379/0
  stream-dedup serve --state originals.db --serve-port 8080
  curl http://127.0.0.1:9465/v1/query --json '{"text": "Is this known?", "explain": true}'
  stream-dedup serve --openapi > openapi.json

\b
Exit codes:
  0   stopped by SIGTERM or SIGINT
  2   a setting is missing or out of range, or the address cannot be bound
  73  the state file cannot be used, or a run is using it
  78  the index was made with other fingerprint settings

Redis may be away: the service then answers 503, and goes on when it is back. A state file is read
once, at the start.
"""


@click.command(epilog=_EPILOG)
@click.option(
    "--state",
    type=click.Path(dir_okay=False, path_type=Path),
    help="State file of `run` to ask, as it is now; without it, the index in Redis.",
)
@click.option("--openapi", is_flag=True, help="Print the OpenAPI description and end.")
@settings_options("fingerprint", "redis", "serve", also=("log_level", "log_format"))
def serve(*, state: Path | None, openapi: bool, settings: Settings) -> None:
    """Answer over HTTP whether texts are known, and of which original they are duplicates.

    POST /v1/query takes one document or a batch, GET /v1/groups/DUPLICATE_ID tells of a group that
    is kept in Redis; /openapi.json describes both. Nothing is registered and nothing written: of
    Redis it takes no more than the right to read. /metrics, /healthz and /readyz are served too.
    """
    # Imported here because every other command does without a HTTP server.
    try:
        from stream_dedup.serve import app, server  # noqa: PLC0415
        from stream_dedup.serve.source import Source  # noqa: PLC0415
    except ModuleNotFoundError as error:
        msg = f"{error.name} is not installed. Install it: pip install 'stream-dedup[serve]'."
        raise SettingsError(msg) from error
    from stream_dedup_workers import logs  # noqa: PLC0415

    from stream_dedup.query import open_index  # noqa: PLC0415

    if openapi:
        source = Source(settings, lambda: open_index(settings, state))
        click.echo(json.dumps(app.make_app(settings, source).openapi(), indent=2))
        return
    logs.configure("serve", settings.log_format, settings.log_level)
    server.serve(settings, state)
