"""An address that hands out tokens to those who know the client's secret, over TLS."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

from requests.auth import _basic_auth_str

from tests.services.certificates import HOST, Certificates
from tests.services.secure import token

CLIENT, SECRET = "stream-dedup", "of the client"


@contextmanager
def token_server(certificates: Certificates) -> Iterator[tuple[str, list[dict[str, list[str]]]]]:
    """Serve; give the address, and the forms that were sent there."""
    forms: list[dict[str, list[str]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            forms.append(parse_qs(self.rfile.read(length).decode()))
            if self.headers["Authorization"] == _basic_auth_str(CLIENT, SECRET):
                self._answer(200, {"access_token": token(), "expires_in": 300})
            else:
                self._answer(401, {"error": "invalid_client"})

        def _answer(self, status: int, body: dict[str, object]) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer((HOST, 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server.certificate, certificates.server.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"https://{HOST}:{server.server_port}/token", forms
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
