"""The supervisor's HTTP server: /metrics, /healthz and /readyz."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from io import BytesIO
from typing import TYPE_CHECKING, Any
from wsgiref.handlers import SimpleHandler

from prometheus_client import CollectorRegistry, Metric, make_wsgi_app
from prometheus_client.multiprocess import MultiProcessCollector

from stream_dedup import metrics
from stream_dedup.http_limits import Connections, Hosts, Limited, bind
from stream_dedup.tokens import CHALLENGE, admits

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

log = logging.getLogger(__name__)

#: Bytes that the request line and the headers may have together.
_HEAD_BYTES = 16_384
#: Connections at a time, and threads that answer: a probe waits for no slow scrape.
_CONNECTIONS, _THREADS = 64, 4

#: Returns what is wrong, in a line; empty when nothing is.
Probe = Callable[[], str]


class _Connection(Limited):
    """Takes one request of HTTP/1 without a body, answers and closes."""

    def __init__(self, app: WSGIApplication, limits: Connections, threads: ThreadPoolExecutor):
        self.limits = limits
        self._app, self._threads = app, threads
        self._head = b""
        self._answer: Future[bytes] | None = None

    def is_answering(self) -> bool:
        """Return whether a whole request is there, and its answer is not."""
        return self._answer is not None and not self._answer.done()

    def is_idle(self) -> bool:
        """Return that it is never: one request is all that there is."""
        return False

    def data_received(self, data: bytes) -> None:
        """Answer as soon as the head is there."""
        super().data_received(data)
        if self._answer is not None:
            return
        self._head += data
        end = self._head.find(b"\r\n\r\n")
        if end < 0 and len(self._head) <= _HEAD_BYTES:
            return
        self._answer = self._threads.submit(_respond, self._app, self._head[:end])
        loop = asyncio.get_running_loop()
        asyncio.wrap_future(self._answer, loop=loop).add_done_callback(self._send)

    def _send(self, answer: asyncio.Future[bytes]) -> None:
        if not answer.cancelled() and not self._to.is_closing():
            self._to.write(answer.result())
            self._to.close()


class _Handler(SimpleHandler):
    """Hands over what a request has, and nothing of the process' environment."""

    os_environ: dict[str, str] = {}  # noqa: RUF012 - as the class above has it

    def log_exception(self, exc_info: Any) -> None:
        """Log an error as all others are, which masks secrets in it."""
        log.error("a request failed", exc_info=exc_info)


def _respond(app: WSGIApplication, head: bytes) -> bytes:
    """Return the answer to a request, as it goes over the wire."""
    environ = _environ(head)
    answer = BytesIO()
    if environ is None:
        environ, app = {}, _bad_request
    _Handler(BytesIO(), answer, sys.stderr, environ | {"SERVER_PROTOCOL": "HTTP/1.0"}).run(app)
    return answer.getvalue()


def _environ(head: bytes) -> dict[str, str] | None:
    """Read the request line and the headers; return None where they are none."""
    if len(head) > _HEAD_BYTES:
        return None
    line, *lines = head.decode("latin-1").split("\r\n")
    words = line.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1.") or not words[1].startswith("/"):
        return None
    path, _, query = words[1].partition("?")
    environ = {"REQUEST_METHOD": words[0], "PATH_INFO": path, "QUERY_STRING": query}
    for one in lines:
        name, colon, value = one.partition(":")
        key = "HTTP_" + name.upper().replace("-", "_")
        # A header that comes twice would be taken for one by us and for the other by a proxy.
        if not colon or not name or name != name.strip() or (key in environ and key in _ONCE):
            return None
        environ[key] = value.strip()
    return environ


_ONCE = ("HTTP_HOST", "HTTP_AUTHORIZATION")


def _bad_request(_environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
    return _plain(start, "400 Bad Request", "Send GET /metrics, /healthz or /readyz in HTTP/1.")


class _WorkerMetrics(MultiProcessCollector):
    """What the worker processes keep, but for the supervisor's metrics.

    They have these too, without ever setting them.
    """

    _SUPERVISED = frozenset(metric._name for metric in metrics.SUPERVISED)

    def collect(self) -> list[Metric]:
        """Return the metrics of all worker processes as one."""
        families = super().collect()  # type: ignore[no-untyped-call]
        return [family for family in families if family.name not in self._SUPERVISED]


class StatusServer:
    """Serves the state of the worker processes from a thread.

    Args:
        host: address to bind.
        port: port to bind; 0 takes a free one.
        metrics_directory: where the worker processes keep their metrics.
        healthy: says what keeps the workers from making progress.
        ready: says what keeps them from taking part in the stream.
        token: what a client of /metrics must send; empty when anybody may ask.
        names: host names by which it may be asked (``http_names``).

    Raises:
        SettingsError: the address cannot be bound.
    """

    def __init__(
        self,
        host: str,
        port: int,
        metrics_directory: str,
        *,
        healthy: Probe,
        ready: Probe,
        token: str = "",
        names: str = "",
    ) -> None:
        registry = CollectorRegistry()
        _WorkerMetrics(registry, path=metrics_directory)  # type: ignore[no-untyped-call]
        for metric in metrics.SUPERVISED:
            registry.register(metric)
        self._metrics = make_wsgi_app(registry)
        self._token = token
        self._probes = {"/healthz": healthy, "/readyz": ready}
        self._hosts = Hosts.of(host, token, names)
        self._listener = bind(host, port, "http")
        self.port = int(self._listener.getsockname()[1])
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="status-server", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()
        self._started.wait()

    def close(self) -> None:
        """Stop answering and release the port."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()
        self._listener.close()

    def _run(self) -> None:
        limits = Connections(_CONNECTIONS)
        threads = ThreadPoolExecutor(_THREADS, "status")
        starting = self._loop.create_server(
            lambda: _Connection(self._answer, limits, threads), sock=self._listener
        )
        server = self._loop.run_until_complete(starting)
        self._loop.call_soon(self._started.set)
        self._loop.run_forever()
        server.close()
        limits.cut()
        threads.shutdown(cancel_futures=True)
        self._loop.run_until_complete(server.wait_closed())

    def _answer(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        host, origin = environ.get("HTTP_HOST", ""), environ.get("HTTP_ORIGIN")
        if self._hosts is not None and not self._hosts.admit(host, origin):
            advice = "Ask for localhost or an address, from no page of another; or set http_names."
            return _plain(start, "421 Misdirected Request", advice)
        if path == "/metrics":
            if not admits(self._token, environ.get("HTTP_AUTHORIZATION", "")):
                advice = "Send the server's token as Authorization: Bearer TOKEN."
                return _plain(start, "401 Unauthorized", advice, ("WWW-Authenticate", CHALLENGE))
            return self._metrics(environ, start)  # type: ignore[no-any-return]
        probe = self._probes.get(path)
        if probe is None:
            return _plain(start, "404 Not Found", "See /metrics, /healthz and /readyz.")
        problem = probe()
        if problem:
            return _plain(start, "503 Service Unavailable", problem)
        return _plain(start, "200 OK", "ok")


def _plain(
    start: StartResponse, status: str, text: str, *headers: tuple[str, str]
) -> Iterable[bytes]:
    start(status, [("Content-Type", "text/plain; charset=utf-8"), *headers])
    return [f"{text}\n".encode()]
