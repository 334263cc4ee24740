"""Runs the application until SIGTERM."""

from __future__ import annotations

import logging
from pathlib import Path

from starlette.types import ASGIApp

from stream_dedup import __version__
from stream_dedup.errors import ServiceError
from stream_dedup.http_limits import Hosts, bind
from stream_dedup.query import open_index
from stream_dedup.secrets import secret_of
from stream_dedup.serve.app import make_app
from stream_dedup.serve.groups import Groups
from stream_dedup.serve.limits import KnownHosts
from stream_dedup.serve.listening import run_until_stopped
from stream_dedup.serve.source import Source
from stream_dedup.settings import Settings
from stream_dedup.tokens import warn_if_open

log = logging.getLogger(__name__)


def serve(settings: Settings, state: Path | None) -> None:
    """Answer requests until SIGTERM or SIGINT.

    Redis may be out of reach, and its index not there yet: requests are then told to come again.

    Raises:
        SettingsError: the address cannot be bound, or the token file cannot be read.
        StateError: the state file cannot be used.
        ConfigurationMismatch: the index was made with other fingerprint settings.
    """
    token = secret_of(settings, "serve_token")
    source = Source(settings, lambda: open_index(settings, state))
    try:
        source.open()
    except ServiceError as error:
        log.warning("not ready: %(cause)s", {"cause": str(error)})
    with bind(settings.serve_host, settings.serve_port, "serve") as listener:
        host, port = listener.getsockname()[:2]
        log.info(
            "stream-dedup %(version)s listens on http://%(host)s:%(port)d",
            {"version": __version__, "host": host, "port": port},
        )
        warn_if_open(settings.serve_host, token, "serve_token_file")
        groups = None if state else _groups(settings)
        app: ASGIApp = make_app(settings, source, token, groups)
        if hosts := Hosts.of(settings.serve_host, token, settings.serve_names):
            app = KnownHosts(app, hosts)
        run_until_stopped(app, listener)
    log.info("stopped")


def _groups(settings: Settings) -> Groups:
    # Imported here because a state file does without the client.
    from stream_dedup.index.group_view import GroupView  # noqa: PLC0415

    return Groups(lambda: GroupView.connect(settings))
