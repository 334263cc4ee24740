"""The site: what all pages share, and the application that serves them."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

from fastapi import Depends, FastAPI, Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.exceptions import HTTPException

from stream_dedup import __version__
from stream_dedup.errors import ServiceError
from stream_dedup.query import Answer, Question
from stream_dedup.review import display
from stream_dedup.review.failures import handle_failures
from stream_dedup.review.guard import Guard, Headers
from stream_dedup.review.ingestion import Ingestion
from stream_dedup.review.labelling import Labelling
from stream_dedup.review.pages import group, label, login, overview, search
from stream_dedup.review.shipped import Shipped
from stream_dedup.review.window import Window
from stream_dedup.serve.limits import BodyLimit
from stream_dedup.settings import Settings

#: Modules of the pages; each gives its routes.
PAGES = (overview, group, search, label, login)

#: Bytes of the body of a request: a pasted text.
_BODY_BYTES = 4_000_000
#: What the navigation shows: address and word.
_NAVIGATION = (("/", "Overview"), ("/search", "Search"), ("/label", "Label"))

Ask = Callable[[Sequence[Question]], list[Answer]]


class Closes(Protocol):
    """What is closed with the site."""

    def close(self) -> None:
        """Release everything."""


class Site:
    """What the pages are made of.

    Attributes:
        settings: the settings in force.
        window: the documents.
        guard: checks cookies and tokens.
        labels: what people say of pairs, or None.
        asks: whether there is an index to ask about texts.
    """

    def __init__(
        self,
        settings: Settings,
        window: Window,
        guard: Guard,
        *,
        ingestion: Ingestion | None = None,
        ask: Ask | None = None,
        labels: Labelling | None = None,
    ) -> None:
        """Set up.

        Args:
            settings: the settings.
            window: the documents.
            guard: checks cookies and tokens.
            ingestion: fills the window; None where nothing does.
            ask: asks the index about texts, one call at a time; None without an index.
            labels: what people say of pairs.
        """
        self.settings = settings
        self.window = window
        self.guard = guard
        self.labels = labels
        self.asks = ask is not None
        self.shipped = Shipped()
        self._ingestion = ingestion
        self._ask = ask
        self._asking = threading.Lock()
        self._templates = Environment(
            loader=PackageLoader("stream_dedup.review"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.globals |= {"static": self.shipped.url, "version": __version__}
        self._templates.filters |= display.FILTERS | {"count": _count}

    def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """Ask the index about texts.

        Raises:
            ServiceError: there is no index, or it is out of reach.
        """
        if self._ask is None:
            msg = "There is no index to ask. Give one with --state or --redis-url."
            raise ServiceError(msg)
        with self._asking:
            return self._ask(questions)

    def page(
        self, request: Request, name: str, *, status_code: int = 200, **context: Any
    ) -> HTMLResponse:
        """Render a template as the answer to a request.

        Args:
            request: the request.
            name: of the template.
            status_code: HTTP status.
            context: what the template is given, beside what every page has.
        """
        path = request.url.path
        shared = {
            "csrf": self.guard.csrf(request),
            "here": next((to for to, _ in reversed(_NAVIGATION) if _leads(to, path)), ""),
            "logged_in": self.guard.has_token and self.guard.is_in(request),
            "navigation": _NAVIGATION if self.guard.is_in(request) and path != "/login" else (),
            "progress": None if self._ingestion is None else self._ingestion.progress(),
        }
        content = self._templates.get_template(name).render(shared | context)
        response = HTMLResponse(content, status_code)
        self.guard.keep(request, response)
        return response

    async def check_csrf(self, request: Request) -> None:
        """Refuse a write that no page of ours has sent.

        Raises:
            HTTPException: it has no valid token.
        """
        if not await self.guard.came_from_here(request):
            msg = "This page is older than the server, or came from elsewhere. Load it again."
            raise HTTPException(403, msg)

    def check_access(self, request: Request) -> None:
        """Refuse a request for another host, or of somebody who has not logged in.

        Raises:
            HTTPException: it may not be answered.
        """
        if not self.guard.hosts.knows(request.headers.get("host", "")):
            msg = "This host name is not ours. Use the address, or add the name to review_names."
            raise HTTPException(421, msg)
        if not self.guard.is_in(request):
            raise HTTPException(401, "Log in with the token of this page.")


def make_site(site: Site, *closes: Closes) -> FastAPI:
    """Make the application.

    Args:
        site: what its pages are made of.
        closes: what is closed with it.
    """

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        for one in closes:
            one.close()

    app = FastAPI(
        title="stream-dedup review",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        dependencies=[Depends(site.check_access), Depends(site.check_csrf)],
    )
    for page in PAGES:
        app.include_router(page.routes(site))
    handle_failures(app, site.page)
    app.add_middleware(BodyLimit, most=_BODY_BYTES)
    app.add_middleware(Headers)
    return app


def _leads(to: str, path: str) -> bool:
    return path == to if to == "/" else path.startswith(to)


def _count(value: float) -> str:
    return f"{value:,.0f}"
