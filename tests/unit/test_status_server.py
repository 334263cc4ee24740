"""The server of /metrics, asked over a socket."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from stream_dedup_workers import http
from stream_dedup_workers.http import StatusServer

Ask = Callable[[bytes], bytes]
HOST = b"Host: localhost\r\n"


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Ask]:
    """Send bytes; return all that comes back until the server closes."""
    server = StatusServer(
        "127.0.0.1", 0, str(tmp_path), healthy=lambda: "", ready=lambda: "no partition yet"
    )
    server.start()

    def asked(request: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", server.port), 10) as link:
            link.sendall(request)
            return b"".join(iter(lambda: link.recv(65536), b""))

    yield asked
    server.close()


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /healthz HTTP/1.1\r\n" + HOST, 200),
        (b"GET /healthz?a=b HTTP/1.0\r\n" + HOST, 200),
        (b"GET /readyz HTTP/1.1\r\n" + HOST, 503),
        (b"GET /metrics HTTP/1.1\r\n" + HOST, 200),
        (b"GET / HTTP/1.1\r\n" + HOST, 404),
        (b"GET /healthz HTTP/1.1\r\nHost: evil.example\r\n", 421),
        (b"GET /healthz HTTP/1.1\r\nOrigin: http://evil.example\r\n" + HOST, 421),
        (b"GET /healthz HTTP/1.1\r\n", 421),
        (b"GET /healthz HTTP/1.1\r\n" + HOST + HOST, 400),
        (b"GET /healthz HTTP/1.1\r\n" + HOST + b" folded\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost : localhost\r\n", 400),
        (b"GET http://localhost/healthz HTTP/1.1\r\n" + HOST, 400),
        (b"GET /healthz\r\n" + HOST, 400),
        (b"GET /healthz HTTP/2\r\n" + HOST, 400),
        (b"\x16\x03\x01\x02\x00", 400),
        (b"", 400),
    ],
)
def test_what_is_asked_gets_a_status(ask: Ask, request_: bytes, status: int) -> None:
    assert ask(request_ + b"\r\n\r\n").startswith(b"HTTP/1.0 %d " % status)


def test_a_head_that_is_too_large_is_refused(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_HEAD_BYTES", 1000)

    assert ask(b"GET /healthz HTTP/1.1\r\nX: " + b"x" * 1000).startswith(b"HTTP/1.0 400 ")


def test_a_failing_probe_is_a_500_and_the_server_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> str:
        msg = "this probe fails"
        raise RuntimeError(msg)

    server = StatusServer("127.0.0.1", 0, str(tmp_path), healthy=fail, ready=lambda: "")
    server.start()
    answers = []
    for path in (b"/healthz", b"/readyz"):
        with socket.create_connection(("127.0.0.1", server.port), 10) as link:
            link.sendall(b"GET " + path + b" HTTP/1.1\r\n" + HOST + b"\r\n")
            answers.append(link.recv(12))
    server.close()

    assert answers == [b"HTTP/1.0 500", b"HTTP/1.0 200"]
    assert "this probe fails" in caplog.text
