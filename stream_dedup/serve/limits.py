"""What stands before the application: whose requests, how large a body, and how long they take."""

from __future__ import annotations

import time

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stream_dedup import metrics
from stream_dedup.http_limits import Hosts
from stream_dedup.serve.problems import respond

#: Paths that have a metric of their own; all others share one.
_MEASURED = "/v1/query"


class KnownHosts:
    """Refuses requests for names that are not ours, and those that pages of others send."""

    def __init__(self, app: ASGIApp, hosts: Hosts) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        headers = Headers(scope=scope) if scope["type"] == "http" else None
        if headers is None or self._hosts.admit(headers.get("host", ""), headers.get("origin")):
            await self._app(scope, receive, send)
        else:
            await respond(421)(scope, receive, send)


class BodyLimit:
    """Refuses bodies that are too large, before they are held in memory."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        """Let a body have ``most`` bytes."""
        self._app = app
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sentence = f"A body may have {self._most} bytes and this one has more."
        if self._announced(scope) > self._most:
            await respond(413, sentence)(scope, receive, send)
            return
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._most:
                raise HTTPException(413, sentence)
            return message

        await self._app(scope, counted, send)

    @staticmethod
    def _announced(scope: Scope) -> int:
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit():
                return int(value[:20])  # a number of thousands of digits is too large as well
        return 0


class Measured:
    """Counts requests by status, and how long queries take."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http" or scope["path"] != _MEASURED:
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                metrics.query_requests_total.labels(str(message["status"])).inc()
                metrics.query_seconds.observe(time.perf_counter() - began)
            await send(message)

        await self._app(scope, receive, watched)
