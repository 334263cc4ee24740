"""PromQL that is right for many workers, with the variables of the dashboards filled in by Grafana.

Rates are taken of each series before they are summed, so that a restart never shows as a drop, and
quantiles of summed buckets, never means of quantiles.
"""

from __future__ import annotations

_PREFIX = "stream_dedup_"
#: What the variables at the top of each dashboard choose.
_CHOSEN = 'job="$job",instance=~"$instance"'
#: At least four scrapes, however far one zooms in.
STEP = "$__rate_interval"
#: The time that the dashboard shows.
SHOWN = "$__range"


def chosen(name: str, labels: str = "") -> str:
    """Select a metric of the chosen job and instances.

    Args:
        name: of the metric, without the prefix; ``up`` is Prometheus' own.
        labels: further matchers, such as ``status="original"``.
    """
    full = name if name == "up" else _PREFIX + name
    return f"{full}{{{','.join(filter(None, (_CHOSEN, labels)))}}}"


def total(name: str, by: str = "", *, labels: str = "") -> str:
    """Sum a gauge over instances, or over all but some labels."""
    return f"sum{_by(by)}({chosen(name, labels)})"


def largest(name: str, by: str = "", *, labels: str = "") -> str:
    """Take the largest value: of what every worker tells of the one index, any will do."""
    return f"max{_by(by)}({chosen(name, labels)})"


def rate(name: str, by: str = "", *, labels: str = "", over: str = STEP) -> str:
    """Return a counter's increase per second, summed over instances."""
    return f"sum{_by(by)}(rate({chosen(name, labels)}[{over}]))"


def increase(name: str, by: str = "", *, labels: str = "", over: str = SHOWN) -> str:
    """Return a counter's increase over some time, summed over instances."""
    return f"sum{_by(by)}(increase({chosen(name, labels)}[{over}]))"


def quantile(share: float, histogram: str, *, over: str = STEP) -> str:
    """Return the value that this share of the observations does not exceed."""
    return f"histogram_quantile({share}, {rate(f'{histogram}_bucket', 'le', over=over)})"


def ratio(part: str, whole: str) -> str:
    """Divide, and return nothing where there is nothing to divide by."""
    return f"{part} / ({whole} > 0)"


def share(parts: str, whole: str) -> str:
    """Divide each of several series by one, and return nothing where there is nothing of it."""
    return f"{parts} / on () group_left () ({whole} > 0)"


def or_zero(expression: str) -> str:
    """Return 0 where there is no series, because nothing of the kind has happened yet."""
    return f"({expression} or vector(0))"


def _by(labels: str) -> str:
    return f" by ({labels}) " if labels else ""
