"""The application: its endpoints, and their description as OpenAPI."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Path, Security
from fastapi.openapi.utils import get_openapi
from fastapi.responses import PlainTextResponse, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from stream_dedup import metrics
from stream_dedup.groups import DUPLICATE_ID
from stream_dedup.query import Answer, Question
from stream_dedup.serve.groups import Groups
from stream_dedup.serve.lane import Lane
from stream_dedup.serve.limits import BodyLimit, Measured
from stream_dedup.serve.models import Answers, GroupState, QueryBatch, QueryBody
from stream_dedup.serve.problems import MEDIA_TYPE, described, handle_problems
from stream_dedup.serve.source import Source
from stream_dedup.settings import Settings
from stream_dedup.tokens import admits
from stream_dedup.types import Document

#: Requests as large as may be that can wait at a time.
_WAITING = 4

_DESCRIPTION = (
    "Asks an index whether texts are known: what their original is, how similar the two are, and "
    "why. Nothing is registered and nothing written."
)
_bearer = HTTPBearer(auto_error=False, description="The server's token, where it has one.")


def make_app(
    settings: Settings, source: Source, token: str = "", groups: Groups | None = None
) -> FastAPI:
    """Make the application.

    Args:
        settings: limits, and how texts are fingerprinted.
        source: the index; closed with the application.
        token: what a client must send to ask; empty when anybody may.
        groups: the states of duplicate groups, if they are at hand; closed likewise.
    """
    most = _WAITING * settings.serve_documents, _WAITING * settings.serve_bytes
    lane = Lane(source.ask, *most)
    service = _Service(settings, lane, groups)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        await lane.close()
        source.close()
        if groups is not None:
            groups.close()

    app = FastAPI(
        title="stream-dedup",
        version="1",
        description=_DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.include_router(_queries(service, token))
    app.include_router(_operations(service, token))
    handle_problems(app)
    app.add_middleware(BodyLimit, most=settings.serve_bytes)
    app.add_middleware(Measured)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


class _Service:
    """Checks what is asked, and asks the index."""

    def __init__(self, settings: Settings, lane: Lane, groups: Groups | None) -> None:
        self._settings = settings
        self._lane = lane
        self._groups = groups

    async def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """Answer questions, unless they are too many or too long."""
        most = self._settings.serve_documents
        if len(questions) > most:
            msg = f"A request may have {most} documents and this one has {len(questions)}."
            raise HTTPException(413, msg)
        longest = max((len(question.document.text) for question in questions), default=0)
        if longest > self._settings.max_characters:
            msg = (
                f"A text may have {self._settings.max_characters} characters and one has {longest}."
            )
            raise HTTPException(413, msg)
        async with asyncio.timeout(self._settings.serve_timeout):
            answers = await self._lane.ask(questions)
        for answer in answers:
            metrics.query_documents_total.labels(answer.status.value).inc()
        return answers

    async def group(self, duplicate_id: str) -> bytes:
        """Return the state of a group, as JSON."""
        if self._groups is None:
            msg = "Groups are kept in Redis, and this server asks a state file."
            raise HTTPException(404, msg)
        async with asyncio.timeout(self._settings.serve_timeout):
            state = await self._groups.look_up(duplicate_id)
        if state is None:
            msg = f"There is no group {duplicate_id}: no duplicate of it is known."
            raise HTTPException(404, msg)
        return state

    async def try_out(self) -> None:
        """Ask about some text, to see whether the index answers."""
        async with asyncio.timeout(self._settings.serve_timeout):
            await self._lane.ask([Question(Document("", "Is the index ready?"))])


def _guarded_by(token: str) -> Any:
    """Return the dependency that answers 401 to requests without the token."""

    def check_token(
        given: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)],
    ) -> None:
        if not admits(token, f"{given.scheme} {given.credentials}" if given else ""):
            raise HTTPException(401)

    return Depends(check_token)


def _queries(service: _Service, token: str) -> APIRouter:
    router = APIRouter(prefix="/v1", dependencies=[_guarded_by(token)], tags=["query"])

    @router.post(
        "/query",
        operation_id="query",
        response_model=Answer | Answers,
        response_model_exclude_none=True,
        responses=described(400, 401, 413, 422, 500, 503),
        summary="Is this text known?",
    )
    async def query(body: QueryBody) -> Response:
        """Say of a document, or of each of several, whether it is known.

        The answer is what a worker would decide about the document at this moment, but that a
        document of the index is known too when it is asked about. Send one document for one
        answer, or `documents` for `answers`.
        """
        documents = body.documents if isinstance(body, QueryBatch) else [body]
        answers = await service.ask(
            [document.question(explain=body.explain) for document in documents]
        )
        found = Answers(answers=answers) if isinstance(body, QueryBatch) else answers[0]
        content = found.model_dump_json(exclude_none=True)
        return Response(content, media_type="application/json")

    @router.get(
        "/groups/{duplicate_id}",
        operation_id="group",
        response_model=GroupState,
        responses=described(401, 404, 422, 500, 503),
        summary="Who is in this duplicate group?",
    )
    async def group(
        duplicate_id: Annotated[
            str,
            Path(
                description="`duplicate_id` of an answer or of an annotation.",
                pattern=f"^{DUPLICATE_ID.pattern}$",
                examples=["bd818d85f1b75295b320b003"],
            ),
        ],
    ) -> Response:
        """Return the size of a group, when it was seen, and members of it.

        `stream-dedup groups` keeps it in Redis, from its first duplicate on.
        """
        return Response(await service.group(duplicate_id), media_type="application/json")

    return router


def _operations(service: _Service, token: str) -> APIRouter:
    router = APIRouter(tags=["operation"], default_response_class=PlainTextResponse)

    @router.get("/healthz", operation_id="healthz", summary="Does the server run?")
    async def healthz() -> str:
        """Say `ok` as long as the server answers at all."""
        return "ok\n"

    @router.get(
        "/readyz", operation_id="readyz", summary="Does the index answer?", responses=described(503)
    )
    async def readyz() -> str:
        """Say `ok` when a text can be looked up; 503 with the reason when it can not."""
        await service.try_out()
        return "ok\n"

    @router.get(
        "/metrics",
        operation_id="metrics",
        summary="What is counted",
        responses=described(401),
        dependencies=[_guarded_by(token)],
    )
    async def metrics_() -> Response:
        """Return the metrics of this process for Prometheus."""
        return Response(
            generate_latest(metrics.query_registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    return router


def _openapi(app: FastAPI) -> dict[str, Any]:
    """Describe the application; its errors are problems, not plain JSON."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        for path in document["paths"].values():
            for operation in path.values():
                for status, response in operation["responses"].items():
                    if status >= "400":
                        response["content"] = {MEDIA_TYPE: next(iter(response["content"].values()))}
        app.openapi_schema = document
    return app.openapi_schema
