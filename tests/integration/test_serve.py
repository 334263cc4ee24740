"""The HTTP service as a process: on Redis, on a Cluster, on a state file."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from stream_dedup import Deduplicator, Document, Settings
from stream_dedup.index.redis import RedisIndex
from tests.services.process import free_ports
from tests.services.redis import RedisServer

PROGRAM = [sys.executable, "-W", "error", "-c", "from stream_dedup.cli.main import main; main()"]
STORY = " ".join(f"word{number}" for number in range(100))
DOCUMENT = Document("a", STORY, source="somewhere")
START_SECONDS = 60.0


class Service:
    """A running ``stream-dedup serve``."""

    def __init__(self, *arguments: str) -> None:
        (port,) = free_ports(1)
        command = [*PROGRAM, "serve", "--serve-port", str(port), *arguments]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.client = httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=30)
        self._wait()

    def query(self, text: str) -> httpx2.Response:
        return self.client.post("/v1/query", json={"text": text})

    def stop(self) -> tuple[int, str]:
        """End it; return its exit code and what it logged."""
        self.client.close()
        self.process.send_signal(signal.SIGTERM)
        log = self.process.communicate(timeout=30)[1]
        return self.process.returncode, log

    def _wait(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                self.client.get("/healthz")
            except httpx2.TransportError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.process.kill()
                    raise
                time.sleep(0.1)
            else:
                return


@contextmanager
def serving(*arguments: str) -> Iterator[Service]:
    service = Service(*arguments)
    try:
        yield service
    finally:
        if service.process.poll() is None:
            code, log = service.stop()
            assert (code, "Traceback" in log) == (0, False), log


def register(url: str) -> Settings:
    settings = Settings(redis_url=url)
    with Deduplicator(settings, index=RedisIndex.connect(settings)) as deduplicator:
        deduplicator.decide([DOCUMENT])
    return settings


def until(service: Service, status: int) -> httpx2.Response:
    """Ask until an answer has this status."""
    deadline = time.monotonic() + START_SECONDS
    while (response := service.query(STORY)).status_code != status:
        assert time.monotonic() < deadline, response.text
        time.sleep(0.1)
    return response


@pytest.mark.parametrize("kind", ["redis_url", "redis_cluster_url"])
def test_what_a_worker_registers_is_known_at_once(
    kind: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(kind)
    with serving("--redis-url", url) as service:
        missing = service.query(STORY)
        register(url)
        found = until(service, 200).json()
        code, log = service.stop()

    assert missing.status_code == 503
    assert "Redis has no index 'sd'" in missing.json()["detail"]
    assert (found["status"], found["original_id"]) == ("exact_duplicate", "a")
    assert code == 0
    assert json.loads(log.splitlines()[-1])["message"] == "stopped"


def test_it_outlives_redis() -> None:
    with RedisServer() as server:
        register(server.url)
        with serving("--redis-url", server.url, "--redis-timeout", "1s") as service:
            before = service.query(STORY)
            server.kill()
            away = until(service, 503)
            ready = service.client.get("/readyz")
            healthy = service.client.get("/healthz")
            server.start()
            register(server.url)
            until(service, 200)
            server.pause()
            paused = until(service, 503)
            server.resume()
            after = until(service, 200)

    assert before.json()["known"]
    assert int(away.headers["retry-after"]) > 0
    assert away.headers["content-type"] == "application/problem+json"
    assert (ready.status_code, healthy.status_code) == (503, 200)
    assert "Redis" in paused.json()["detail"] or "in time" in paused.json()["detail"]
    assert after.json()["known"]


def test_a_state_file_is_read_and_left_alone(tmp_path: Path) -> None:
    state = tmp_path / "originals.db"
    with Deduplicator(state=state) as deduplicator:
        deduplicator.decide([DOCUMENT])
    before = state.read_bytes()

    with serving("--state", str(state)) as service:
        found = service.query(STORY).json()
        after = state.read_bytes()
        with Deduplicator(state=state) as deduplicator:  # it is free for the next run
            deduplicator.decide([DOCUMENT])

    assert found["known"]
    assert after == before
    assert list(tmp_path.iterdir()) == [state]


#: What a liveness probe waits (ops/deploy/kubernetes/base/serve.yaml).
PROBE_SECONDS = 5.0
#: Requests that took minutes of the processor each, with nothing else answered meanwhile.
HOSTILE = {
    "720 KB of marks": (json.dumps({"text": "q" + "\u0301" * 60_000 + "\u0316" * 60_000}), 200),
    "2 MB of marks": (json.dumps({"text": "q" + "\u0301\u0316" * 160_000}), 200),
    "expansions": (json.dumps({"text": "\ufdfa" * 100_000, "explain": True}), 200),
    "600,000 documents that are none": (json.dumps({"documents": [1] * 600_000}), 422),
    "100,000 fields": (json.dumps(dict.fromkeys(map(str, range(100_000)))), 422),
}


def test_it_answers_others_while_hostile_requests_are_answered(tmp_path: Path) -> None:
    state = tmp_path / "originals.db"
    with Deduplicator(state=state) as deduplicator:
        deduplicator.decide([DOCUMENT])
    answers, probes = {}, set()

    with serving("--state", str(state)) as service, ThreadPoolExecutor(1) as pool:
        headers = {"Content-Type": "application/json"}
        url = service.client.base_url.join("v1/query")
        for name, (body, _) in HOSTILE.items():
            asked = pool.submit(httpx2.post, url, content=body, headers=headers, timeout=60)
            while not asked.done():
                probes.add(service.client.get("/healthz", timeout=PROBE_SECONDS).status_code)
                time.sleep(0.02)
            answers[name] = asked.result()

    assert probes == {200}
    assert {name: answer.status_code for name, answer in answers.items()} == {
        name: status for name, (_, status) in HOSTILE.items()
    }
    assert max(len(answer.content) for answer in answers.values()) < 1_000


def failing(*arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [*PROGRAM, "serve", "--serve-port", "0", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stderr


def test_a_state_file_that_a_run_holds_is_told(tmp_path: Path) -> None:
    state = tmp_path / "originals.db"
    with Deduplicator(state=state):
        code, said = failing("--state", str(state))

    assert code == 73
    assert "is in use by another process" in said


def test_an_index_of_another_configuration_is_told(redis_url: str) -> None:
    register(redis_url)

    code, said = failing("--redis-url", redis_url, "--threshold", "0.9")

    assert code == 78
    assert "was built with configuration" in said


def test_an_address_that_is_taken_is_told(tmp_path: Path) -> None:
    with serving("--redis-url", "redis://127.0.0.1:1") as service:
        port = str(service.client.base_url.port)
        code, said = failing("--redis-url", "redis://127.0.0.1:1", "--serve-port", port)
        away = service.query(STORY)

    assert code == 2
    assert "cannot be bound" in said
    assert "does not answer" in away.json()["detail"]
