"""The page on which people label pairs, and the exports of their labels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote, unquote

from fastapi import APIRouter, Form, HTTPException, Request
from fastapi.responses import RedirectResponse, Response, StreamingResponse

from stream_dedup.errors import InputError, StateError
from stream_dedup.review.diff import compare_texts
from stream_dedup.review.display import MOST_SHOWN, Shown, folded
from stream_dedup.review.label_chart import curve
from stream_dedup.review.label_export import (
    Labelled,
    csv_lines,
    exported_documents,
    exported_pairs,
    json_lines,
)
from stream_dedup.review.label_summary import summarize
from stream_dedup.review.label_types import Label, LastDraw, Pair
from stream_dedup.review.labelling import Labelling
from stream_dedup.review.turns import LONGEST_NAME, checked_name

if TYPE_CHECKING:
    from stream_dedup.review.site import Site

_COOKIE = "review-labeller"
#: What a comparison may cost: pairs are to follow one another without a wait.
_CELLS = 30_000_000
#: Characters of a text from which on long stretches that both texts have are left out.
_FOLDED_FROM = 5_000
_YEAR = 365 * 24 * 3600
_SAID = {
    Label.DUPLICATE: "a duplicate",
    Label.NOT: "not a duplicate",
    Label.UNSURE: "unsure",
}
_WORDS = {label.name.lower(): label for label in Label}


def routes(site: Site) -> APIRouter:
    """Return the routes of this page."""
    router = APIRouter()
    _add_page(router, site)
    _add_exports(router, site)
    return router


def _add_page(router: APIRouter, site: Site) -> None:
    """Add what shows pairs and takes labels."""

    @router.get("/label")
    def show(request: Request) -> Response:
        return site.page(request, "label.html", **_shown(site, labeller_of(request)))

    @router.get("/label/work")
    def work(request: Request) -> Response:
        return site.page(request, "label_work.html", **_shown(site, labeller_of(request)))

    @router.post("/label/name")
    def choose_name(request: Request, name: Annotated[str, Form()]) -> Response:
        try:
            tidy = checked_name(name)
        except InputError as error:
            context = _shown(site, "", trouble=str(error))
            return site.page(request, "label.html", status_code=400, **context)
        response = RedirectResponse("/label", 303)
        response.set_cookie(
            _COOKIE,
            quote(tidy),
            max_age=_YEAR,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return response

    @router.post("/label/forget-name")
    def forget_name() -> Response:
        response = RedirectResponse("/label", 303)
        response.delete_cookie(_COOKIE)
        return response

    @router.post("/label")
    def label(
        request: Request,
        pair: Annotated[int, Form(ge=1, lt=1 << 63)],
        label: Annotated[str, Form()],
    ) -> Response:
        if label not in _WORDS:
            raise HTTPException(400, "A label is duplicate, not or unsure.")
        given = _labelling(site).labels.label(pair, _known(request), _WORDS[label])
        told = f"Labelled: {_SAID[_WORDS[label]]}." if given else "That pair is no longer there."
        return _answer(site, request, told)

    @router.post("/label/undo")
    def undo(request: Request) -> Response:
        undone = _labelling(site).labels.undo(_known(request))
        told = "There is no label of yours to undo." if undone is None else "Undone."
        return _answer(site, request, told)


def _add_exports(router: APIRouter, site: Site) -> None:
    """Add what gives labels away."""

    @router.get("/labels.jsonl")
    def lines() -> Response:
        draw, labelled = _labelled(site)
        return _file("labels.jsonl", json_lines(exported_pairs(labelled, _sizes(site, draw))))

    @router.get("/labels.csv")
    def table() -> Response:
        draw, labelled = _labelled(site)
        return _file("labels.csv", csv_lines(exported_pairs(labelled, _sizes(site, draw))))

    @router.get("/labels/documents.jsonl")
    def documents() -> Response:
        _, labelled = _labelled(site)
        return _file("documents.jsonl", json_lines(exported_documents(labelled, site.settings)))


def labeller_of(request: Request) -> str:
    """Return the name of who labels; empty where none is chosen, or it is none."""
    try:
        return checked_name(unquote(request.cookies.get(_COOKIE, "")))
    except InputError:
        return ""


def _known(request: Request) -> str:
    """Return the name of who labels.

    Raises:
        HTTPException: none is chosen.
    """
    name = labeller_of(request)
    if not name:
        raise HTTPException(400, "Choose a name before you label.")
    return name


def _labelling(site: Site) -> Labelling:
    """Return the labels.

    Raises:
        HTTPException: there are none, or their file cannot be used.
    """
    if site.labels is None:
        raise HTTPException(404, "This page was started without labels.")
    try:
        _ = site.labels.labels
    except StateError as error:
        raise HTTPException(503, str(error)) from error
    return site.labels


def _answer(site: Site, request: Request, told: str) -> Response:
    """Show the next pair: in place, or as a page of its own where no script runs."""
    if request.headers.get("hx-request") != "true":
        return RedirectResponse("/label", 303)
    context = _shown(site, _known(request), told=told)
    return site.page(request, "label_work.html", **context)


def _shown(site: Site, name: str, *, told: str = "", trouble: str = "") -> dict[str, Any]:
    """Return what the templates show."""
    labelling = _labelling(site)
    draw = labelling.want()
    scale = labelling.scale
    summary = None if draw is None else summarize(labelling.labels, draw, scale)
    pair = labelling.labels.next_pair(name, draw, scale) if name and draw else None
    mine = [one for one in summary.labellers if one.name == name] if summary else []
    return {
        "labeller": name,
        "longest_name": LONGEST_NAME,
        "told": told,
        "trouble": trouble or labelling.trouble,
        "labelling": labelling,
        "scale": scale,
        "draw": draw,
        "pair": pair,
        "sides": None if pair is None else _sides(pair),
        "summary": summary,
        "mine": mine[0] if mine else None,
        "curve": curve(summary.thresholds, scale) if summary and summary.now else None,
    }


def _sides(pair: Pair) -> tuple[list[Shown], list[Shown]]:
    """Return both texts with what differs marked."""
    texts = pair.left.text, pair.right.text
    difference = compare_texts(*texts, _CELLS)
    parts, _ = folded(difference, MOST_SHOWN, fold=max(map(len, texts)) > _FOLDED_FROM)
    left, right = (
        [part for part in parts if part.kind in {"equal", "folded", kind}]
        for kind in ("removed", "added")
    )
    return left, right


def _labelled(site: Site) -> tuple[LastDraw, Labelled]:
    """Return the newest draw and the labels of its configuration.

    Raises:
        HTTPException: there is none.
    """
    labels = _labelling(site).labels
    draw = labels.last_draw()
    if draw is None:
        raise HTTPException(404, "There are no labels yet. Label some pairs first.")
    return draw, labels.labelled(draw.configuration)


def _sizes(site: Site, draw: LastDraw) -> dict[str, float]:
    labelling = _labelling(site)
    return {
        level.name: level.size
        for level in summarize(labelling.labels, draw, labelling.scale).levels
    }


def _file(name: str, lines: Iterable[bytes]) -> Response:
    kind = "text/csv" if name.endswith(".csv") else "application/x-ndjson"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    chunks: Iterator[bytes] = iter(lines)
    return StreamingResponse(chunks, media_type=f"{kind}; charset=utf-8", headers=headers)
