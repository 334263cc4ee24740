"""What a browser is shown when a page cannot be."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse, Response
from starlette.exceptions import HTTPException

from stream_dedup.errors import ServiceError

log = logging.getLogger(__name__)

_TITLES = {
    401: "Log in first",
    403: "Not allowed",
    404: "There is nothing here",
    405: "Not this way",
    413: "Too large",
    421: "Another host",
    422: "Not an address of this page",
    500: "An error of the server",
    503: "Not available now",
}
_NOT_WRITTEN = "This could not be written, and nothing of it was kept. Make room on the disk."
_TOO_LONG = "The window has not answered in time. Try again, or show fewer documents at once."

Page = Callable[..., Response]


def handle_failures(app: FastAPI, page: Page) -> None:
    """Let every failure be a page that says what is wrong.

    Args:
        app: the application.
        page: renders a template (see ``Site.page``).
    """

    def show(request: Request, status: int, sentence: str) -> Response:
        title = _TITLES.get(status, f"Status {status}")
        return page(request, "error.html", status_code=status, title=title, sentence=sentence)

    @app.exception_handler(HTTPException)
    def on_http(request: Request, error: HTTPException) -> Response:
        if error.status_code == 401 and "text/html" in request.headers.get("accept", ""):
            return RedirectResponse("/login", 303)
        # A phrase such as "Not Found" says no more than the title.
        sentence = error.detail if error.detail.endswith(".") else ""
        return show(request, error.status_code, sentence)

    @app.exception_handler(RequestValidationError)
    def on_validation(request: Request, _error: RequestValidationError) -> Response:
        return show(request, 422, "A part of the address or of the form is not as it should be.")

    @app.exception_handler(ServiceError)
    def on_service(request: Request, error: ServiceError) -> Response:
        return show(request, 503, str(error))

    @app.exception_handler(sqlite3.OperationalError)
    def on_window(request: Request, error: sqlite3.OperationalError) -> Response:
        log.warning("the window has not answered: %(cause)s", {"cause": str(error)})
        interrupted = error.sqlite_errorcode in {sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_BUSY}
        return show(request, 503, _TOO_LONG if interrupted else _NOT_WRITTEN)

    @app.exception_handler(Exception)
    def on_error(request: Request, error: Exception) -> Response:
        log.error("a page failed", exc_info=error)
        return show(request, 500, "See its log, and report it.")
