"""Rules, alerts, their tests, the metrics and the runbook speak of the same things."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from prometheus_client import REGISTRY
from prometheus_client.metrics import Histogram, MetricWrapperBase

from stream_dedup import metrics
from stream_dedup.cli.main import cli
from stream_dedup.settings import Settings
from tests.services.prometheus import promtool

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "ops" / "prometheus"
RUNBOOK = ROOT / "ops" / "runbook.md"
TESTS = sorted(PROMETHEUS.glob("*.test.yml"))
#: What a scrape adds.
TARGET_LABELS = {"job", "instance"}


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def rules_of(name: str) -> list[dict[str, Any]]:
    return [rule for group in load(PROMETHEUS / name)["groups"] for rule in group["rules"]]


RULES = rules_of("rules.yml")
ALERTS = rules_of("alerts.yml")
EXPRESSIONS = [rule["expr"] for rule in RULES + ALERTS]
KNOWN: dict[str, MetricWrapperBase] = {
    name: collector
    for registry in (REGISTRY, metrics.query_registry)
    for name, collector in registry._names_to_collectors.items()
    if isinstance(collector, MetricWrapperBase) and not name.endswith("_created")
}


def labels_of(series: str) -> set[str]:
    """Return the labels that every series of a metric has."""
    metric = KNOWN[series]
    bucket = {"le"} if series.endswith("_bucket") else set()
    return TARGET_LABELS | set(metric._labelnames) | bucket


def selectors(expression: str) -> list[tuple[str, str]]:
    """Return the metrics in an expression, each with what stands in its braces."""
    return re.findall(r"\b(stream_dedup_\w+)(?:\{([^}]*)\})?", expression)


class TestPromtool:
    @pytest.mark.integration
    def test_it_has_no_complaint_of_the_rules(self) -> None:
        files = [PROMETHEUS / name for name in load(PROMETHEUS / "prometheus.yml")["rule_files"]]

        checked = promtool("check", "rules", "--lint=all", "--lint-fatal", *files)

        assert checked.returncode == 0, checked.stdout
        found = re.findall(r"SUCCESS: (\d+) rules found", checked.stdout)
        assert [int(count) for count in found] == [len(RULES), len(ALERTS)]

    @pytest.mark.integration
    @pytest.mark.parametrize("path", TESTS, ids=lambda path: path.name)
    def test_rules_and_alerts_do_what_their_tests_say(self, path: Path) -> None:
        tested = promtool("test", "rules", path)

        assert tested.returncode == 0, tested.stdout


class TestRules:
    def test_every_metric_exists_with_the_labels_that_are_asked_for(self) -> None:
        for expression in EXPRESSIONS:
            for name, matchers in selectors(expression):
                assert name in KNOWN, name
                assert set(re.findall(r"(\w+)\s*[=!]", matchers)) <= labels_of(name), name

    def test_every_bound_is_one_of_its_histogram(self) -> None:
        bounds = [
            (name, bound)
            for expression in EXPRESSIONS
            for name, matchers in selectors(expression)
            for bound in re.findall(r'\ble="([^"]*)"', matchers)
        ]

        assert bounds
        for name, bound in bounds:
            histogram = KNOWN[name]
            assert isinstance(histogram, Histogram)
            assert bound in map(str, histogram._upper_bounds)

    def test_every_recorded_series_is_used_and_every_used_one_recorded(self) -> None:
        recorded = [rule["record"] for rule in RULES]
        used = set(re.findall(r"\bstream_dedup:[\w:]+", "\n".join(EXPRESSIONS)))

        assert len(set(recorded)) == len(recorded)
        assert set(recorded) == used

    def test_every_recorded_series_is_tested(self) -> None:
        tested = "\n".join(
            case["expr"]
            for test in load(PROMETHEUS / "rules.test.yml")["tests"]
            for case in test["promql_expr_test"]
        )

        assert {rule["record"] for rule in RULES} == set(
            re.findall(r"\bstream_dedup:[\w:]+", tested)
        )


class TestAlerts:
    def test_names_are_unique(self) -> None:
        names = Counter(alert["alert"] for alert in ALERTS)

        assert max(names.values()) == 1

    @pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
    def test_it_tells_what_an_operator_needs(self, alert: dict[str, Any]) -> None:
        assert alert["alert"].startswith("StreamDedup")
        assert alert["labels"]["severity"] in {"page", "ticket"}
        assert set(alert["annotations"]) == {"summary", "description", "runbook_url"}
        assert alert["annotations"]["summary"].endswith(".")
        # Of what is absent there is no figure.
        description = alert["annotations"]["description"]
        assert ("$value" in description) == (not alert["expr"].startswith("absent("))

    def test_every_alert_has_a_series_that_fires_it_and_one_that_does_not(self) -> None:
        fired: set[str] = set()
        quiet: set[str] = set()
        for path in TESTS:
            for test in load(path)["tests"]:
                for case in test.get("alert_rule_test", []):
                    (fired if case["exp_alerts"] else quiet).add(case["alertname"])
                    for expected in case["exp_alerts"]:
                        assert set(expected) == {"exp_labels", "exp_annotations"}

        names = {alert["alert"] for alert in ALERTS}
        assert fired == names
        assert quiet == names

    def test_tested_series_are_those_of_the_metrics(self) -> None:
        for path in TESTS:
            for test in load(path)["tests"]:
                for given in test["input_series"]:
                    name, labels = re.fullmatch(r"(\w+)\{(.*)\}", given["series"]).groups()  # type: ignore[union-attr]
                    expected = TARGET_LABELS if name == "up" else labels_of(name)
                    assert set(re.findall(r'(\w+)="', labels)) == expected, given["series"]


class TestRunbook:
    def test_every_alert_links_to_its_heading_and_every_heading_has_an_alert(self) -> None:
        text = RUNBOOK.read_text(encoding="utf-8")
        headings = re.findall(r"^### (StreamDedup\w+)$", text, re.MULTILINE)

        assert headings == [alert["alert"] for alert in ALERTS]
        for alert in ALERTS:
            link = f"ops/runbook.md#{alert['alert'].lower()}"
            assert alert["annotations"]["runbook_url"] == link

    def test_every_alert_says_what_it_means_how_to_look_and_what_to_do(self) -> None:
        text = RUNBOOK.read_text(encoding="utf-8")
        for section in re.split(r"^### (?=StreamDedup)", text, flags=re.MULTILINE)[1:]:
            parts = re.findall(r"^\*\*(\w[\w ]*)\.\*\*", section, re.MULTILINE)
            assert parts == ["Means", "Look", "Do"], section.splitlines()[0]

    def test_its_metrics_and_links_exist(self) -> None:
        text = RUNBOOK.read_text(encoding="utf-8")
        recorded = {rule["record"] for rule in RULES}

        for name, matchers in selectors(text):
            assert name in KNOWN, name
            assert set(re.findall(r"(\w+)\s*[=!]", matchers)) <= labels_of(name), name
        assert set(re.findall(r"\bstream_dedup:[\w:]+", text)) <= recorded
        for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
            assert link.startswith("https://") or (RUNBOOK.parent / link).exists(), link

    def test_its_own_headings_exist(self) -> None:
        text = RUNBOOK.read_text(encoding="utf-8")
        headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)

        anchors = {heading.lower().replace(" ", "-") for heading in headings}
        assert set(re.findall(r"\]\(#([^)]*)\)", text)) <= anchors

    def test_its_commands_have_the_flags_that_it_gives_them(self) -> None:
        text = RUNBOOK.read_text(encoding="utf-8")
        calls = re.findall(r"(?<!group )\bstream-dedup ([a-z][a-z-]*)\b([^`\n|]*)", text)

        assert calls
        for name, arguments in calls:
            command = cli.get_command(click.Context(cli), name)
            assert command is not None, name
            if isinstance(command, click.Group):
                command = command.commands[arguments.split()[0]]
            known = {option for parameter in command.params for option in parameter.opts}
            assert set(re.findall(r"(?<= )--?[a-z-]+", arguments)) <= known, (name, arguments)

    def test_its_settings_exist(self) -> None:
        text = RUNBOOK.read_text(encoding="utf-8")
        assigned = set(re.findall(r"`([a-z_]+) = ", text))

        assert assigned
        assert assigned <= set(Settings.model_fields)
