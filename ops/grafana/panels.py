"""Panels, in Grafana's JSON.

A panel has no place yet but a size; a dashboard places it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

Json = dict[str, Any]

#: What the variable at the top chooses.
SOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
#: Colour of a value from which on it holds; the first holds below all others.
Steps = Sequence[tuple[str, float | None]]
PLAIN: Steps = (("text", None),)


class Query(NamedTuple):
    """A query of a panel.

    Attributes:
        expression: PromQL, with Grafana's variables.
        legend: what its series are called; ``{{label}}`` stands for a label's value.
    """

    expression: str
    legend: str


class Column(NamedTuple):
    """A column of a table: a query that gives one value for each row.

    Attributes:
        title: of the column.
        unit: of its values.
        expression: PromQL.
    """

    title: str
    unit: str
    expression: str


def stat(
    title: str,
    description: str,
    unit: str,
    query: Query,
    *,
    steps: Steps = PLAIN,
    absent: str = "–",
    decimals: int | None = None,
) -> Json:
    """Return one number, as it is now, in the colour of its threshold.

    Args:
        title: names the number.
        description: says what it means, and what to do when it is bad.
        unit: one of Grafana's.
        query: gives it.
        steps: thresholds.
        absent: text where the query gives nothing.
        decimals: digits after the point; Grafana chooses without it.
    """
    panel = _panel("stat", title, description, unit, [query], size=(4, 4), instant=True)
    panel["fieldConfig"]["defaults"] |= {"thresholds": _thresholds(steps), "noValue": absent}
    if decimals is not None:
        panel["fieldConfig"]["defaults"]["decimals"] = decimals
    plain = steps is PLAIN
    panel["options"] = {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "value" if plain else "background",
        "graphMode": "none",
        "textMode": "value",
    }
    return panel


def series(
    title: str,
    description: str,
    unit: str,
    *queries: Query,
    width: int = 12,
    stacked: bool = False,
    logarithmic: bool = False,
    top: float | None = None,
    steps: Steps = PLAIN,
) -> Json:
    """Return lines over time; all begin at 0.

    Args:
        title: names the panel.
        description: says what it means.
        unit: one of Grafana's.
        queries: give the lines.
        width: columns of 24.
        stacked: whether the lines are parts of one whole.
        logarithmic: whether equal steps upwards are equal factors.
        top: end of the axis; the largest value without it.
        steps: thresholds, drawn as dashed lines.
    """
    panel = _panel("timeseries", title, description, unit, queries, size=(width, 8))
    defaults = panel["fieldConfig"]["defaults"]
    defaults["min"] = 0
    if top is not None:
        defaults["max"] = top
    custom: Json = {"lineWidth": 1, "showPoints": "never", "fillOpacity": 30 if stacked else 8}
    if stacked:
        custom["stacking"] = {"mode": "normal", "group": "A"}
    if logarithmic:
        del defaults["min"]
        custom["scaleDistribution"] = {"type": "log", "log": 10}
    if steps is not PLAIN:
        defaults["thresholds"] = _thresholds(steps)
        custom["thresholdsStyle"] = {"mode": "dashed"}
    defaults |= {"custom": custom, "color": {"mode": "palette-classic"}}
    panel["options"] = {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return panel


def heatmap(title: str, description: str, unit: str, query: Query, *, width: int = 12) -> Json:
    """Return a histogram over time: how many observations fell between two bounds.

    Args:
        title: names the panel.
        description: says what it means.
        unit: of the bounds.
        query: gives the increase of cumulative buckets by ``le``.
        width: columns of 24.
    """
    panel = _panel("heatmap", title, description, unit, [query], size=(width, 8), form="heatmap")
    panel["options"] = {
        "calculate": False,
        "rowsFrame": {"layout": "auto", "value": "observations"},
        "yAxis": {"unit": unit, "axisPlacement": "left"},
        "color": {"mode": "scheme", "scheme": "Oranges", "exponent": 0.5, "steps": 64},
        "cellGap": 1,
        "filterValues": {"le": 1e-9},
        "tooltip": {"mode": "single", "yHistogram": True},
        "legend": {"show": True},
    }
    return panel


def bars(
    title: str,
    description: str,
    unit: str,
    query: Query,
    *,
    width: int = 12,
    buckets: bool = False,
) -> Json:
    """Return a bar for each series, as they are now.

    Args:
        title: names the panel.
        description: says what it means.
        unit: of the values.
        query: gives them.
        width: columns of 24.
        buckets: whether the series are cumulative buckets by ``le``, to be shown as what falls
            between two bounds.
    """
    form = "heatmap" if buckets else "time_series"
    size = (width, 8)
    panel = _panel(
        "bargauge", title, description, unit, [query], size=size, instant=True, form=form
    )
    panel["fieldConfig"]["defaults"] |= {
        "min": 0,
        "color": {"mode": "fixed", "fixedColor": "blue"},
        "thresholds": _thresholds(PLAIN),
    }
    panel["options"] = {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "orientation": "vertical",
        "displayMode": "basic",
        "showUnfilled": False,
        "minVizWidth": 8,
    }
    return panel


def table(
    title: str, description: str, key: str, *columns: Column, width: int = 24, height: int = 6
) -> Json:
    """Return a table with a row for each value of some labels.

    Args:
        title: names the panel.
        description: says what it means.
        key: the labels, separated by commas; the queries must be summed by some of them.
        columns: the others.
        width: columns of 24.
        height: as many rows of the grid.
    """
    queries = [Query(column.expression, column.title) for column in columns]
    size = (width, height)
    panel = _panel(
        "table", title, description, "short", queries, size=size, instant=True, form="table"
    )
    # Grafana names the values of a query after its letter.
    values = {f"Value #{_letter(at)}": column for at, column in enumerate(columns)}
    if len(columns) == 1:
        values = {"Value": columns[0]}
    panel["fieldConfig"]["overrides"] = [
        {
            "matcher": {"id": "byName", "options": column.title},
            "properties": [
                {"id": "unit", "value": column.unit},
                *([{"id": "decimals", "value": 0}] if column.unit == "short" else []),
            ],
        }
        for column in columns
    ]
    order = ["Time", *key.split(","), *values]
    panel["transformations"] = [
        {"id": "merge", "options": {}},
        {
            "id": "organize",
            "options": {
                "excludeByName": {"Time": True},
                "indexByName": {name: at for at, name in enumerate(order)},
                "renameByName": {name: column.title for name, column in values.items()},
            },
        },
    ]
    panel["options"] = {"showHeader": True, "cellHeight": "sm"}
    return panel


def row(title: str) -> Json:
    """Return a heading; the panels after it belong to it."""
    return {"type": "row", "title": title, "collapsed": False, "panels": []}


def _panel(
    kind: str,
    title: str,
    description: str,
    unit: str,
    queries: Sequence[Query],
    *,
    size: tuple[int, int],
    instant: bool = False,
    form: str = "time_series",
) -> Json:
    width, height = size
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": SOURCE,
        "gridPos": {"w": width, "h": height},
        "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
        "targets": [
            {
                "refId": _letter(at),
                "datasource": SOURCE,
                "expr": query.expression,
                "legendFormat": query.legend,
                "instant": instant,
                "range": not instant,
                "format": form,
            }
            for at, query in enumerate(queries)
        ],
    }


def _letter(number: int) -> str:
    return chr(ord("A") + number)


def _thresholds(steps: Steps) -> Json:
    found = [{"color": color, "value": value} for color, value in steps]
    return {"mode": "absolute", "steps": found}
