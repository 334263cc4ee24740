"""A real Prometheus evaluates the rules on a real worker; real faults set off their alerts."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml

from tests.services.prometheus import Prometheus
from tests.services.redis import RedisServer
from tests.services.worker import Sent, Worker, decisions, document

PROMETHEUS = Path(__file__).parents[2] / "ops" / "prometheus"
TEXT = "The ferry leaves at nine in the morning, and at noon if it is full."
#: What a worker has only with groups, a shadow or the HTTP service, or after a restart.
ELSEWHERE = re.compile("stream_dedup_(members|shadow|query|worker_restarts)_")
#: Starts a Prometheus that scrapes a worker.
Watch = Callable[[Worker], AbstractContextManager[Prometheus]]


@pytest.fixture
def watch() -> Watch:
    """The configuration as it is deployed, but for where the worker is, and faster."""
    config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    config["global"] = dict.fromkeys(("scrape_interval", "evaluation_interval"), "1s")
    config["rule_files"] = [str(PROMETHEUS / name) for name in config["rule_files"]]
    (job,) = config["scrape_configs"]
    del job["dns_sd_configs"]

    def start(worker: Worker) -> Prometheus:
        job["static_configs"] = [{"targets": [f"127.0.0.1:{worker.flags['http-port']}"]}]
        return Prometheus(yaml.safe_dump(config))

    return start


def rules(server: Prometheus) -> list[dict[str, Any]]:
    with urlopen(f"{server.url}/api/v1/rules", timeout=10) as answer:
        groups = json.load(answer)["data"]["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alerts(server: Prometheus) -> dict[str, str]:
    """Return the alerts that are pending or firing."""
    return {
        rule["name"]: rule["state"]
        for rule in rules(server)
        if rule["type"] == "alerting" and rule["state"] != "inactive"
    }


def test_all_rules_are_evaluated_and_a_healthy_worker_alerts_nobody(
    worker: Worker, watch: Watch
) -> None:
    worker.start()
    with watch(worker) as server:
        worker.send([Sent(document(id=f"a{n}", text=TEXT)) for n in range(20)])
        worker.until(lambda: bool(server.query("stream_dedup_documents_total > 0")))
        worker.send([Sent(document(id=f"b{n}", text=TEXT)) for n in range(20)])

        worker.until(lambda: bool(server.query("stream_dedup:documents:rate5m > 0")))
        worker.until(lambda: all(rule["health"] == "ok" for rule in rules(server)))
        assert not [rule["lastError"] for rule in rules(server) if rule.get("lastError")]
        assert alerts(server) == {}


def test_a_worker_has_every_metric_that_rules_ask_for(worker: Worker) -> None:
    asked = {
        name
        for file in ("rules.yml", "alerts.yml")
        for group in yaml.safe_load((PROMETHEUS / file).read_text())["groups"]
        for rule in group["rules"]
        for name in re.findall(r"\bstream_dedup_\w+", rule["expr"])
        if not ELSEWHERE.match(name)
    }

    worker.start(sample_interval="1s")
    worker.send([Sent(document(id="a", text=TEXT))])

    def missing() -> set[str]:
        return asked - {sample.partition("{")[0] for sample in worker.metrics()}

    worker.until(lambda: not missing())


def test_a_worker_that_is_gone(worker: Worker, watch: Watch) -> None:
    worker.start()
    with watch(worker) as server:
        worker.until(lambda: bool(server.query('up{job="stream-dedup"} == 1')))
        assert worker.process is not None
        os.kill(worker.process.pid, signal.SIGKILL)
        worker.process.wait()
        worker.process = None

        # Neither fires before 5 minutes.
        expected = {"StreamDedupAbsent": "pending", "StreamDedupTargetDown": "pending"}
        worker.until(lambda: alerts(server) == expected)


def test_a_redis_that_is_full(worker: Worker, watch: Watch) -> None:
    with RedisServer() as redis, redis.client() as client:
        worker.start(redis_url=redis.url)
        with watch(worker) as server:
            worker.until(lambda: bool(server.query('up{job="stream-dedup"} == 1')))
            client.config_set("maxmemory", 1)
            worker.send([Sent(document(id="a", text=TEXT))])

            worker.until(lambda: alerts(server).get("StreamDedupRedisOutOfMemory") == "firing")
            # What the runbook says of it: more room, and the worker goes on by itself.
            client.config_set("maxmemory", 0)
            found = decisions(worker.receive(worker.topics.output, 1))
            assert found["a"]["status"] == "original"
        worker.stop()
