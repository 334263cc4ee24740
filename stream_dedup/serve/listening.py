"""Binding an address, and serving an application on it until SIGTERM."""

from __future__ import annotations

import signal
import socket

import uvicorn
from starlette.types import ASGIApp

from stream_dedup.errors import SettingsError

#: Seconds that requests in hand may take after SIGTERM.
_GRACE = 10
#: Seconds that an idle connection is kept; longer than clients and proxies keep theirs, so that
#: none sends a request on one that is being closed.
_KEEP_ALIVE = 75


def bind(host: str, port: int, group: str) -> socket.socket:
    """Bind an address.

    Args:
        host: address to listen on.
        port: its port; 0 takes a free one.
        group: group of the settings that have both, such as ``serve``.

    Raises:
        SettingsError: it cannot be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        msg = (
            f"The address {host}:{port} cannot be bound: {error.strerror}. Give another one with "
            f"--{group}-host and --{group}-port (0 takes a free port)."
        )
        raise SettingsError(msg) from error
    # Connections inherit it. asyncio sets it on sockets of its own making only, and without it each
    # answer on a connection that is kept waits 40 ms for the other side's acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def run_until_stopped(app: ASGIApp, listener: socket.socket) -> None:
    """Serve an application until SIGTERM or SIGINT."""
    config = uvicorn.Config(
        app,
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
