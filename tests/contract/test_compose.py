"""What is deployed names settings, ports, paths and topics that exist."""

from __future__ import annotations

import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from stream_dedup_workers import healthcheck
from stream_dedup_workers.supervisor import STOP_TIMEOUT

from stream_dedup.settings import ENV_PREFIX, Settings
from tests.services.prometheus import promtool

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "ops" / "prometheus" / "prometheus.yml"


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
    def test_it_is_what_the_specification_takes(self) -> None:
        checker = [sys.executable, "-m", "check_jsonschema", "--builtin-schema"]
        file = ROOT / "docker-compose.yml"
        checked = subprocess.run(
            [*checker, "vendor.compose-spec", file], check=False, capture_output=True, text=True
        )

        assert checked.returncode == 0, checked.stdout

    def test_profiles_are_those_of_the_guide(self, compose: dict[str, Any]) -> None:
        profiles = {p for s in compose["services"].values() for p in s.get("profiles", [])}
        guide = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")

        assert profiles == {"cluster", "serve"}
        assert all(f"--profile {profile}" in guide for profile in profiles)

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

    def test_all_programs_have_the_settings_of_the_worker(self, compose: dict[str, Any]) -> None:
        for name in ("worker", "groups", "serve"):
            service = compose["services"][name]
            assert service["command"] == [name]
            assert service["environment"] == compose["services"]["worker"]["environment"]

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

    def test_what_runs_on_has_a_health_check(
        self, compose: dict[str, Any], settings: Settings
    ) -> None:
        running = [s for s in compose["services"].values() if s.get("restart") != "no"]

        # That of the image asks on the port of the worker.
        assert all("healthcheck" in service or "build" in service for service in running)
        assert settings.http_port == int(healthcheck.DEFAULT_PORT)
        asked = compose["services"]["serve"]["healthcheck"]["test"]
        assert asked[-2:] == [healthcheck.__name__, str(settings.serve_port)]

    def test_workers_have_time_to_end(self, compose: dict[str, Any]) -> None:
        for service in compose["services"].values():
            if "build" in service:
                assert int(service["stop_grace_period"].removesuffix("s")) > STOP_TIMEOUT

    def test_what_is_built_may_do_nothing_that_it_need_not(self, compose: dict[str, Any]) -> None:
        for service in compose["services"].values():
            if "build" in service:
                assert service["read_only"] is True
                assert service["tmpfs"] == ["/tmp"]
                assert service["cap_drop"] == ["ALL"]
                assert service["security_opt"] == ["no-new-privileges:true"]

    def test_services_wait_for_services_that_exist(self, compose: dict[str, Any]) -> None:
        for service in compose["services"].values():
            assert set(service.get("depends_on", {})) <= set(compose["services"])


class TestPrometheus:
    def test_it_scrapes_the_ports_of_what_is_built(
        self, compose: dict[str, Any], settings: Settings
    ) -> None:
        (job,) = load(PROMETHEUS)["scrape_configs"]
        workers, serve = job["dns_sd_configs"]

        assert (workers["port"], serve["port"]) == (settings.http_port, settings.serve_port)
        built = {name for name, one in compose["services"].items() if "build" in one}
        assert {*workers["names"], *serve["names"]} == built

    @pytest.mark.integration
    def test_promtool_accepts_its_configuration(self) -> None:
        checked = promtool("check", "config", PROMETHEUS)

        assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("script", [".ci/run", "ops/services/install.sh", "ops/services/venv.sh"])
def test_scripts_can_be_run(script: str) -> None:
    assert (ROOT / script).stat().st_mode & stat.S_IXUSR
