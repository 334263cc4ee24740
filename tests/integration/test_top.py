"""``stream-dedup top`` on a real worker: in a pipe, as JSON, and by Prometheus."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time

import pytest

from tests.services.prometheus import Prometheus
from tests.services.worker import PROGRAM, Sent, Worker, document

COMMAND = [str(PROGRAM), "top"]
DOCUMENTS = 60


def publish(worker: Worker, count: int) -> None:
    """Have the worker annotate documents."""
    before = sum(documents(worker))
    texts = (
        f"the {before + number} boats of the harbour are blue today" for number in range(count)
    )
    worker.send([Sent(document(id=text, text=text)) for text in texts])
    worker.until(lambda: sum(documents(worker)) == before + count)


def documents(worker: Worker) -> list[float]:
    prefix = "stream_dedup_documents_total"
    return [value for name, value in worker.metrics().items() if name.startswith(prefix)]


def lags(worker: Worker) -> list[float]:
    return [value for name, value in worker.metrics().items() if "consumer_lag_records{" in name]


@pytest.fixture
def place(worker: Worker) -> str:
    """Address of the metrics of a running worker."""
    worker.start()
    publish(worker, DOCUMENTS)
    # The lag is told of now and then: until then a partition has none, or is behind.
    worker.until(lambda: lags(worker) == [0.0, 0.0])
    return f"127.0.0.1:{worker.flags['http-port']}"


def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, check=False, timeout=60
    )


def test_in_a_pipe_it_prints_one_view(place: str) -> None:
    done = ran(place, "--interval=500ms")

    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) == 24
    assert lines[0].startswith("stream-dedup ●")
    assert "\x1b" not in done.stdout
    assert re.search(r"0 of 2 partitions behind", done.stdout)


def test_figures_are_json_lines(worker: Worker, place: str) -> None:
    running = subprocess.Popen(
        [*COMMAND, place, "--json", "--interval=300ms"], stdout=subprocess.PIPE, text=True
    )
    assert running.stdout is not None
    try:
        first = json.loads(running.stdout.readline())
        publish(worker, DOCUMENTS)
        line, latest = first, first["figures"]
        deadline = time.monotonic() + 30
        # Until some were decided, and none wait any more.
        while not latest["documents"]["per_second"] or latest["lag"]["records"]:
            assert time.monotonic() < deadline
            line = json.loads(running.stdout.readline())
            latest = line["figures"]
    finally:
        running.send_signal(signal.SIGINT)
        code = running.wait(20)
        running.stdout.close()

    assert first["figures"]["documents"]["per_second"] is None
    assert latest["documents"]["shares"]["dead_letter"] == 0
    assert line["answering"] == [place]
    assert line["problems"] == {}
    assert code == 130


def test_prometheus_is_asked_instead(worker: Worker, place: str) -> None:
    config = (
        "global: {scrape_interval: 1s}\n"
        "scrape_configs: [{job_name: stream-dedup, static_configs: [{targets: ['%s']}]}]\n"
    )
    with Prometheus(config % place) as server:

        def told() -> float | None:
            done = ran("--prometheus", server.url, "--once", "--json")
            found = json.loads(done.stdout)["figures"] if not done.returncode else None
            return found and found["documents"]["per_second"]

        worker.until(lambda: told() is not None)
        publish(worker, DOCUMENTS)
        worker.until(lambda: bool(told()))
