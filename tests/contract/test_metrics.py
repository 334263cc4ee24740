"""The metrics keep the conventions of Prometheus: promtool says so, of every one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest

from stream_dedup import metrics
from stream_dedup.cli.main import cli
from stream_dedup.cli.metrics import definitions
from tests.services.prometheus import promtool

#: Base units, and what is counted.
_UNITS = (
    *("_seconds", "_bytes", "_ratio", "_info"),
    *("_records", "_documents", "_originals", "_entries", "_candidates", "_partitions"),
)
#: Plain numbers and states.
_WITHOUT_UNIT = {"near_similarity", "near_hamming_distance", "ready"}


@pytest.mark.parametrize("registry", [REGISTRY, metrics.query_registry])
def test_promtool_has_no_complaint(registry: CollectorRegistry, tmp_path: Path) -> None:
    page = tmp_path / "metrics"
    page.write_bytes(generate_latest(registry))

    found = promtool("check", "metrics", stdin=page)

    assert found.returncode == 0, found.stdout
    assert not found.stdout


def test_every_name_has_the_prefix_and_its_unit() -> None:
    for registry in (REGISTRY, metrics.query_registry):
        for family in registry.collect():
            if family.name.startswith(("python_", "process_")):
                continue
            assert family.name.startswith("stream_dedup_")
            bare = family.name.removeprefix("stream_dedup_")
            counted = family.type == "counter"
            assert counted or bare.endswith(_UNITS) or bare in _WITHOUT_UNIT, bare
            assert family.documentation.endswith(".")


class TestPage:
    TEXT = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()

    def show(self, *flags: str) -> str:
        return CliRunner().invoke(cli, ["metrics", *flags], catch_exceptions=False).stdout

    def test_its_table_is_up_to_date(self) -> None:
        table = self.TEXT.partition("| metric |")

        assert "".join(table[1:]) == self.show("--markdown"), (
            "make it with stream-dedup metrics --markdown"
        )

    def test_every_metric_is_printed_once(self) -> None:
        printed = json.loads(self.show("--json"))
        names = [one["name"] for one in printed]

        assert len(set(names)) == len(names)
        assert set(names) == {
            family.name + "_total" * (family.type == "counter")
            for registry in (REGISTRY, metrics.query_registry)
            for family in registry.collect()
            if family.name.startswith("stream_dedup_")
        }
        assert all(name in self.show() for name in names)

    def test_every_label_is_explained(self) -> None:
        rows = self.TEXT.partition("| label | values |")[2].partition("\n\n")[0]
        first = "".join(row.split("|")[1] for row in rows.splitlines() if row)
        explained = set(re.findall(r"`(\w+)`", first))

        assert explained == {label for one in definitions() for label in one.labels}

    def test_it_names_no_other_metric(self) -> None:
        known = REGISTRY._names_to_collectors | metrics.query_registry._names_to_collectors

        assert set(re.findall(r"stream_dedup_\w+", self.TEXT)) <= known.keys()
