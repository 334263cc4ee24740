"""The supervisor over worker processes that only pretend to work."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY
from stream_dedup_workers import supervisor as module
from stream_dedup_workers.http import StatusServer
from stream_dedup_workers.process import transactional_id
from stream_dedup_workers.pulse import Pulse, Stage
from stream_dedup_workers.supervisor import Supervisor, exit_code

from stream_dedup.errors import ServiceError, SettingsError
from stream_dedup.settings import Settings
from tests.services.http import get

#: Where a pretended worker notes its lives, one line each: its number.
NOTES = "STREAM_DEDUP_TEST_NOTES"


def _note(number: int) -> int:
    """Note a life; return how many there were of this worker."""
    notes = Path(os.environ[NOTES])
    with notes.open("a") as file:
        file.write(f"{number}\n")
    return notes.read_text().split().count(str(number))


def steady(settings: Settings, instance: str, number: int, pulse: Pulse) -> None:
    """Work until SIGTERM."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    _note(number)
    while not stop.wait(0.02):
        pulse.beat(Stage.JOINED)


def refused(settings: Settings, instance: str, number: int, pulse: Pulse) -> None:
    """Fail before the first poll."""
    _note(number)
    sys.exit(ServiceError.exit_code)


def crashing(settings: Settings, instance: str, number: int, pulse: Pulse) -> None:
    """Die in the first life, after having worked."""
    pulse.beat(Stage.JOINED)
    if _note(number) == 1:
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)
    steady(settings, instance, number, pulse)


def stalling(settings: Settings, instance: str, number: int, pulse: Pulse) -> None:
    """Hang in the first life, deaf to SIGTERM."""
    pulse.beat(Stage.JOINED)
    if _note(number) == 1:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(60)
    steady(settings, instance, number, pulse)


class Running:
    """A supervisor in a thread, and what its HTTP server says."""

    def __init__(self, target: Any, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        # Signal handlers belong to the main thread, which is the test's.
        monkeypatch.setattr(signal, "signal", lambda *_: None)
        monkeypatch.setattr(module, "StatusServer", self._server)
        self.redis = ""
        self.port = 0
        self.code: int | None = None
        self.supervisor = Supervisor(
            Settings(http_port=0, **settings),
            target=target,
            check=lambda _settings: None,
            ping=lambda _settings: self.redis,
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _server(self, *args: Any, **kwargs: Any) -> StatusServer:
        server = StatusServer(*args, **kwargs)
        self.port = server.port
        return server

    def _run(self) -> None:
        self.code = self.supervisor.run()

    def get(self, path: str) -> tuple[int, str]:
        return get(self.port, path)

    def until(self, condition: Callable[[], bool], seconds: float = 90) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "it did not come to pass"
            time.sleep(0.05)

    def lives(self) -> list[str]:
        notes = Path(os.environ[NOTES])
        return notes.read_text().split() if notes.exists() else []

    def stop(self) -> int | None:
        self.supervisor.stop()
        return self.end()

    def end(self) -> int | None:
        self._thread.join(60)
        assert not self._thread.is_alive()
        return self.code


Start = Callable[..., Running]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Start]:
    monkeypatch.setenv(NOTES, str(tmp_path / "notes"))
    begun: list[Running] = []

    def begin(target: Any, **settings: Any) -> Running:
        begun.append(Running(target, monkeypatch, **settings))
        return begun[-1]

    yield begin
    for running in begun:
        running.stop()


class TestSupervisor:
    def test_runs_as_many_workers_as_asked_and_ends_with_0(self, start: Start) -> None:
        running = start(steady, processes=2)
        running.until(lambda: running.get("/readyz")[0] == 200)

        assert running.get("/healthz") == (200, "ok\n")
        assert sorted(running.lives()) == ["0", "1"]
        assert running.stop() == 0

    def test_an_error_at_the_first_start_ends_the_program_with_its_code(self, start: Start) -> None:
        running = start(refused)

        assert running.end() == 69
        assert running.lives() == ["0"]

    def test_a_worker_that_dies_later_is_started_again(self, start: Start) -> None:
        running = start(crashing)
        running.until(lambda: len(running.lives()) >= 2)

        running.until(lambda: running.get("/readyz")[0] == 200)
        assert 'worker_restarts_total{cause="exit"}' in running.get("/metrics")[1]
        assert running.stop() == 0

    def test_a_worker_that_stalls_is_killed_and_started_again(self, start: Start) -> None:
        running = start(stalling, stall_timeout=15)
        running.until(lambda: len(running.lives()) >= 2)

        assert 'worker_restarts_total{cause="stall"}' in running.get("/metrics")[1]
        assert running.stop() == 0

    def test_its_own_metrics_are_told_once(self, start: Start) -> None:
        running = start(steady, processes=2)
        running.until(lambda: "stream_dedup_ready 1.0\n" in running.get("/metrics")[1])
        page = running.get("/metrics")[1]

        assert page.count("# TYPE stream_dedup_ready gauge") == 1
        assert page.count("\nstream_dedup_ready ") == 1
        taken = dict(
            line.split() for line in page.splitlines() if line.startswith("stream_dedup_w")
        )
        for number in range(2):
            assert float(taken[f'stream_dedup_worker_resident_bytes{{worker="{number}"}}']) > 1e6
            assert float(taken[f'stream_dedup_worker_cpu_seconds_total{{worker="{number}"}}']) > 0
        assert running.stop() == 0
        assert REGISTRY.get_sample_value("stream_dedup_ready") == 0

    def test_is_not_ready_while_redis_is_away(self, start: Start) -> None:
        running = start(steady)
        running.until(lambda: running.get("/readyz")[0] == 200)

        running.redis = "Redis does not answer."

        assert running.get("/readyz") == (503, "Redis does not answer.\n")
        assert running.get("/healthz")[0] == 200

    def test_other_paths_are_not_found(self, start: Start) -> None:
        running = start(steady)
        running.until(lambda: running.port != 0 and running.get("/healthz")[0] == 200)

        assert running.get("/")[0] == 404

    def test_a_port_in_use_is_told_in_a_sentence(self, start: Start, tmp_path: Path) -> None:
        running = start(steady)
        running.until(lambda: running.port != 0)

        with pytest.raises(SettingsError, match="--http-port"):
            StatusServer(
                "127.0.0.1", running.port, str(tmp_path), healthy=lambda: "", ready=lambda: ""
            )


class TestNames:
    def test_a_transactional_id_is_one_process_of_one_port_of_one_host(self) -> None:
        assert transactional_id(Settings(group="g"), "host-9464", 3) == "g-host-9464-3"

    @pytest.mark.parametrize(("code", "expected"), [(0, 0), (69, 69), (-9, 137)])
    def test_a_signal_becomes_an_exit_code_as_in_a_shell(self, code: int, expected: int) -> None:
        assert exit_code(code) == expected
