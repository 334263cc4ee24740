"""What is deployed names settings, ports, paths, topics and metrics that exist."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import REGISTRY

import stream_dedup.metrics  # noqa: F401  (puts the metrics into the registry)
from stream_dedup.settings import ENV_PREFIX, Settings
from tests.services.prometheus import promtool

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "ops" / "prometheus" / "prometheus.yml"
GRAFANA = ROOT / "ops" / "grafana"
DASHBOARDS = sorted((GRAFANA / "dashboards").glob("*.json"))


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    # What a variable of the shell stands for when it is not set.
    found: dict[str, Any] = yaml.safe_load(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text))
    return found


@pytest.fixture(scope="module")
def settings(compose: dict[str, Any]) -> Settings:
    """The worker's settings; pydantic refuses unknown names and values out of range."""
    environment = compose["services"]["worker"]["environment"]
    named = {name.removeprefix(ENV_PREFIX).lower(): value for name, value in environment.items()}
    return Settings.model_validate(named)


class TestCompose:
    def test_the_worker_is_given_settings_only(self, compose: dict[str, Any]) -> None:
        names = compose["services"]["worker"]["environment"]

        assert all(name.startswith(ENV_PREFIX) for name in names)

    def test_the_worker_calls_addresses_that_services_listen_on(
        self, compose: dict[str, Any], settings: Settings
    ) -> None:
        kafka = compose["services"]["kafka"]["environment"]

        assert f"INSIDE://{settings.kafka_bootstrap}" in kafka["KAFKA_ADVERTISED_LISTENERS"]
        assert re.match(r"redis://redis:6379/\d+$", settings.redis_url)
        assert settings.http_host == "0.0.0.0"

    def test_the_topics_of_the_worker_are_created(
        self, compose: dict[str, Any], settings: Settings
    ) -> None:
        script = compose["services"]["topics"]["command"][-1]
        created = re.search(r"for topic in (.*); do", script)

        assert created is not None
        wanted = [settings.input_topic, settings.output_topic, settings.dead_letter_topic]
        assert created[1].split() == [*wanted, settings.members_topic]
        assert f"create {settings.groups_topic} --config cleanup.policy=compact" in script

    def test_groups_are_kept_with_the_settings_of_the_worker(self, compose: dict[str, Any]) -> None:
        worker, groups = (compose["services"][name] for name in ("worker", "groups"))

        assert (worker["command"], groups["command"]) == (["worker"], ["groups"])
        assert groups["environment"] == worker["environment"]

    def test_redis_never_evicts(self, compose: dict[str, Any]) -> None:
        servers = [
            s for s in compose["services"].values() if s.get("command", [""])[0] == "redis-server"
        ]

        assert len(servers) == 7
        for server in servers:
            command = server["command"]
            assert command[command.index("--maxmemory-policy") + 1] == "noeviction"

    def test_what_is_mounted_or_built_exists(self, compose: dict[str, Any]) -> None:
        for service in compose["services"].values():
            for volume in service.get("volumes", []):
                source = volume.split(":")[0]
                assert (ROOT / source).is_dir() or source in compose["volumes"]
            if "build" in service:
                assert (ROOT / service["build"]["dockerfile"]).is_file()

    def test_ports_are_open_to_this_machine_only(self, compose: dict[str, Any]) -> None:
        ports = [port for s in compose["services"].values() for port in s.get("ports", [])]

        assert ports
        assert all(port.startswith("127.0.0.1:") for port in ports)

    def test_what_runs_on_has_a_health_check(self, compose: dict[str, Any]) -> None:
        running = {name: s for name, s in compose["services"].items() if s.get("restart") != "no"}

        assert all("healthcheck" in service for service in running.values())
        asked = running["worker"]["healthcheck"]["test"][-1]
        assert "127.0.0.1:9464/readyz" in asked

    def test_services_wait_for_services_that_exist(self, compose: dict[str, Any]) -> None:
        for service in compose["services"].values():
            assert set(service.get("depends_on", {})) <= set(compose["services"])


class TestImage:
    def test_what_is_copied_exists_and_is_not_ignored(self) -> None:
        dockerfile = ROOT / "ops" / "deploy" / "Dockerfile"
        copies = re.findall(r"^COPY (?!--from)(.*) \S+$", dockerfile.read_text(), re.MULTILINE)
        sources = {source for line in copies for source in line.split()}

        assert all((ROOT / source).exists() for source in sources)
        sent = Path(f"{dockerfile}.dockerignore").read_text().split("\n")
        assert sources == {line[1:] for line in sent if line.startswith("!")}


class TestPrometheus:
    def test_it_scrapes_the_port_of_the_worker(
        self, compose: dict[str, Any], settings: Settings
    ) -> None:
        (job,) = load(PROMETHEUS)["scrape_configs"]
        (target,) = job["dns_sd_configs"]

        assert target["port"] == settings.http_port
        assert set(target["names"]) <= set(compose["services"])

    @pytest.mark.integration
    def test_promtool_accepts_its_configuration(self) -> None:
        checked = promtool("check", "config", PROMETHEUS)

        assert checked.returncode == 0, checked.stdout


class TestGrafana:
    def test_provisioning_points_at_what_is_mounted(self, compose: dict[str, Any]) -> None:
        mounted = [v.split(":")[1] for v in compose["services"]["grafana"]["volumes"]]
        (provider,) = load(GRAFANA / "provisioning" / "dashboards" / "service.yml")["providers"]

        assert provider["options"]["path"] in mounted

    @pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.name)
    def test_every_panel_has_a_unit_a_description_and_the_data_source(self, path: Path) -> None:
        (source,) = load(GRAFANA / "provisioning" / "datasources" / "prometheus.yml")["datasources"]
        panels = json.loads(path.read_text(encoding="utf-8"))["panels"]

        assert panels
        for panel in panels:
            assert panel["fieldConfig"]["defaults"]["unit"]
            assert panel["description"].endswith(".")
            assert panel["datasource"]["uid"] == source["uid"]

    @pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.name)
    def test_every_metric_on_a_dashboard_exists(self, path: Path) -> None:
        used = set(re.findall(r"\bstream_dedup_\w+", path.read_text(encoding="utf-8")))

        known = {name.removesuffix("_created") for name in REGISTRY._names_to_collectors}
        assert used
        assert used <= known


@pytest.mark.parametrize("script", [".ci/run", "ops/services/install.sh", "ops/services/venv.sh"])
def test_scripts_can_be_run(script: str) -> None:
    assert (ROOT / script).stat().st_mode & stat.S_IXUSR
