"""Write the JSON of the dashboards: ``python -m ops.grafana``."""

from __future__ import annotations

import json
from pathlib import Path

from ops.grafana.index import index
from ops.grafana.panels import Json
from ops.grafana.quality import quality
from ops.grafana.service import service

FOLDER = Path(__file__).with_name("dashboards")


def dashboards() -> dict[Path, str]:
    """Return the text of each file."""
    made: dict[str, Json] = {"service": service(), "index": index(), "quality": quality()}
    return {
        FOLDER / f"{name}.json": json.dumps(one, indent=2, ensure_ascii=False) + "\n"
        for name, one in made.items()
    }


if __name__ == "__main__":
    for path, text in dashboards().items():
        path.write_text(text, encoding="utf-8")
