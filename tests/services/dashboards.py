"""The dashboards as files: their panels, and their queries with the variables filled in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parents[2] / "ops" / "grafana" / "dashboards"
NAMES = ("service", "index", "quality")


class Target(NamedTuple):
    """A query of a panel.

    Attributes:
        expression: PromQL, with Grafana's variables.
        legend: what its series are called.
        instant: whether it is asked for one moment only.
    """

    expression: str
    legend: str
    instant: bool


class Panel(NamedTuple):
    """A panel with queries.

    Attributes:
        kind: of Grafana's.
        title: of the panel.
        place: of its upper left corner, x and y.
        size: width and height, of a grid with 24 columns.
        targets: its queries.
        json: all that the file says.
    """

    kind: str
    title: str
    place: tuple[int, int]
    size: tuple[int, int]
    targets: list[Target]
    json: dict[str, Any]


def read(name: str) -> dict[str, Any]:
    """Return a dashboard as its file has it."""
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return found


def panels(name: str) -> list[Panel]:
    """Return the panels of a dashboard, rows included."""
    return [_panel(panel) for panel in read(name)["panels"]]


def filled(expression: str, *, job: str, rate_seconds: int, range_seconds: int) -> str:
    """Fill in what Grafana would: all instances of a job, and the times.

    Args:
        expression: PromQL with variables.
        job: as Prometheus calls it.
        rate_seconds: for ``$__rate_interval``: four scrapes or more.
        range_seconds: for ``$__range``: what the dashboard shows.
    """
    values = {
        "$__rate_interval": f"{rate_seconds}s",
        "$__range": f"{range_seconds}s",
        "$instance": ".*",
        "$job": job,
    }
    for variable, value in values.items():
        expression = expression.replace(variable, value)
    return expression


def _panel(panel: dict[str, Any]) -> Panel:
    grid = panel["gridPos"]
    targets = [
        Target(target["expr"], target["legendFormat"], target["instant"])
        for target in panel.get("targets", [])
    ]
    place, size = (grid["x"], grid["y"]), (grid["w"], grid["h"])
    return Panel(panel["type"], panel["title"], place, size, targets, panel)
