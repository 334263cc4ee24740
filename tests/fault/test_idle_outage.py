"""A broker that is killed and comes back under an idle worker, and one that stays away."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.services.kafka import KafkaBroker
from tests.services.worker import Sent, Worker, document

#: Longer than a session, so that the group has to be joined again.
AWAY_SECONDS = 12.0
both = pytest.mark.parametrize("transport", ["kafka-python", "confluent"])


def send(worker: Worker, name: str, count: int = 5) -> set[str]:
    ids = [f"{name}-{number}" for number in range(count)]
    worker.send([Sent(document(id=one, text=f"boats of {one}")) for one in ids])
    return set(ids)


def stopped_within(worker: Worker, seconds: float) -> None:
    began = time.monotonic()
    assert worker.stop() == 0, worker.log.read_text()
    assert time.monotonic() - began < seconds, worker.log.read_text()
    assert "killing it" not in worker.log.read_text()


@both
def test_the_batch_after_an_outage_is_published_once(
    transport: str, redis_url: str, tmp_path: Path
) -> None:
    with KafkaBroker() as broker:
        worker = Worker(broker, broker.create_topics(), redis_url, tmp_path / "log", transport)
        worker.start(sweep_interval="0")
        ids = send(worker, "before")
        worker.receive(worker.topics.output, 5)
        broker.kill()
        time.sleep(AWAY_SECONDS)
        broker.start()
        ids |= send(worker, "after")
        found = worker.receive(worker.topics.output, len(ids))
        stopped_within(worker, 10)

    assert sorted(json.loads(record.value)["id"] for record in found) == sorted(ids)
    assert "starting it again" not in worker.log.read_text()


@both
def test_a_busy_worker_stops_while_the_broker_stays_away(
    transport: str, redis_url: str, tmp_path: Path
) -> None:
    with KafkaBroker() as broker:
        worker = Worker(broker, broker.create_topics(), redis_url, tmp_path / "log", transport)
        worker.start(sweep_interval="0", batch_documents="10")
        send(worker, "many", 2000)
        worker.receive(worker.topics.output, 10)
        broker.kill()
        time.sleep(1)
        stopped_within(worker, 20)
