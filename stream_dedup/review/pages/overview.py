"""The overview: what came, how much of it was known, where it came from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from stream_dedup.review import charts, queries

if TYPE_CHECKING:
    from stream_dedup.review.site import Site

#: Groups and sources listed.
_LISTED = 10


def routes(site: Site) -> APIRouter:
    """Return the routes of this page."""
    router = APIRouter()

    @router.get("/")
    def show(request: Request) -> HTMLResponse:
        return site.page(request, "overview.html", **_figures(site))

    @router.get("/figures")
    def figures(request: Request) -> HTMLResponse:
        """Return the part of the page that changes."""
        return site.page(request, "overview_figures.html", **_figures(site))

    return router


def _figures(site: Site) -> dict[str, Any]:
    with site.window.reader() as window:
        totals = queries.totals(window)
        over_time = queries.over_time(window, charts.bars_for(totals.documents))
        similarities, distances = queries.similarities(window), queries.distances(window)
        drawn = []
        if over_time is not None:
            drawn += [charts.rate(over_time), charts.shares(over_time)]
        if similarities:
            drawn.append(charts.similarity(similarities))
        if distances:
            drawn.append(charts.distance(distances))
        largest = queries.largest_groups(window, _LISTED)
        growing = queries.growing_groups(window, _LISTED)
        originals = {one["original_row"] for one in (*largest, *growing)} - {None}
        return {
            "totals": totals,
            "charts": drawn,
            "chart_height": charts.HEIGHT,
            "largest": largest,
            "growing": growing,
            "texts": {row: queries.text(window, row) for row in originals},
            "sources": queries.frequent_sources(window, _LISTED),
        }
