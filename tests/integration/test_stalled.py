"""Clients that stall, and names that are not ours, against each server as a process."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import psutil
import pytest

from stream_dedup import Deduplicator, Document
from tests.services.http import get
from tests.services.process import free_ports
from tests.services.worker import Worker

#: Limits as small as a test wants them: half a second for a request, 50 connections.
PROGRAM = """
from stream_dedup import http_limits
http_limits.PATIENCE, http_limits.CONNECTIONS, http_limits.RATE = 0.5, 50, 1e9
if {asgi}:
    from stream_dedup.serve import listening
    listening._KEEP_ALIVE = 1
from stream_dedup.cli.main import main
main()
"""
#: More than any of the servers takes at a time, and the kinds together more still.
EACH = 40
STALLED = {
    "nothing": b"",
    "half a line": b"GET /heal",
    "half a head": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
    "no body": b"POST /v1/query HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\n",
    "half a body": b"POST /v1/query HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\n{",
    "half a chunk": b"POST /login HTTP/1.1\r\nHost: localhost\r\n"
    b"Transfer-Encoding: chunked\r\n\r\nff\r\n{",
    "another request behind one, half": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    b"POST /v1/query HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\n{",
    "another log-in behind one, half": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\n",
    "idle": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
}
#: Kinds that send a byte now and then.
DRIPPING = ("half a head", "half a body", "half a chunk")


class Server:
    """A process that serves, and the connections that it has."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, path: str) -> None:
        self.process = process
        self.port = port
        #: What it answers at length.
        self.path = path

    def connections(self) -> int:
        found = psutil.Process(self.process.pid).net_connections("tcp")
        return sum(
            one.laddr.port == self.port and one.status == psutil.CONN_ESTABLISHED for one in found
        )

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 10)

    def ask(self, request: bytes) -> int:
        """Send a request; return the status of the answer."""
        with self.connect() as link:
            link.sendall(request)
            status = re.match(rb"HTTP/1\.[01] (\d{3})", link.recv(1000))
        assert status is not None
        return int(status[1])

    def until_closed(self, dripping: list[socket.socket]) -> None:
        """Wait until it has no connection any more, and send a byte on some meanwhile."""
        deadline = time.monotonic() + 30
        while self.connections():
            assert time.monotonic() < deadline, f"{self.connections()} are open"
            for link in dripping:
                with suppress(OSError):
                    link.sendall(b"a")
            time.sleep(0.1)


@pytest.fixture(scope="module", params=["serve", "review", "worker"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    tmp_path = tmp_path_factory.mktemp(request.param)
    program = [sys.executable, "-c", PROGRAM.format(asgi=request.param != "worker")]
    (port,) = free_ports(1)
    if request.param == "worker":
        kafka, redis = map(request.getfixturevalue, ("kafka", "redis_server"))
        worker = Worker(kafka, kafka.create_topics(), redis.url, tmp_path, "kafka-python")
        # A namespace of its own: other tests leave indexes of other settings there.
        flags = {"http_port": str(port), "redis_namespace": "stalled"}
        arguments, path = worker.command(**flags)[1:], "/metrics"
    elif request.param == "serve":
        with Deduplicator(state=tmp_path / "state.db") as deduplicator:
            deduplicator.decide([Document("a", "the one text that is known")])
        state, path = str(tmp_path / "state.db"), "/openapi.json"
        arguments = ["serve", "--state", state, f"--serve-port={port}"]
    else:
        (tmp_path / "annotated.jsonl").touch()
        arguments = ["review", str(tmp_path / "annotated.jsonl"), f"--review-port={port}"]
        path = "/"
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([*program, *arguments], stderr=log)
    try:
        deadline = time.monotonic() + 60
        while get(port, "/healthz")[0] != 200:
            assert process.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()
            time.sleep(0.1)
        yield Server(process, port, path)
    finally:
        process.terminate()
        process.wait(60)
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_stalled_clients_are_cut_off_and_shut_nobody_out(server: Server) -> None:
    with ExitStack() as stack:
        stalled = {
            kind: [stack.enter_context(server.connect()) for _ in range(EACH)] for kind in STALLED
        }
        for kind, links in stalled.items():
            for link in links:
                with suppress(OSError):  # those that had to give way
                    link.sendall(STALLED[kind])
        answered = get(server.port, "/healthz")[0]
        held = server.connections()
        server.until_closed([link for kind in DRIPPING for link in stalled[kind]])

    assert answered == 200
    assert held <= 65


def test_who_does_not_read_the_answer_is_cut_off(server: Server) -> None:
    request = f"GET {server.path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    with ExitStack() as stack:
        for _ in range(10):
            link = stack.enter_context(socket.socket())
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            link.connect(("127.0.0.1", server.port))
            link.settimeout(0.3)
            with suppress(OSError):
                link.sendall(request * 3000)
        answered = get(server.port, "/healthz")[0]
        server.until_closed([])

    assert answered == 200


def test_a_head_without_end_is_refused(server: Server) -> None:
    with server.connect() as link:
        link.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
        sent, most = 0, 64 << 20  # far more than the system keeps for both ends
        with suppress(OSError):
            while sent < most:
                sent += link.send(b"X-More: " + b"x" * 990 + b"\r\n")

    assert sent < most
    assert get(server.port, "/healthz")[0] == 200


def test_only_names_of_ours_are_answered(server: Server) -> None:
    port, path = server.port, server.path

    def asked(host: str, target: str = path, more: str = "", version: str = "1.1") -> int:
        line = f"GET {target} HTTP/{version}\r\n"
        return server.ask(f"{line}{host}{more}Connection: close\r\n\r\n".encode())

    ours = [f"localhost:{port}", f"127.0.0.1:{port}", "127.0.0.1", "[::1]", f"[::1]:{port}"]
    others = [
        "evil.example",
        f"evil.example:{port}",
        f"127.0.0.1.evil.example:{port}",
        "a@127.0.0.1",
    ]
    refused = {400, 404, 421}
    assert {asked(f"Host: {host}\r\n") for host in [*ours, f"10.1.2.3:{port}"]} == {200}
    assert {asked(f"Host: {host}\r\n") for host in others} == {421}
    assert {asked("Host: \r\n"), asked("", version="1.0")} == {421}
    assert asked("Host: localhost\r\nHost: evil.example\r\n") == 400
    assert asked("Host: localhost\r\n", target=f"http://evil.example{path}") in refused
    assert asked("Host: evil.example\r\n", target=f"http://localhost{path}") in refused
