"""What a worker logs while Redis or Kafka is away: few lines, each with its fields."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.services.kafka import KafkaBroker, Topics
from tests.services.process import free_ports
from tests.services.redis import RedisServer
from tests.services.worker import PROGRAM, Sent, Worker, document

#: So long Kafka is away: longer than a session.
AWAY_SECONDS = 12.0
FIELDS = {"time", "level", "process", "logger", "message"}


def lines(worker: Worker) -> list[dict[str, Any]]:
    """Return every line that was logged; each must be an object with all fields."""
    found = [json.loads(line) for line in worker.log.read_text().splitlines()]
    for line in found:
        assert line.keys() >= FIELDS
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
    return found


def of_outage(worker: Worker, what: str) -> list[dict[str, Any]]:
    return [line for line in lines(worker) if line.get("what") == what and "seconds" in line]


def said(worker: Worker, words: str) -> bool:
    return any(words in line["message"] for line in lines(worker))


def send(worker: Worker, name: str) -> None:
    worker.send([Sent(document(id=f"{name}-{n}", text=f"{n} boats of {name}")) for n in range(5)])


def test_redis_away_and_back(
    kafka: KafkaBroker, topics: Callable[..., Topics], tmp_path: Path
) -> None:
    with RedisServer() as server:
        worker = Worker(kafka, topics(), server.url, tmp_path / "log", "kafka-python")
        worker.start(sweep_interval="0", redis_timeout="500ms")
        send(worker, "before")
        worker.receive(worker.topics.output, 5)
        server.pause()
        send(worker, "after")
        worker.until(lambda: len(of_outage(worker, "the index")) > 1)
        server.resume()
        worker.receive(worker.topics.output, 10)
        worker.until(lambda: said(worker, "is back after"))
        assert worker.stop() == 0

    away, *still, back = of_outage(worker, "the index")
    assert away["message"].startswith("the index is out of reach, trying again: ")
    assert (away["level"], away["process"], away["tries"]) == ("warning", "worker-0", 1)
    assert away["cause"] in away["message"]
    assert 1 <= len(still) <= 3
    assert still[0]["seconds"] >= 10
    assert all("is out of reach for" in line["message"] for line in still)
    assert re.fullmatch(r"the index is back after \d+\.\d s", back["message"])
    assert back["level"] == "info"
    assert back["seconds"] >= still[-1]["seconds"]
    begun = lines(worker)[0]
    assert begun["process"] == "supervisor"
    assert begun.keys() >= {"version", "settings", "host", "port", "processes"}
    messages = [line["message"] for line in lines(worker)]
    for words in ("started, configuration", "assigned partitions", "joined the group", "gave up"):
        assert sum(message.startswith(words) for message in messages) == 1, words
    assert messages[-1] == "stopped"
    assert len(messages) < 20


@pytest.mark.parametrize("transport", ["kafka-python", "confluent"])
def test_kafka_away_and_back(transport: str, redis_url: str, tmp_path: Path) -> None:
    with KafkaBroker() as broker:
        worker = Worker(broker, broker.create_topics(), redis_url, tmp_path / "log", transport)
        worker.start(sweep_interval="0")
        broker.kill()
        time.sleep(AWAY_SECONDS)
        broker.start()
        worker.until(lambda: worker.get("/readyz")[0] == 200)
        if transport == "kafka-python":
            worker.until(lambda: said(worker, "the connection to Kafka is back after"))
        worker.until(lambda: said(worker, "joined the group"))
        worker.stop()

    found = lines(worker)
    if transport == "kafka-python":
        told = of_outage(worker, "the connection to Kafka")
        away = told[0]["message"]
        assert away.startswith("the connection to Kafka is broken, trying again: ")
        # A node after the other comes back, so that shorter outages may follow.
        longest = max(told, key=lambda line: line["seconds"])
        assert longest["message"].startswith("the connection to Kafka is back after")
        assert longest["seconds"] >= AWAY_SECONDS - 1
        assert longest["tries"] > len(told)
    assert not [line for line in found if line["level"] == "error"]
    assert not [line for line in found if "exception" in line]
    assert len(found) < 30


def test_on_a_terminal_lines_are_for_people() -> None:
    (port,) = free_ports(1)
    own, other = pty.openpty()
    worker = subprocess.Popen(
        [str(PROGRAM), "worker", f"--kafka-bootstrap=127.0.0.1:{port}", "--http-port=0"],
        stderr=other,
        env=os.environ | {"TERM": "xterm-256color"},
    )
    os.close(other)
    shown = ""
    try:
        while chunk := os.read(own, 4096):
            shown += chunk.decode()
    except OSError:  # nobody has the terminal open any more
        pass
    os.close(own)

    assert worker.wait(30) == 69
    assert "\x1b[" in shown
    plain = re.sub(r"\x1b\[[\d;]*m", "", shown)
    assert re.search(r"^\d\d:\d\d:\d\d ERROR +supervisor No Kafka broker answers at", plain, re.M)
    assert "{" not in plain
