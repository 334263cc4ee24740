"""Logging in and out, static files, and whether the server runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Form, Request
from fastapi.responses import PlainTextResponse, RedirectResponse, Response

if TYPE_CHECKING:
    from stream_dedup.review.site import Site


def routes(site: Site) -> APIRouter:
    """Return these routes."""
    router = APIRouter()

    @router.get("/login")
    def form(request: Request) -> Response:
        if not site.guard.has_token:
            return RedirectResponse("/", 303)
        return site.page(request, "login.html", wrong=False)

    @router.post("/login")
    def log_in(request: Request, token: Annotated[str, Form(max_length=1000)] = "") -> Response:
        response = RedirectResponse("/", 303)
        if site.guard.log_in(request, response, token):
            return response
        return site.page(request, "login.html", status_code=401, wrong=True)

    @router.post("/logout")
    def log_out() -> Response:
        response = RedirectResponse("/login", 303)
        site.guard.log_out(response)
        return response

    @router.get("/static/{name}")
    def static(request: Request, name: str) -> Response:
        return site.shipped.respond(request, name)

    @router.get("/healthz")
    def healthz() -> Response:
        return PlainTextResponse("ok\n")

    return router
