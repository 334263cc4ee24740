"""Sockets that kafka-python leaves to the garbage collector close without a warning.

It leaves those whose connection or handshake fails, and those of a client that is closed while it
connects or sends. When they are collected is chance, so the warning would fail any test. A client
that is not closed at all is still told of, by the sockets that it wakes itself with.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from typing import Any

from kafka.net.inet import KafkaNetSocket  # type: ignore[import-untyped]
from kafka.net.transport import KafkaSSLTransport  # type: ignore[import-untyped]


class _Socket(socket.socket):
    def __del__(self) -> None:
        self.close()


class _SSLSocket(ssl.SSLSocket):
    def __del__(self) -> None:
        self.close()


def close_quietly() -> None:
    """Give kafka-python sockets that close when they are collected, for the whole process."""
    build = KafkaSSLTransport._build_ssl_context

    def build_ssl_context(config: Mapping[str, Any]) -> ssl.SSLContext:
        context: ssl.SSLContext = build(config)
        context.sslsocket_class = _SSLSocket
        return context

    KafkaNetSocket.socket = lambda _self, *kind: _Socket(*kind)
    KafkaSSLTransport._build_ssl_context = staticmethod(build_ssl_context)
