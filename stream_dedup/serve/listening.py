"""Serving an application on a bound address until SIGTERM."""

from __future__ import annotations

import signal
import socket

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from stream_dedup.http_limits import CONNECTIONS, Connections, Limited

#: Seconds that requests in hand may take after SIGTERM.
_GRACE = 10
#: Seconds that an idle connection is kept; longer than clients and proxies keep theirs, so that
#: none sends a request on one that is being closed.
_KEEP_ALIVE = 75


def run_until_stopped(app: ASGIApp, listener: socket.socket) -> None:
    """Serve an application until SIGTERM or SIGINT."""

    class Bounded(Limited, H11Protocol):
        limits = Connections(CONNECTIONS)

        def is_answering(self) -> bool:
            cycle: RequestResponseCycle | None = self.cycle
            return cycle is not None and not (cycle.more_body or cycle.response_complete)

        def is_idle(self) -> bool:
            cycle: RequestResponseCycle | None = self.cycle
            return cycle is None or bool(cycle.response_complete)

    config = uvicorn.Config(
        app,
        http=Bounded,
        ws="none",
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
