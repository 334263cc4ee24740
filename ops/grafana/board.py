"""A dashboard in Grafana's JSON: its panels in their places, its variables and links."""

from __future__ import annotations

from collections.abc import Sequence

from ops.grafana.panels import SOURCE, Json

#: Of Grafana 12.1; a later one migrates it.
_SCHEMA_VERSION = 41
_WIDTH = 24
_TAG = "stream-dedup"
#: An address to be replaced by that of one's own copy, see docs/dashboards.md.
_RUNBOOK = "https://git.example.org/stream-dedup/blob/main/ops/runbook.md"


def dashboard(name: str, description: str, panels: Sequence[Json]) -> Json:
    """Return a dashboard; ``name`` is the last part of its uid, which stays as it is."""
    return {
        "uid": f"stream-dedup-{name}",
        "title": f"stream-dedup / {name}",
        "description": description,
        "tags": [_TAG],
        "schemaVersion": _SCHEMA_VERSION,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "10s",
        "timezone": "browser",
        "time": {"from": "now-1h", "to": "now"},
        "links": _links(),
        "annotations": {"list": [_alerts()]},
        "templating": {"list": _variables()},
        "panels": _placed(panels),
    }


def _placed(panels: Sequence[Json]) -> list[Json]:
    """Number the panels and place them, each beside the last as long as there is room."""
    placed: list[Json] = []
    x = y = height = 0
    for number, panel in enumerate(panels, start=1):
        size = panel.get("gridPos", {"w": _WIDTH, "h": 1})
        if x + size["w"] > _WIDTH:
            x, y, height = 0, y + height, 0
        placed.append({"id": number, **panel, "gridPos": {"x": x, "y": y, **size}})
        x, height = x + size["w"], max(height, size["h"])
    return placed


def _links() -> list[Json]:
    kept = {"includeVars": True, "keepTime": True}
    boards = {"type": "dashboards", "title": "Other views", "tags": [_TAG], "asDropdown": False}
    runbook = {"type": "link", "title": "Runbook", "url": _RUNBOOK, "icon": "doc"}
    tooltip = {"tooltip": "What each alert means and what to do", "targetBlank": True}
    return [boards | kept, runbook | tooltip]


def _alerts() -> Json:
    return {
        "name": "Alerts",
        "datasource": SOURCE,
        "enable": True,
        "iconColor": "red",
        "expr": 'ALERTS{alertstate="firing",alertname=~"StreamDedup.+"}',
        "titleFormat": "{{alertname}}",
        "textFormat": "{{instance}}",
        "step": "30s",
    }


def _variables() -> list[Json]:
    asked = {"type": "query", "datasource": SOURCE, "refresh": 2, "sort": 1}
    return [
        {
            "name": "datasource",
            "label": "Prometheus",
            "description": "Where the metrics are.",
            "type": "datasource",
            "query": "prometheus",
            "current": {"text": "Prometheus", "value": "prometheus"},
        },
        asked
        | _labels("stream_dedup_build_info", "job")
        | {
            "label": "Job",
            "description": "One deployment, as Prometheus names it.",
            "current": {"text": "stream-dedup", "value": "stream-dedup"},
        },
        asked
        | _labels('stream_dedup_build_info{job="$job"}', "instance")
        | {
            "label": "Instance",
            "description": "Programs of the deployment, each with its worker processes.",
            "multi": True,
            "includeAll": True,
            # Not only those that are there now: graphs also show those that were.
            "allValue": ".*",
            "current": {"text": ["All"], "value": ["$__all"]},
        },
    ]


def _labels(metric: str, name: str) -> Json:
    query = f"label_values({metric}, {name})"
    return {"name": name, "query": {"query": query, "refId": name}, "definition": query}
