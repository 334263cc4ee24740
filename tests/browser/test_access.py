"""Who may use the page: log-in, other sites' forms, and browsers that run no scripts."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.corpus import annotated, examples
from tests.services.browser import Browser
from tests.services.review import Review

_TOKEN = "a-token-of-more-than-thirty-two-characters"


@contextmanager
def _another_site(html: str) -> Iterator[str]:
    """Serve a page of somebody else's, on another port of the same machine."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(html.encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("path", ["/label", "/label/undo", "/label/name", "/search/text"])
def test_a_form_of_another_site_is_refused(browser: Browser, site: Review, path: str) -> None:
    page = browser.open(site.origin)
    page.go("/label")
    page.page.get_by_label("Name").fill("Ada")
    page.page.get_by_role("button", name="Begin").click()
    page.page.locator("[data-pair]").wait_for(timeout=60_000)
    form = f"<form method=post action='{site.origin}{path}'><input name=csrf value=x>"
    fields = "<input name=pair value=1><input name=label value=duplicate><input name=name value=E>"
    with _another_site(f"{form}{fields}<textarea name=text>t</textarea><button>go") as other:
        page.page.goto(other)

        with page.page.expect_navigation() as answer:
            page.page.get_by_role("button").click()

    assert answer.value is not None
    assert answer.value.status == 403
    page.close()


def test_the_page_cannot_be_framed_by_another_site(browser: Browser, site: Review) -> None:
    page = browser.open(site.origin)
    with _another_site(f"<iframe src='{site.origin}/label'></iframe>") as other:
        page.page.goto(other)
        page.page.wait_for_load_state("networkidle")

    assert any("frame-ancestors" in one for one in page.wrong())
    page.close()


def test_nothing_is_shown_before_the_token_is_given(browser: Browser, tmp_path: Path) -> None:
    source = annotated(examples(), tmp_path)
    token = tmp_path / "token"
    token.write_text(_TOKEN)
    with Review(source, tmp_path, review_token_file=str(token)) as review:
        page = browser.open(review.origin)

        page.go("/search?q=en-01")
        assert page.page.url == f"{review.origin}/login"
        assert page.violations() == ""
        assert page.wrong() == []
        page.page.keyboard.type("wrong")
        page.page.keyboard.press("Enter")
        expect(page.page.get_by_role("alert")).to_contain_text("not the token")
        page.wrong()  # says that the answer was 401
        page.page.get_by_label("Token").fill(_TOKEN)
        page.page.keyboard.press("Enter")
        expect(page.page.get_by_role("heading", name="Overview")).to_be_visible()
        page.page.get_by_role("button", name="Log out").click()
        expect(page.page.get_by_label("Token")).to_be_visible()
        page.go("/")

        assert page.page.url == f"{review.origin}/login"
        assert page.wrong() == []
        page.close()


def test_everything_but_refreshing_works_without_scripts(browser: Browser, site: Review) -> None:
    page = browser.open(site.origin, java_script_enabled=False)

    page.go("/")
    page.page.locator("#figures a[href^='/groups/']").first.click()
    second = page.page.locator("#members .id").nth(1).inner_text()
    page.page.locator("#members tr:nth-child(2) a.button").click()
    expect(page.page.locator("#comparison")).to_contain_text(second)
    page.page.locator("label[for=view-inline]").click()
    expect(page.page.locator(".beside")).to_be_hidden()
    page.go("/label")
    page.page.get_by_label("Name").fill("Without")
    page.page.get_by_role("button", name="Begin").click()
    pair = page.page.locator("[data-pair]").get_attribute("data-pair")
    page.page.locator("#answer-duplicate").click()

    expect(page.page.locator(f"[data-pair='{pair}']")).to_have_count(0)
    expect(page.page.locator("[data-pair]")).to_have_count(1)
    page.close()
