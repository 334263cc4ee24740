"""What Prometheus answers to the queries of a dashboard."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.services.dashboards import Panel, Target, filled, panels
from tests.services.observed import JOB
from tests.services.prometheus import Prometheus

#: Seconds between two points of a line.
STEP = 1.0
#: For ``$__rate_interval``; Grafana would take four scrapes, which is 4 s here.
_RATE = 8


class Line(NamedTuple):
    """One series.

    Attributes:
        legend: what it is called.
        labels: of the series.
        values: at each step; one for an instant query. NaN where there is none.
    """

    legend: str
    labels: dict[str, str]
    values: NDArray[np.float64]


class Answer(NamedTuple):
    """A panel and the series of each of its queries."""

    panel: Panel
    found: list[list[Line]]

    @property
    def lines(self) -> list[Line]:
        """All series of the panel."""
        return [line for lines in self.found for line in lines]


class Answers(NamedTuple):
    """A dashboard's panels.

    Attributes:
        times: of the steps, Unix time.
        panels: with their series.
    """

    times: NDArray[np.float64]
    panels: list[Answer]


def ask(prometheus: Prometheus, name: str, began: float, ended: float) -> Answers:
    """Ask every query of a dashboard: over the time shown, or at its end."""
    times = np.arange(began, ended, STEP)
    times_of = {"rate_seconds": _RATE, "range_seconds": round(ended - began)}
    answers = []
    for panel in panels(name):
        found = []
        for target in panel.targets:
            expression = filled(target.expression, job=JOB, **times_of)
            if target.instant:
                series = prometheus.query(expression)
            else:
                series = prometheus.query_range(expression, times[0], times[-1], STEP)
            found.append([_line(target, one, times) for one in series])
        answers.append(Answer(panel, found))
    return Answers(times, answers)


def _line(target: Target, series: dict[str, Any], times: NDArray[np.float64]) -> Line:
    labels = series["metric"]
    legend = re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), target.legend)
    if target.instant:
        return Line(legend, labels, np.array([float(series["value"][1])]))
    values = np.full(len(times), np.nan)
    for at, value in series["values"]:
        values[round((at - times[0]) / STEP)] = float(value)
    return Line(legend, labels, values)
