"""Errors as ``application/problem+json`` (RFC 9457): what is wrong, and what to do next."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from stream_dedup.errors import ServiceError
from stream_dedup.serve.lane import Busy
from stream_dedup.serve.models import KINDS
from stream_dedup.tokens import CHALLENGE

log = logging.getLogger(__name__)

#: Seconds after which an index that was out of reach may be asked again.
RETRY_AFTER = "2"

MEDIA_TYPE = "application/problem+json"

#: What each status means and, where the error does not say, what to do.
_TITLES = {
    400: ("The body cannot be read", "Send one JSON object in UTF-8."),
    401: ("No valid token", "Send the server's token as Authorization: Bearer TOKEN."),
    404: ("There is nothing here", "See /openapi.json for what there is."),
    405: ("Not this method", "See /openapi.json for the methods of each path."),
    413: ("Too large", "Send less at once."),
    421: (
        "Not a name of this server",
        "Ask for localhost or an address, from no page of another; or set serve_names.",
    ),
    422: ("The request is not as described", "See /openapi.json for what to send."),
    500: ("An error of the server", "See its log, and report it."),
    503: ("Not available now", f"Try again after {RETRY_AFTER} s."),
}


class FieldProblem(BaseModel, frozen=True):
    """What is wrong with one field of a request."""

    field: str = Field(description="Where it stands.", examples=["body.documents.0.text"])
    detail: str = Field(description="What is wrong with it.", examples=["Field required"])


class Problem(BaseModel, frozen=True):
    """An error: what is wrong, and what to do next."""

    type: str = Field(
        default="about:blank",
        description="Always `about:blank`: the status says what it is (RFC 9457).",
    )
    title: str = Field(description="What is wrong, in general.", examples=["Too large"])
    status: int = Field(description="The HTTP status.", examples=[413])
    detail: str = Field(
        description="What is wrong here, and what to do next.",
        examples=["A request may have 256 documents and this one has 300. Send less at once."],
    )
    errors: list[FieldProblem] | None = Field(
        None, description="The fields that are not as described."
    )


def respond(
    status: int,
    sentence: str = "",
    *,
    errors: list[FieldProblem] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Make the response to a request that cannot be answered.

    Args:
        status: the HTTP status.
        sentence: what is wrong here, and what to do unless that is always the same.
        errors: the fields that are wrong.
        headers: more headers.
    """
    title, advice = _TITLES.get(status, (f"Status {status}", _TITLES[422][1]))
    detail = f"{sentence or title + '.'} {advice}"
    problem = Problem(title=title, status=status, detail=detail, errors=errors)
    content = problem.model_dump_json(exclude_none=True)
    more = dict(headers or {})
    if status == 503:
        more["Retry-After"] = RETRY_AFTER
    if status == 401:
        more["WWW-Authenticate"] = CHALLENGE
    return Response(content, status, more, MEDIA_TYPE)


def described(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the errors of an endpoint for its OpenAPI description."""
    return {status: {"model": Problem, "description": _TITLES[status][0]} for status in statuses}


def handle_problems(app: FastAPI) -> None:
    """Let every error of an application be a problem."""

    @app.exception_handler(HTTPException)
    def on_http(_request: Request, error: HTTPException) -> Response:
        # A phrase such as "Not Found" says no more than the title.
        sentence = error.detail if error.detail.endswith(".") else ""
        return respond(error.status_code, sentence, headers=error.headers)

    @app.exception_handler(RequestValidationError)
    def on_validation(_request: Request, error: RequestValidationError) -> Response:
        errors = [
            FieldProblem(field=_place(one["loc"]), detail=one["msg"]) for one in error.errors()
        ]
        sentence = f"{errors[0].field}: {errors[0].detail}."
        return respond(422, sentence, errors=errors)

    @app.exception_handler(ServiceError)
    def on_service(_request: Request, error: ServiceError) -> Response:
        return respond(503, str(error))

    @app.exception_handler(Busy)
    def on_busy(_request: Request, _error: Busy) -> Response:
        return respond(503, "Too many documents wait for an answer.")

    @app.exception_handler(TimeoutError)
    def on_timeout(_request: Request, _error: TimeoutError) -> Response:
        return respond(503, "The index has not answered in time.")

    @app.exception_handler(Exception)
    def on_error(_request: Request, error: Exception) -> Response:
        log.error("a request failed", exc_info=error)
        return respond(500)


def _place(location: Sequence[str | int]) -> str:
    """Name a field as a client knows it: without the kind of body that it was taken for."""
    name = ".".join(str(part) for part in location if part not in KINDS)
    return name.encode("utf-8", "backslashreplace").decode()  # a lone surrogate cannot be written
