"""The manifests are what Kubernetes takes, and say what the programs and the image say."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml
from stream_dedup_workers.supervisor import STOP_TIMEOUT

from stream_dedup import Settings, __version__
from stream_dedup.cli.main import cli
from stream_dedup.doctor.kafka_topics import DEFAULT_PARTITIONS
from stream_dedup.settings import ENV_PREFIX

ROOT = Path(__file__).parents[2]
KUBERNETES = ROOT / "ops" / "deploy" / "kubernetes"
BASE, SECURED = KUBERNETES / "base", KUBERNETES / "secured"
GUIDE = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
#: The release whose schemas the manifests must fit, and the oldest one.
RELEASES = ("1.37", "1.30")
#: Seconds that serve gives to requests in hand.
SERVE_GRACE = 10


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


KUSTOMIZATION = load(BASE / "kustomization.yaml")
MANIFESTS = [
    manifest
    for name in KUSTOMIZATION["resources"]
    for manifest in yaml.safe_load_all((BASE / name).read_text(encoding="utf-8"))
]
DEPLOYMENTS = [manifest for manifest in MANIFESTS if manifest["kind"] == "Deployment"]


def name_of(manifest: dict[str, Any]) -> str:
    return f"{manifest['kind']}-{manifest['metadata']['name']}"


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [manifest for manifest in MANIFESTS if manifest["kind"] == kind]


def pod_of(deployment: dict[str, Any]) -> dict[str, Any]:
    pod: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return pod


def program_of(deployment: dict[str, Any]) -> dict[str, Any]:
    (container,) = pod_of(deployment)["containers"]
    found: dict[str, Any] = container
    return found


def settings_in(folder: Path) -> Settings:
    """Pydantic refuses unknown names and values out of range."""
    given = tomllib.loads((folder / "settings.toml").read_text(encoding="utf-8"))
    with NamedTemporaryFile("w", suffix="seed") as seed:
        seed.write("seed")
        seed.flush()
        return Settings.model_validate(given | {"seed_file": seed.name})


def seconds(probe: dict[str, Any]) -> int:
    return int(probe["periodSeconds"] * probe["failureThreshold"])


@pytest.fixture(params=DEPLOYMENTS, ids=name_of)
def deployment(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = request.param
    return found


class TestSchemas:
    @pytest.mark.parametrize("release", RELEASES)
    @pytest.mark.parametrize("manifest", MANIFESTS, ids=name_of)
    def test_kubernetes_takes_it(self, manifest: dict[str, Any], release: str) -> None:
        assert kubernetes_validate.validate(manifest, release, strict=True) == release

    @pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=name_of)
    def test_kubernetes_takes_it_with_the_deployer_too(self, deployment: dict[str, Any]) -> None:
        patched = json.loads(json.dumps(deployment))
        for operation in load(SECURED / "deployer.yaml"):
            *path, last = operation["path"].strip("/").split("/")
            target = patched
            for step in path:
                target = target[int(step) if isinstance(target, list) else step]
            assert (operation["op"], last, type(target)) == ("add", "-", list)
            target.append(operation["value"])

        kubernetes_validate.validate(patched, RELEASES[0], strict=True)

    def test_every_manifest_has_a_place_in_the_kustomization(self) -> None:
        files = {path.name for path in BASE.glob("*.yaml")} - {"kustomization.yaml"}

        assert set(KUSTOMIZATION["resources"]) == files

    def test_no_manifest_names_a_namespace(self) -> None:
        assert not [name_of(m) for m in MANIFESTS if "namespace" in m["metadata"]]


class TestSettings:
    @pytest.mark.parametrize("folder", [BASE, SECURED], ids=lambda path: path.name)
    def test_the_generated_map_is_what_is_mounted(self, folder: Path) -> None:
        (generator,) = load(folder / "kustomization.yaml")["configMapGenerator"]

        assert generator["files"] == ["settings.toml"]
        for one in DEPLOYMENTS:
            (volume,) = [v for v in pod_of(one)["volumes"] if "configMap" in v]
            assert volume["configMap"]["name"] == generator["name"]

    @pytest.mark.parametrize("folder", [BASE, SECURED], ids=lambda path: path.name)
    def test_files_that_settings_name_are_mounted(self, folder: Path) -> None:
        given = tomllib.loads((folder / "settings.toml").read_text())
        named = [value for name, value in given.items() if name.endswith("_file")]

        settings_in(folder)
        assert named
        assert all(str(Path(path).parent) == "/etc/stream-dedup/secrets" for path in named)
        # What is to be in the Secret is told to whoever makes it.
        assert all(f"`{Path(path).name}`" in GUIDE for path in named)

    def test_no_secret_is_in_the_settings(self) -> None:
        for folder in (BASE, SECURED):
            given = tomllib.loads((folder / "settings.toml").read_text())
            secret = {name.removesuffix("_file") for name in Settings.model_fields}
            secret &= {
                name for name in Settings.model_fields if f"{name}_file" in Settings.model_fields
            }
            assert not secret & set(given)

    def test_the_secured_settings_differ_in_connections_only(self) -> None:
        base = tomllib.loads((BASE / "settings.toml").read_text())
        secured = tomllib.loads((SECURED / "settings.toml").read_text())
        differing = {n for n in base | secured if base.get(n) != secured.get(n)}

        assert all(name.startswith(("kafka_", "redis_")) for name in differing)

    def test_variables_are_settings(self, deployment: dict[str, Any]) -> None:
        pod = pod_of(deployment)
        given = [
            variable for c in pod["containers"] + pod["initContainers"] for variable in c["env"]
        ]
        patched = [
            one["value"] for one in load(SECURED / "deployer.yaml") if "/env/" in one["path"]
        ]
        names = {one["name"].removeprefix(ENV_PREFIX).lower() for one in given + patched}

        assert names - {"config"} <= set(Settings.model_fields)
        (path,) = {one["value"] for one in given}
        (mount,) = [m for m in program_of(deployment)["volumeMounts"] if m["name"] == "settings"]
        assert path == f"{mount['mountPath']}/settings.toml"


class TestPods:
    def test_the_program_is_a_command_of_the_image(self, deployment: dict[str, Any]) -> None:
        program = program_of(deployment)
        (functions,) = pod_of(deployment)["initContainers"]

        assert program["args"][0] in cli.list_commands(None)  # type: ignore[arg-type]
        assert program["args"] == [program["name"]]
        assert functions["args"] == ["functions", "load"]
        (image,) = KUSTOMIZATION["images"]
        assert {program["image"], functions["image"]} == {image["name"]}
        assert image["newTag"] == __version__

    def test_it_may_do_nothing_that_it_need_not(self, deployment: dict[str, Any]) -> None:
        pod = pod_of(deployment)
        context = pod["securityContext"]
        dockerfile = (ROOT / "ops" / "deploy" / "Dockerfile").read_text()

        assert f"USER {context['runAsUser']}:{context['runAsGroup']}\n" in dockerfile
        assert context["runAsNonRoot"] is True
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        for container in pod["containers"] + pod["initContainers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            written = [m["mountPath"] for m in container["volumeMounts"] if not m.get("readOnly")]
            assert written == ["/tmp"]

    def test_its_probes_ask_what_it_answers(self, deployment: dict[str, Any]) -> None:
        program, settings = program_of(deployment), settings_in(BASE)
        (port,) = program["ports"]
        asked = {
            kind: program[f"{kind}Probe"]["httpGet"]
            for kind in ("startup", "liveness", "readiness")
        }
        wanted = settings.serve_port if program["name"] == "serve" else settings.http_port

        assert port["containerPort"] == wanted
        assert {one["port"] for one in asked.values()} == {port["name"]}
        assert [one["path"] for one in asked.values()] == ["/healthz", "/healthz", "/readyz"]
        # They come from outside of the pod.
        assert settings.http_host == settings.serve_host == "0.0.0.0"
        # The supervisor is to mend a stalled process before its pod is ended.
        assert seconds(program["livenessProbe"]) > settings.stall_timeout

    def test_it_has_time_to_end(self, deployment: dict[str, Any]) -> None:
        grace = pod_of(deployment)["terminationGracePeriodSeconds"]
        program = program_of(deployment)
        before = program.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        takes = SERVE_GRACE if program["name"] == "serve" else STOP_TIMEOUT

        assert grace >= takes + before + 5

    def test_memory_is_bounded_and_cpu_only_asked_for(self, deployment: dict[str, Any]) -> None:
        pod = pod_of(deployment)
        for container in pod["containers"] + pod["initContainers"]:
            resources = container["resources"]
            assert resources["limits"] == {"memory": resources["requests"]["memory"]}
            assert "cpu" in resources["requests"]

    def test_the_new_one_is_ready_before_an_old_one_goes(self, deployment: dict[str, Any]) -> None:
        spec = deployment["spec"]

        assert spec["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
        assert spec["minReadySeconds"] > 0


class TestSelectors:
    def test_everything_that_selects_pods_finds_some(self) -> None:
        selectors = [m["spec"]["selector"]["matchLabels"] for m in of_kind("PodDisruptionBudget")]
        selectors += [m["spec"]["selector"] for m in of_kind("Service")]
        selectors += [m["spec"]["podSelector"]["matchLabels"] for m in of_kind("NetworkPolicy")]
        pods = [one["spec"]["template"]["metadata"]["labels"] for one in DEPLOYMENTS]

        for selector in selectors:
            assert any(selector.items() <= pod.items() for pod in pods)

    def test_every_program_has_a_budget_of_its_own(self, deployment: dict[str, Any]) -> None:
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        budgets = [m["spec"]["selector"]["matchLabels"] for m in of_kind("PodDisruptionBudget")]

        assert deployment["spec"]["selector"]["matchLabels"] == labels
        assert budgets.count(labels) == 1
        for constraint in pod_of(deployment)["topologySpreadConstraints"]:
            assert constraint["labelSelector"]["matchLabels"] == labels

    def test_the_service_leads_to_the_port(self) -> None:
        (service,) = of_kind("Service")
        (port,) = service["spec"]["ports"]
        (serve,) = [one for one in DEPLOYMENTS if program_of(one)["name"] == "serve"]

        assert port["targetPort"] == program_of(serve)["ports"][0]["name"]

    @pytest.mark.parametrize("folder", [BASE, SECURED], ids=lambda path: path.name)
    def test_policies_know_all_ports_and_no_others(self, folder: Path) -> None:
        settings = settings_in(folder)
        policies = [m["spec"] for m in of_kind("NetworkPolicy")]
        into = {p["port"] for one in policies for rule in one["ingress"] for p in rule["ports"]}
        out = {
            p["port"] for one in policies for rule in one.get("egress", []) for p in rule["ports"]
        }
        called = {
            int(re.findall(r":(\d+)", url)[0])
            for url in (settings.kafka_bootstrap, settings.redis_url)
        }

        assert into == {settings.http_port, settings.serve_port}
        assert out == {53} | called


class TestAutoscaling:
    def test_it_scales_the_workers_by_the_lag(self) -> None:
        (scaler,) = of_kind("HorizontalPodAutoscaler")
        spec = scaler["spec"]
        (worker,) = [one for one in DEPLOYMENTS if program_of(one)["name"] == "worker"]
        external = [one["external"] for one in spec["metrics"] if one["type"] == "External"]

        assert spec["scaleTargetRef"]["name"] == worker["metadata"]["name"]
        assert "replicas" not in worker["spec"]
        # The rule that makes this metric of those of the workers.
        assert [one["metric"]["name"] for one in external] == re.findall(r"as: (\w+)", GUIDE)
        assert "stream_dedup_consumer_lag_records{" in GUIDE

    def test_there_are_never_more_processes_than_partitions(self) -> None:
        (scaler,) = of_kind("HorizontalPodAutoscaler")
        processes = scaler["spec"]["maxReplicas"] * settings_in(BASE).processes

        assert processes == DEFAULT_PARTITIONS
        assert f"{processes} partitions" in GUIDE


class TestGuide:
    """Kinds that only some clusters have are shown in the guide."""

    @pytest.fixture
    def shown(self) -> dict[str, dict[str, Any]]:
        blocks = re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)
        return {found["kind"]: found for found in map(yaml.safe_load, blocks) if "kind" in found}

    def test_keda_scales_as_the_autoscaler_does(self, shown: dict[str, dict[str, Any]]) -> None:
        (scaler,) = of_kind("HorizontalPodAutoscaler")
        keda, settings = shown["ScaledObject"]["spec"], settings_in(BASE)
        (trigger,) = keda["triggers"]
        asked = trigger["metadata"]
        (external,) = [m["external"] for m in scaler["spec"]["metrics"] if "external" in m]

        assert keda["scaleTargetRef"]["name"] == scaler["spec"]["scaleTargetRef"]["name"]
        assert keda["minReplicaCount"] == scaler["spec"]["minReplicas"]
        assert keda["maxReplicaCount"] == scaler["spec"]["maxReplicas"]
        assert asked["lagThreshold"] == external["target"]["averageValue"].replace("k", "000")
        assert asked["bootstrapServers"] == settings.kafka_bootstrap
        assert (asked["consumerGroup"], asked["topic"]) == (settings.group, settings.input_topic)

    def test_the_monitor_finds_the_workers(self, shown: dict[str, dict[str, Any]]) -> None:
        monitor = shown["PodMonitor"]["spec"]
        (endpoint,) = monitor["podMetricsEndpoints"]
        labels = monitor["selector"]["matchLabels"]
        credentials = endpoint["authorization"]["credentials"]
        ports = [
            port["name"]
            for one in DEPLOYMENTS
            for port in program_of(one)["ports"]
            if labels.items() <= one["spec"]["template"]["metadata"]["labels"].items()
        ]

        assert ports.count(endpoint["port"]) == 2
        assert Path(str(settings_in(BASE).http_token_file)).name == credentials["key"]

    def test_the_overlay_builds_on_the_base(self, shown: dict[str, dict[str, Any]]) -> None:
        overlay = shown["Kustomization"]

        assert overlay["resources"][0].endswith(str(BASE.relative_to(ROOT)))
        assert overlay["images"][0]["name"] == KUSTOMIZATION["images"][0]["name"]
        (generator,), (base,) = overlay["configMapGenerator"], KUSTOMIZATION["configMapGenerator"]
        assert generator["name"] == base["name"]
