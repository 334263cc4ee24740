"""The dashboards are what their generator writes, and every panel of them says what it shows."""

from __future__ import annotations

import re
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import REGISTRY

import stream_dedup.metrics  # noqa: F401  (puts the metrics into the registry)
from ops.grafana.__main__ import dashboards
from tests.services.dashboards import FOLDER, NAMES, Panel, panels, read

ROOT = Path(__file__).parents[2]
PROVISIONING = ROOT / "ops" / "grafana" / "provisioning"
EXPLAINED = (ROOT / "docs" / "dashboards.md").read_text(encoding="utf-8")
#: Units of Grafana that the panels use.
UNITS = {"short", "s", "bytes", "percentunit", "ops"}
#: What Prometheus itself keeps.
BUILT_IN = {"up", "ALERTS"}

every_dashboard = pytest.mark.parametrize("name", NAMES)


def with_queries(name: str) -> list[Panel]:
    return [panel for panel in panels(name) if panel.kind != "row"]


def test_the_files_are_what_the_generator_writes() -> None:
    made = dashboards()

    assert sorted(made) == sorted(FOLDER.glob("*.json"))
    for path, text in made.items():
        assert path.read_text(encoding="utf-8") == text, "run python -m ops.grafana"


@every_dashboard
class TestDashboard:
    def test_it_keeps_its_uid_and_leads_to_the_others_and_the_runbook(self, name: str) -> None:
        board = read(name)

        assert board["uid"] == f"stream-dedup-{name}"
        assert board["links"][0]["tags"] == board["tags"] == ["stream-dedup"]
        assert (ROOT / board["links"][1]["url"].partition("/main/")[2]).is_file()

    def test_its_variables_are_those_that_queries_use(self, name: str) -> None:
        text = (FOLDER / f"{name}.json").read_text(encoding="utf-8")
        variables = [variable["name"] for variable in read(name)["templating"]["list"]]

        used = set(re.findall(r"\$\{?([a-z]\w*)", text))
        assert used == set(variables) == {"datasource", "job", "instance"}

    def test_panels_are_numbered_and_do_not_overlap(self, name: str) -> None:
        board = read(name)["panels"]

        assert len({panel["id"] for panel in board}) == len(board)
        for one, other in combinations(panels(name), 2):
            assert apart(one, other), (one.title, other.title)
        assert all(panel.place[0] + panel.size[0] <= 24 for panel in panels(name))

    def test_every_panel_says_what_it_shows(self, name: str) -> None:
        found = with_queries(name)

        assert found[0].kind == "stat"
        titles = Counter((panel.kind, panel.title) for panel in found)
        assert max(titles.values()) == 1
        for panel in found:
            assert panel.title
            assert panel.json["description"].endswith("."), panel.title
            assert panel.json["fieldConfig"]["defaults"]["unit"] in UNITS, panel.title
            assert panel.json["datasource"]["uid"] == "${datasource}"
            assert panel.targets
            assert all(target.legend for target in panel.targets), panel.title

    def test_every_metric_in_a_query_exists(self, name: str) -> None:
        known = set(REGISTRY._names_to_collectors) | BUILT_IN
        for panel in with_queries(name):
            for target in panel.targets:
                assert used_metrics(target.expression) <= known, panel.title

    def test_every_query_keeps_to_the_chosen_job_and_instances(self, name: str) -> None:
        for panel in with_queries(name):
            for target in panel.targets:
                selectors = re.findall(r"\b(?:stream_dedup_\w+|up)(\{.*?\})?", target.expression)
                assert all(
                    selector.startswith('{job="$job",instance=~"$instance"')
                    for selector in selectors
                ), panel.title

    def test_legends_name_labels_that_the_query_keeps(self, name: str) -> None:
        for panel in with_queries(name):
            for target in panel.targets:
                kept = ",".join(re.findall(r" by \(([^)]*)\)", target.expression))
                for label in re.findall(r"\{\{(\w+)\}\}", target.legend):
                    assert label in re.split(r",\s*", kept), (panel.title, label)

    def test_every_panel_is_explained_with_a_picture(self, name: str) -> None:
        picture = f"images/dashboard-{name}.png"

        assert f"]({picture})" in EXPLAINED
        assert 0 < (ROOT / "docs" / picture).stat().st_size < 250_000
        missing = [p.title for p in with_queries(name) if f"**{p.title}**" not in EXPLAINED]
        assert not missing


def apart(one: Panel, other: Panel) -> bool:
    """Whether two panels have no cell of the grid in common."""
    return any(
        one.place[axis] + one.size[axis] <= other.place[axis]
        or other.place[axis] + other.size[axis] <= one.place[axis]
        for axis in (0, 1)
    )


def used_metrics(expression: str) -> set[str]:
    """Return the metrics that an expression selects: each has its matchers behind it."""
    return set(re.findall(r"(\w+)\{", expression))


class TestProvisioning:
    @staticmethod
    def load(path: str) -> Any:
        return yaml.safe_load((PROVISIONING / path).read_text(encoding="utf-8"))

    def test_all_dashboards_are_in_one_folder_from_what_is_mounted(self) -> None:
        compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
        mounts = dict(volume.split(":")[:2] for volume in compose["services"]["grafana"]["volumes"])

        (provider,) = self.load("dashboards/stream-dedup.yml")["providers"]

        assert provider["folder"] == "stream-dedup"
        assert mounts["./ops/grafana/dashboards"] == provider["options"]["path"]
        assert mounts["./ops/grafana/provisioning"] == "/etc/grafana/provisioning"

    def test_the_variable_begins_with_the_source_that_is_there(self) -> None:
        (source,) = self.load("datasources/prometheus.yml")["datasources"]

        variable = read("service")["templating"]["list"][0]

        assert variable["current"] == {"text": source["name"], "value": source["uid"]}
        assert variable["query"] == source["type"]
