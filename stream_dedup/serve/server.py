"""Runs the application until SIGTERM."""

from __future__ import annotations

import logging
import signal
import socket
from pathlib import Path

import uvicorn

from stream_dedup.errors import ServiceError, SettingsError
from stream_dedup.query import open_index
from stream_dedup.serve.app import make_app
from stream_dedup.serve.groups import Groups
from stream_dedup.serve.source import Source
from stream_dedup.settings import Settings

log = logging.getLogger(__name__)

#: Seconds that requests in hand may take after SIGTERM.
_GRACE = 10
#: Seconds that an idle connection is kept; longer than clients and proxies keep theirs, so that
#: none sends a request on one that is being closed.
_KEEP_ALIVE = 75
_LOOPBACK = ("127.", "::1", "localhost")


def serve(settings: Settings, state: Path | None) -> None:
    """Answer requests until SIGTERM or SIGINT.

    Redis may be out of reach, and its index not there yet: requests are then told to come again.

    Raises:
        SettingsError: the address cannot be bound, or the token file cannot be read.
        StateError: the state file cannot be used.
        ConfigurationMismatch: the index was made with other fingerprint settings.
    """
    token = token_of(settings)
    source = Source(settings, lambda: open_index(settings, state))
    try:
        source.open()
    except ServiceError as error:
        log.warning("not ready: %s", error)
    with _bind(settings) as listener:
        host, port = listener.getsockname()[:2]
        log.info("listens on http://%s:%d", host, port)
        if not token and not settings.serve_host.startswith(_LOOPBACK):
            log.warning("anybody who reaches %s may ask: set serve_token_file", host)
        config = uvicorn.Config(
            make_app(settings, source, token, None if state else _groups(settings)),
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE,
            timeout_graceful_shutdown=_GRACE,
        )
        # The server raises these signals again when it has ended; that is no reason to die of one.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: None)
        uvicorn.Server(config).run(sockets=[listener])
    log.info("stopped")


def _groups(settings: Settings) -> Groups:
    # Imported here because a state file does without the client.
    from stream_dedup.index.group_view import GroupView  # noqa: PLC0415

    return Groups(lambda: GroupView.connect(settings))


def token_of(settings: Settings) -> str:
    """Return the token that clients must send; empty when none is set.

    Raises:
        SettingsError: two are set, or the file cannot be read or is empty.
    """
    token = settings.serve_token.get_secret_value()
    path = settings.serve_token_file
    if path is None:
        return token
    if token:
        msg = "serve_token and serve_token_file are both set. Set one."
        raise SettingsError(msg)
    try:
        token = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        msg = f"serve_token_file {path} cannot be read: {error}. Name a file with a token in it."
        raise SettingsError(msg) from error
    if not token:
        msg = f"serve_token_file {path} is empty. Write a token into it."
        raise SettingsError(msg)
    return token


def _bind(settings: Settings) -> socket.socket:
    host, port = settings.serve_host, settings.serve_port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        msg = (
            f"The address {host}:{port} cannot be bound: {error.strerror}. Give another one with "
            "--serve-host and --serve-port (0 takes a free port)."
        )
        raise SettingsError(msg) from error
    # Connections inherit it. asyncio sets it on sockets of its own making only, and without it each
    # answer on a connection that is kept waits 40 ms for the other side's acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
