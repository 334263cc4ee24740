"""Search: by document id, by duplicate id, or by pasted text."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, FastAPI, Form, Query, Request
from fastapi.responses import HTMLResponse

from stream_dedup.groups import DUPLICATE_ID
from stream_dedup.query import Answer, Question
from stream_dedup.review import queries
from stream_dedup.review.known import MOST, KnownOriginals, Reach
from stream_dedup.types import Document

if TYPE_CHECKING:
    from stream_dedup.review.site import Site

#: Documents listed.
_LISTED = 50
#: Characters of an id that is searched for.
_LONGEST = 1000


def routes(site: Site) -> APIRouter:
    """Return the routes of this page."""
    known = None if site.asks else KnownOriginals(site.settings, site.window)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        if known is not None:
            known.close()

    router = APIRouter(prefix="/search", lifespan=lifespan)

    @router.get("")
    def show(request: Request, q: Annotated[str, Query(max_length=_LONGEST)] = "") -> HTMLResponse:
        if known is not None:
            known.begin()  # most people who come here will ask
        return site.page(request, "search.html", **_found(site, q), **_asked(site))

    @router.post("/text")
    def ask(request: Request, text: Annotated[str, Form()] = "") -> HTMLResponse:
        # Browsers send line ends as CR LF, whatever was pasted.
        text = text.replace("\r\n", "\n")
        question = Question(Document("", text), explain=True)
        reach: Reach | None = None
        if known is None:
            (answer,) = site.ask([question])
        else:
            (answer,), reach = known.ask([question])
        context = _asked(site) | _told(site, answer) | {"reach": reach, "pasted": text}
        return site.page(request, "search.html", **_found(site, ""), **context)

    return router


def _asked(site: Site) -> dict[str, Any]:
    return {"asks_index": site.asks, "most": MOST, "answer": None, "reach": None, "pasted": ""}


def _found(site: Site, words: str) -> dict[str, Any]:
    """Look for documents and a group by what was typed."""
    word = words.strip()
    with site.window.reader() as window:
        same = queries.with_id(window, word, _LISTED + 1) if word else []
        name = word.lower()
        group = queries.group(window, name) if DUPLICATE_ID.fullmatch(name) else None
        near = queries.beginning_with(window, word, _LISTED) if word and not same else []
        texts = {one["row"]: queries.text(window, one["row"]) for one in (*same, *near)}
    return {
        "q": words,
        "word": word,
        "found": same[:_LISTED],
        "more": len(same) > _LISTED,
        "group": group,
        "texts": texts,
        "beginning": near,
    }


def _told(site: Site, answer: Answer) -> dict[str, Any]:
    """Say what an answer is about, and which of its documents are in the window."""
    named = [] if answer.why is None else [one.original_id for one in answer.why.candidates]
    if answer.original_id is not None:
        named.append(answer.original_id)
    with site.window.reader() as window:
        groups = {name: queries.group_begun_by(window, name) for name in named}
        is_here = answer.duplicate_id is not None and queries.group(window, answer.duplicate_id)
    return {"answer": answer, "groups": groups, "group_here": bool(is_here)}
