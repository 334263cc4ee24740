"""The browser tests see what they are there to see."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator

import pytest

from tests.services.browser import NARROW, Browser

_BAD = b"""<html><body><p style="width: 900px">too wide</p><img src="http://127.0.0.2:9/x.png">
<script src="/missing.js"></script><script>alert(document.nothing.at.all)</script>"""
_STRICT = (
    b"<!doctype html><html lang=en><title>t</title><main><h1>t</h1></main><script>alert(1)</script>"
)


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/missing.js":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("content-type", "text/html")
        if self.path == "/strict":
            self.send_header("content-security-policy", "default-src 'none'")
        self.end_headers()
        self.wfile.write(_STRICT if self.path == "/strict" else _BAD)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def bad_site() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_page_that_misbehaves_is_seen_to(browser: Browser, bad_site: str) -> None:
    page = browser.open(bad_site, NARROW)

    page.go("/")
    wrong = "\n".join(page.wrong())

    for expected in ("error in a script", "to another host", "request failed", "answer 404"):
        assert expected in wrong
    assert any("too wide" in element for element in page.sideways())
    assert "html-has-lang" in page.violations() or "lang attribute" in page.violations()
    assert page.wrong() == []


def test_what_the_policy_refuses_is_seen(browser: Browser, bad_site: str) -> None:
    page = browser.open(bad_site)

    page.go("/strict")

    assert any("Content Security Policy" in one for one in page.wrong())
