"""The supervisor's HTTP server: /metrics, /healthz and /readyz."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, Metric, make_wsgi_app
from prometheus_client.multiprocess import MultiProcessCollector

from stream_dedup import metrics
from stream_dedup.errors import SettingsError
from stream_dedup.tokens import CHALLENGE, admits

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

#: Seconds that a client may take for its request.
REQUEST_TIMEOUT = 10

#: Returns what is wrong, in a line; empty when nothing is.
Probe = Callable[[], str]


class _Server(ThreadingMixIn, WSGIServer):
    """A thread for each request, so that a slow client or probe holds up no other."""

    daemon_threads = True


class _Handler(WSGIRequestHandler):
    """Does not log each request."""

    timeout = REQUEST_TIMEOUT

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its parent's name
        pass


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
    ) -> None:
        registry = CollectorRegistry()
        _WorkerMetrics(registry, path=metrics_directory)  # type: ignore[no-untyped-call]
        for metric in metrics.SUPERVISED:
            registry.register(metric)
        self._metrics = make_wsgi_app(registry)
        self._token = token
        self._probes = {"/healthz": healthy, "/readyz": ready}
        try:
            self._server = make_server(host, port, self._answer, _Server, _Handler)
        except OSError as error:
            msg = (
                f"The address {host}:{port} for /metrics cannot be bound: {error.strerror}. Give "
                "another one with --http-host and --http-port (0 takes a free port)."
            )
            raise SettingsError(msg) from error
        self.port = int(self._server.server_port)
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="status-server", daemon=True
        )

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def close(self) -> None:
        """Stop answering and release the port."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def _answer(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
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
