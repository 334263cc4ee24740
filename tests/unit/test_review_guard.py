"""What stands between a browser and the review page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from fastapi.routing import APIRoute
from starlette.testclient import TestClient

from stream_dedup.review.guard import POLICY, Guard
from stream_dedup.review.site import PAGES, Site, make_site
from stream_dedup.review.window import Window
from stream_dedup.settings import Settings

TOKEN = "a long enough token, of ünicode"


@contextmanager
def browser(
    folder: Path, *, token: str = "", names: str = "", host: str = "127.0.0.1:9466"
) -> Iterator[TestClient]:
    window = Window.open(folder / "window.db", 1000)
    site = Site(Settings(), window, Guard(token, names))
    client = TestClient(make_site(site, window), f"http://{host}", raise_server_exceptions=False)
    with client:
        yield client


def csrf(client: TestClient, path: str = "/") -> str:
    found = re.search('<meta name="csrf" content="([0-9a-f]{64})">', client.get(path).text)
    assert found is not None
    return found[1]


def log_in(client: TestClient, token: str) -> int:
    form = {"csrf": csrf(client, "/login"), "token": token}
    return client.post("/login", data=form, follow_redirects=False).status_code


class Route(NamedTuple):
    """A path that can be asked for, and how."""

    path: str
    methods: set[str]


@pytest.fixture(scope="module")
def routes(tmp_path_factory: pytest.TempPathFactory) -> list[Route]:
    window = Window.open(tmp_path_factory.mktemp("window") / "window.db", 100)
    site = Site(Settings(), window, Guard("", ""))
    found = [
        Route(route.path.replace("{duplicate_id}", "0" * 24), route.methods or set())
        for page in PAGES
        for route in page.routes(site).routes
        if isinstance(route, APIRoute)
    ]
    window.close()
    assert len(found) > 6
    return found


class TestHeaders:
    def test_every_route_has_them_and_so_has_every_failure(
        self, tmp_path: Path, routes: list[Route]
    ) -> None:
        with browser(tmp_path) as client:
            paths = [route.path for route in routes]
            for path in [*paths, "/nothing", "/groups/none", "/static/style.css", "/static/../x"]:
                for method in ("GET", "POST"):
                    answer = client.request(method, path)
                    assert answer.headers["content-security-policy"] == POLICY, path
                    assert answer.headers["x-content-type-options"] == "nosniff"
                    assert answer.headers["referrer-policy"] == "no-referrer"
                    assert answer.headers["cache-control"]

    def test_nothing_inline_may_run_or_style(self) -> None:
        assert "unsafe" not in POLICY
        assert POLICY.startswith("default-src 'none'")

    def test_a_page_has_nothing_inline(self, tmp_path: Path) -> None:
        with browser(tmp_path) as client:
            page = client.get("/").text

        assert not re.search(r"<script(?![^>]*\bsrc=)|\bstyle=|<style|\bon[a-z]+=", page)

    def test_a_page_is_not_kept_and_a_file_by_its_version_is(self, tmp_path: Path) -> None:
        with browser(tmp_path) as client:
            page = client.get("/")
            sheet = re.search(r"/static/style\.css\?v=[0-9a-f]{16}", page.text)
            assert sheet is not None
            assert page.headers["cache-control"] == "no-store"
            assert "immutable" in client.get(sheet[0]).headers["cache-control"]
            assert client.get("/static/style.css?v=old").headers["cache-control"] == "no-cache"


class TestHosts:
    @pytest.mark.parametrize(
        "host", ["localhost:9466", "127.0.0.1:9466", "10.0.0.7", "[::1]:9466", "Review.Example"]
    )
    def test_ours(self, host: str) -> None:
        assert Guard("", "review.example, other").hosts.knows(host)

    @pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example:9466", "", ":9466"])
    def test_a_name_that_somebody_points_here_is_refused(self, host: str) -> None:
        assert not Guard("", "").hosts.knows(host)

    def test_the_page_says_so(self, tmp_path: Path) -> None:
        with browser(tmp_path, host="evil.example:9466") as client:
            answer = client.get("/")

        assert answer.status_code == 421
        assert "review_names" in answer.text


class TestWrites:
    def test_without_a_token_of_a_page_nothing_is_written(
        self, tmp_path: Path, routes: list[Route]
    ) -> None:
        writes = [route.path for route in routes if not route.methods & {"GET", "HEAD"}]
        with browser(tmp_path) as client:
            assert "/logout" in writes
            csrf(client)
            for path in writes:
                assert client.post(path).status_code == 403, path
                assert client.post(path, data={"csrf": "0" * 64}).status_code == 403, path
                odd = {b"X-CSRF-Token": b"\xe9"}
                assert client.post(path, headers=odd).status_code == 403, path

    def test_the_token_of_another_browser_does_not_do(self, tmp_path: Path) -> None:
        with browser(tmp_path) as client:
            foreign = csrf(client)
            client.cookies.clear()
            assert csrf(client) != foreign
            sent = client.post("/logout", data={"csrf": foreign}, follow_redirects=False)

        assert sent.status_code == 403

    def test_a_form_and_a_header_both_do(self, tmp_path: Path) -> None:
        with browser(tmp_path) as client:
            token = csrf(client)
            form = client.post("/logout", data={"csrf": token}, follow_redirects=False)
            header = client.post("/logout", headers={"X-CSRF-Token": token}, follow_redirects=False)
            foreign = client.post(
                "/logout",
                headers={"X-CSRF-Token": token, "Sec-Fetch-Site": "same-site"},
                follow_redirects=False,
            )

        assert (form.status_code, header.status_code, foreign.status_code) == (303, 303, 403)

    def test_a_body_has_a_bound(self, tmp_path: Path) -> None:
        with browser(tmp_path) as client:
            answer = client.post("/logout", content=b"x" * 5_000_000)

        assert answer.status_code == 413


class TestToken:
    def test_nothing_is_shown_without_it(self, tmp_path: Path, routes: list[Route]) -> None:
        with browser(tmp_path, token=TOKEN) as client:
            for route in routes:
                if route.path.startswith(("/login", "/static", "/healthz")):
                    continue
                method = "GET" if "GET" in route.methods else "POST"
                assert client.request(method, route.path).status_code == 401, route.path

    def test_a_browser_is_led_to_the_form(self, tmp_path: Path) -> None:
        with browser(tmp_path, token=TOKEN) as client:
            page = client.get("/", headers={"Accept": "text/html"})

        assert page.url.path == "/login"
        assert "Overview" not in page.text

    def test_who_gives_it_is_in_until_logged_out(self, tmp_path: Path) -> None:
        with browser(tmp_path, token=TOKEN) as client:
            assert log_in(client, "another") == 401
            assert client.get("/").status_code == 401
            assert log_in(client, TOKEN) == 303
            assert client.get("/").status_code == 200
            client.post("/logout", data={"csrf": csrf(client)})
            assert client.get("/").status_code == 401

    def test_a_cookie_is_of_this_process_and_ends(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with browser(tmp_path, token=TOKEN) as client:
            log_in(client, TOKEN)
            cookies = dict(client.cookies)
            monkeypatch.setattr("stream_dedup.review.guard.time.time", lambda: 4e9)
            assert client.get("/").status_code == 401
            monkeypatch.undo()
        with browser(tmp_path, token=TOKEN) as client:
            client.cookies.update(cookies)
            assert client.get("/").status_code == 401

    def test_scripts_may_send_it_as_a_header(self, tmp_path: Path) -> None:
        with browser(tmp_path, token=TOKEN) as client:
            sent = {b"Authorization": b"Bearer " + TOKEN.encode()}
            assert client.get("/", headers=sent).status_code == 200
            assert client.get("/", headers={"Authorization": "Bearer x"}).status_code == 401

    def test_cookies_are_for_this_site_and_not_for_scripts(self, tmp_path: Path) -> None:
        with browser(tmp_path, token=TOKEN) as client:
            form = {"csrf": csrf(client, "/login"), "token": TOKEN}
            cookie = client.post("/login", data=form, follow_redirects=False).headers["set-cookie"]

        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
