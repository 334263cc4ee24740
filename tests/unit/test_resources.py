"""What worker processes take, as the supervisor counts it."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from prometheus_client import REGISTRY
from stream_dedup_workers.resources import Resources


def value(name: str, worker: int) -> float:
    found = REGISTRY.get_sample_value(f"stream_dedup_worker_{name}", {"worker": str(worker)})
    assert found is not None
    return found


def test_memory_and_time_of_a_process() -> None:
    resources = Resources(90)
    resources.begin(os.getpid())
    resources.look()
    first, until = value("cpu_seconds_total", 90), time.process_time() + 0.1
    while time.process_time() < until:
        pass
    resources.look()

    assert value("resident_bytes", 90) > 10_000_000
    assert first > 0
    assert 0.05 < value("cpu_seconds_total", 90) - first < 5


def test_the_time_goes_on_in_the_next_process() -> None:
    resources = Resources(91)
    resources.begin(os.getpid())
    resources.look()
    before = value("cpu_seconds_total", 91)
    command = [sys.executable, "-c", "print(sum(range(300_000))); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        resources.begin(child.pid)
        resources.look()
        child.communicate(b"\n")

    assert value("cpu_seconds_total", 91) >= before


def test_a_process_that_has_ended_takes_nothing() -> None:
    resources = Resources(92)
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        pass
    resources.begin(child.pid)
    resources.look()
    resources.begin(None)
    resources.look()

    assert value("resident_bytes", 92) == 0
    assert value("cpu_seconds_total", 92) == 0
