"""The page of a duplicate group: its original, its duplicates, what differs, why they match."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from urllib.parse import urlencode

from fastapi import APIRouter, FastAPI, HTTPException, Path, Query, Request
from fastapi.responses import HTMLResponse, StreamingResponse
from pydantic import BaseModel, Field

from stream_dedup.groups import DUPLICATE_ID
from stream_dedup.review import display, export, queries
from stream_dedup.review.diff import compare_texts
from stream_dedup.review.matching import Matching
from stream_dedup.review.queries import Place, Sort
from stream_dedup.review.seen import STATUSES
from stream_dedup.review.window import Window

if TYPE_CHECKING:
    from stream_dedup.review.site import Site

#: Members of a page.
_LISTED = 25
#: Characters of both texts from which on they are compared after the page is there.
_LATER = 60_000

DuplicateId = Annotated[str, Path(pattern=f"^{DUPLICATE_ID.pattern}$")]
_Place = Annotated[str | None, Field(pattern=r"^-?[0-9][0-9.e+-]{0,24},[0-9]{1,18}$")]


class Wish(BaseModel):
    """What is asked for of a group.

    Attributes:
        row: the member that is compared with the original.
        sort: the order of the members.
        after: what the page of members before this one ended with.
        before: what the next one begins with.
        full: whether unchanged stretches are shown too.
    """

    row: int | None = Field(None, alias="with", ge=1, lt=1 << 63)
    sort: Sort = Sort.FARTHEST
    after: _Place = None
    before: _Place = None
    full: bool = False


class _Pair(NamedTuple):
    """Two documents that are compared.

    Attributes:
        left: the original or, where it has gone, the oldest document that has not.
        right: a member; None where there is no other.
        texts: their texts, where known.
    """

    left: sqlite3.Row | None
    right: sqlite3.Row | None
    texts: tuple[str | None, str | None]

    @property
    def size(self) -> int:
        """Characters of both texts."""
        return sum(len(text or "") for text in self.texts)


def routes(site: Site) -> APIRouter:
    """Return the routes of this page."""
    matching = Matching(site.settings)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        matching.prepare()
        yield

    router = APIRouter(prefix="/groups/{duplicate_id}", lifespan=lifespan)
    _add_export(router, site.window, ".csv", "text/csv; charset=utf-8", export.as_csv)
    _add_export(router, site.window, ".jsonl", "application/x-ndjson", export.as_jsonl)

    @router.get("")
    def show(
        request: Request, duplicate_id: DuplicateId, wish: Annotated[Wish, Query()]
    ) -> HTMLResponse:
        with site.window.reader() as window:
            group = _known(queries.group(window, duplicate_id))
            members = queries.members(
                window,
                duplicate_id,
                wish.sort,
                _LISTED,
                after=_place(wish.after),
                before=_place(wish.before),
                without=group["original_row"],
            )
            first = members.rows[0]["row"] if members.rows else None
            pair = _pair(window, group, wish.row or first)
            texts = {one["row"]: queries.text(window, one["row"]) for one in members.rows}
        is_later = pair.size > _LATER
        context = _heads(pair) if is_later else _shown(pair, matching, full=wish.full)
        context |= {"members": members, "texts": texts, "wish": wish, "sorts": list(Sort)}
        context |= {"group": group, "later": is_later, "address": _addresses(duplicate_id, wish)}
        return site.page(request, "group.html", **context)

    @router.get("/compare")
    def compare(
        request: Request, duplicate_id: DuplicateId, wish: Annotated[Wish, Query()]
    ) -> HTMLResponse:
        """Return the part of the page that compares."""
        with site.window.reader() as window:
            group = _known(queries.group(window, duplicate_id))
            pair = _pair(window, group, wish.row)
        context = _shown(pair, matching, full=wish.full)
        context |= {"group": group, "later": False, "wish": wish}
        context |= {"address": _addresses(duplicate_id, wish)}
        return site.page(request, "group_comparison.html", **context)

    return router


def _add_export(
    router: APIRouter,
    window: Window,
    ending: str,
    media_type: str,
    spell: Callable[[Window, str], Iterator[str]],
) -> None:
    def send(duplicate_id: DuplicateId) -> StreamingResponse:
        with window.reader() as database:
            _known(queries.group(database, duplicate_id))
        name = f'attachment; filename="group-{duplicate_id}{ending}"'
        lines = spell(window, duplicate_id)
        return StreamingResponse(
            lines, media_type=media_type, headers={"Content-Disposition": name}
        )

    router.add_api_route(ending, send, methods=["GET"])


def _known(found: sqlite3.Row | None) -> sqlite3.Row:
    if found is None:
        msg = "No document of this group is in the window, or not any more."
        raise HTTPException(404, msg)
    return found


def _place(spelled: str | None) -> Place | None:
    if spelled is None:
        return None
    value, _, row = spelled.partition(",")
    try:
        return Place(float(value), int(row))
    except ValueError as error:
        msg = "This page of the group does not exist. Begin with the first one."
        raise HTTPException(404, msg) from error


def _pair(window: sqlite3.Connection, group: sqlite3.Row, row: int | None) -> _Pair:
    name = group["duplicate_id"]
    left_row = group["original_row"]
    left = queries.oldest(window, name) if left_row is None else queries.document(window, left_row)
    right = None if row is None else queries.document(window, row)
    if row is not None and (right is None or right["duplicate_id"] != name):
        msg = "This document is not in the group, or not in the window any more."
        raise HTTPException(404, msg)
    if left is not None and right is not None and left["row"] == right["row"]:
        right = None
    texts = [None if one is None else queries.text(window, one["row"]) for one in (left, right)]
    return _Pair(left, right, (texts[0], texts[1]))


def _heads(pair: _Pair) -> dict[str, Any]:
    return {
        "left": pair.left,
        "right": pair.right,
        "texts_known": tuple(text is not None for text in pair.texts),
        "status": None if pair.right is None else STATUSES[pair.right["status"]].value,
    }


def _shown(pair: _Pair, matching: Matching, *, full: bool) -> dict[str, Any]:
    """Return what a template needs to show a comparison."""
    context = _heads(pair) | {"why": None, "difference": None, "text": None}
    most = display.MOST_SHOWN if full else display.SHOWN
    left, right = pair.texts
    if pair.right is None:
        whole = left or ""
        return context | {"text": whole[:most], "whole": len(whole) <= most, "most": most}
    if left is None or right is None:
        only = left if right is None else right
        shown = "" if only is None else only[:most]
        return context | {"text": shown, "whole": len(only or "") <= most, "most": most}
    difference = compare_texts(left, right)
    parts, whole_shown = display.folded(difference, most, fold=not full)
    return context | {
        "why": matching.explain(left, right),
        "in_force": matching.configuration,
        "difference": difference,
        "parts": parts,
        "whole": whole_shown,
        "folds": any(part.kind == "folded" for part in parts),
        "most": most,
        "lengths": (len(left), len(right)),
    }


def _addresses(duplicate_id: str, wish: Wish) -> Callable[..., str]:
    """Return what makes addresses of this group in which some parameters are others."""
    present = {"sort": wish.sort.value, "after": wish.after, "before": wish.before}

    def address(part: str = "", **changes: object) -> str:
        wanted = {**present, **changes}
        given = {
            name.rstrip("_"): spelled
            for name, value in wanted.items()
            if (spelled := _spelled(value)) is not None
        }
        return f"/groups/{duplicate_id}{part}?{urlencode(given)}"

    return address


def _spelled(value: object) -> str | None:
    if isinstance(value, Place):
        return f"{value.value!r},{value.row}"
    return None if value is None else str(value)
