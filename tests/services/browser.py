"""Chromium under the control of a test, and pages that remember whatever goes wrong in them."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Literal, NamedTuple, Self
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import (
    ConsoleMessage,
    Dialog,
    Locator,
    Page,
    Request,
    Response,
    sync_playwright,
)

from tests.services.process import find_program

Scheme = Literal["light", "dark"]

#: Debian's and Ubuntu's names, and those on the machines of CI services.
_PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
#: There is no sandbox for root, who tests in a container; its /dev/shm is small.
_ARGUMENTS = ("--no-sandbox", "--disable-dev-shm-usage")
_TIMEOUT_MS = 30_000
_MOST_TABS = 200
#: WCAG 2.2 to level AA, and what axe calls good practice.
_RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
#: What reaches beyond the window, unless a box around it scrolls by itself.
_SIDEWAYS = """() => {
    const root = document.scrollingElement;
    if (root.scrollWidth <= root.clientWidth) return [];
    return [...document.querySelectorAll('body *')]
        .filter((one) => one.getBoundingClientRect().right > root.clientWidth + 1)
        .map((one) => one.outerHTML.slice(0, 120));
}"""


class Size(NamedTuple):
    """Of a window, in CSS pixels."""

    width: int
    height: int


DESKTOP = Size(1280, 900)
PHONE = Size(390, 844)
#: The narrowest that phones have.
NARROW = Size(360, 640)


class Watched:
    """A page, and what goes wrong in it."""

    def __init__(self, page: Page, origin: str) -> None:
        self.page = page
        self._origin = origin
        self._wrong: list[str] = []
        page.on("console", self._console)
        page.on("pageerror", lambda error: self._wrong.append(f"error in a script: {error}"))
        page.on("request", self._request)
        page.on("requestfailed", self._failed)
        page.on("response", self._response)
        page.on("dialog", self._dialog)

    def go(self, path: str) -> None:
        """Open a page of the site and wait until it and what it needs are there."""
        self.page.goto(f"{self._origin}{path}")

    def close(self) -> None:
        """Forget the page and its cookies."""
        self.page.context.close()

    def looks(self, size: Size, scheme: Scheme) -> None:
        """Give the window a size, and the user a liking for light or dark colours."""
        self.page.set_viewport_size({"width": size.width, "height": size.height})
        self.page.emulate_media(color_scheme=scheme)

    def wrong(self) -> list[str]:
        """Return what went wrong since the last call: scripts, policy, requests, dialogs."""
        self.page.evaluate("0")  # comes after all that the browser has told so far
        found, self._wrong = self._wrong, []
        return found

    def violations(self) -> str:
        """Return what axe has against the page as it stands; empty for nothing."""
        found = Axe().run(self.page, options={"resultTypes": ["violations"], "runOnly": _RULES})
        return str(found.generate_report()) if found.violations_count else ""

    def sideways(self) -> list[str]:
        """Return what is wider than the window if the page scrolls sideways, else nothing."""
        found: list[str] = self.page.evaluate(_SIDEWAYS)
        return found

    def tab_to(self, target: Locator) -> None:
        """Press Tab until an element has the focus, as one does without a mouse.

        Raises:
            AssertionError: it cannot be reached that way.
        """
        for _ in range(_MOST_TABS):
            if target.evaluate("(one) => one === document.activeElement"):
                return
            self.page.keyboard.press("Tab")
        msg = f"{target} is not reached with Tab."
        raise AssertionError(msg)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self._wrong.append(f"{message.type} in the console: {message.text}")

    def _request(self, request: Request) -> None:
        url = urlsplit(request.url)
        if url.scheme not in {"data", "blob"} and not request.url.startswith(f"{self._origin}/"):
            self._wrong.append(f"request to another host: {request.url}")

    def _failed(self, request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":  # a download, or a page left in between
            self._wrong.append(f"request failed: {request.url} ({request.failure})")

    def _response(self, response: Response) -> None:
        if response.status >= 400:
            self._wrong.append(f"answer {response.status}: {response.url}")

    def _dialog(self, dialog: Dialog) -> None:
        self._wrong.append(f"dialog: {dialog.message}")
        dialog.dismiss()


class Browser:
    """Chromium without a display; ``with Browser() as browser:`` starts it.

    In one thread that runs no event loop, Playwright can be started only once at a time.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        program = find_program(*_PROGRAMS)
        playwright = self._stack.enter_context(sync_playwright())
        launched = playwright.chromium.launch(executable_path=program, args=_ARGUMENTS)
        self._browser = self._stack.enter_context(launched)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def open(
        self,
        origin: str,
        size: Size = DESKTOP,
        scheme: Scheme = "light",
        **options: Any,
    ) -> Watched:
        """Return an empty page with cookies of its own.

        Args:
            origin: of the site that will be opened in it: scheme, host and port.
            size: of the window.
            scheme: colours that the user prefers.
            options: more of Playwright's for a context.
        """
        context = self._browser.new_context(
            viewport={"width": size.width, "height": size.height},
            color_scheme=scheme,
            reduced_motion="reduce",
            locale="en-GB",
            timezone_id="UTC",
            **options,
        )
        context.set_default_timeout(_TIMEOUT_MS)
        return Watched(context.new_page(), origin)
