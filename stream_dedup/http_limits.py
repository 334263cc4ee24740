"""What every HTTP server of ours bounds: its connections, the time of a client, and its names.

The servers of uvicorn and the one for metrics run on asyncio, so one class stands before the
protocol of either: it counts bytes, and needs to know of HTTP only whether the server or the client
is to go on. A client that is too slow is cut off; when there are too many, the one that has
waited longest gives way to the newest, so that stalled connections shut nobody out.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable
from typing import Self, cast

from stream_dedup.errors import SettingsError
from stream_dedup.tokens import is_loopback

#: Connections of a server at a time.
CONNECTIONS = 512
#: Seconds that a client may take for a whole request, or between two pieces of an answer, beside a
#: second for so many bytes; and seconds for a request however many bytes it has.
PATIENCE, RATE, LONGEST = 10.0, 50_000, 600.0
#: Seconds between two looks at all connections.
_TICK = 0.25


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


class Hosts:
    """The names that requests may be for; with another, its owner's page asks (DNS rebinding)."""

    def __init__(self, names: str) -> None:
        """Know localhost, all addresses, and ``names``, comma-separated."""
        self._names = {"localhost", *(name.strip().lower() for name in names.split(","))} - {""}

    @classmethod
    def of(cls, host: str, token: str, names: str) -> Self | None:
        """Return the names that a server may be asked by; None where any will do.

        What only this machine can reach, and needs no token, a browser on it could be made to ask.
        Elsewhere names are the network's, and checked only if they are set.

        Args:
            host: address that it listens on.
            token: what clients must send.
            names: names that are set.
        """
        return cls(names) if names.strip() or (is_loopback(host) and not token) else None

    def knows(self, host: str) -> bool:
        """Return whether a request may name this host: ours, or an address, which no DNS gives."""
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        name = name.lower()
        if name in self._names:
            return True
        try:
            ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
        except ValueError:
            return False
        return True

    def admit(self, host: str, origin: str | None) -> bool:
        """Return whether a request may be answered: for a known host, and sent by a page of one.

        Args:
            host: Host of the request; empty without one.
            origin: Origin of the request: browsers say so of what another site's page sends.
        """
        page = host if origin is None else origin.partition("://")[2]
        return self.knows(host) and self.knows(page)


class Connections:
    """The open connections of a server."""

    def __init__(self, most: int) -> None:
        """Let there be ``most``."""
        self._most = most
        self._open: set[Limited] = set()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._open)

    def add(self, one: Limited) -> None:
        """Take in a new connection, and let another one go if there are too many."""
        self._open.add(one)
        if len(self._open) > self._most:
            # Those that the server works for stay: when there is no other, the new one goes.
            min(self._open, key=lambda other: other.waits_since).cut()
        if self._timer is None:
            self._look()

    def discard(self, one: Limited) -> None:
        """Forget a connection."""
        self._open.discard(one)

    def cut(self) -> None:
        """End all connections."""
        for one in list(self._open):
            one.cut()

    def _look(self) -> None:
        """Cut off whoever is too slow, now and again as long as there are connections."""
        loop = asyncio.get_running_loop()
        for one in [one for one in self._open if one.is_late(loop.time())]:
            one.cut()
        self._timer = loop.call_later(_TICK, self._look) if self._open else None


class Limited(asyncio.Protocol):
    """Stands before a protocol of HTTP and bounds how long its client may take.

    Attributes:
        limits: of the server.
    """

    limits: Connections

    def is_answering(self) -> bool:
        """Return whether a whole request is there, and its answer is not."""
        raise NotImplementedError

    def is_idle(self) -> bool:
        """Return whether no request is being received or answered, as far as heads have come."""
        raise NotImplementedError

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to count."""
        self._to = cast("asyncio.Transport", transport)
        self._now: Callable[[], float] = asyncio.get_running_loop().time
        self._received = 0
        #: When the request began to come; None between two requests.
        self._begun: float | None = self._now()
        self._since = self._begun
        self._unread_since: float | None = None
        super().connection_made(transport)
        self.limits.add(self)

    def data_received(self, data: bytes) -> None:
        """Count what comes."""
        if self._begun is None:
            self._since = self._begun = self._now()
        self._received += len(data)
        super().data_received(data)

    def on_response_complete(self) -> None:
        """Wait for the next request without haste, unless it has come behind this one already."""
        self._begun, self._received, self._since = None, 0, self._now()
        super().on_response_complete()  # type: ignore[misc] # it is uvicorn's
        if not self.is_idle():
            self._begun = self._since

    def resume_writing(self) -> None:
        """Note that the client has read much of what was waiting for it."""
        self._unread_since = None
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self.limits.discard(self)
        super().connection_lost(exc)

    @property
    def waits_since(self) -> float:
        """When the server began to wait for the client; infinite while it works."""
        if self._unread_since is not None:
            return self._unread_since
        return float("inf") if self.is_answering() else self._since

    def is_late(self, now: float) -> bool:
        """Return whether the client takes too long."""
        if not self._to.get_write_buffer_size():
            self._unread_since = None
        elif self._unread_since is None:
            self._unread_since = now
        elif now - self._unread_since > PATIENCE:
            return True
        if self._begun is None or self.is_answering():
            return False
        return now - self._begun > min(PATIENCE + self._received / RATE, LONGEST)

    def cut(self) -> None:
        """End the connection at once, whatever is still to be sent."""
        self.limits.discard(self)
        self._to.abort()
