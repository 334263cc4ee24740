"""Every class of hostile records through a real broker and a real worker, all in one go."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka import KafkaProducer  # type: ignore[import-untyped]
from kafka.admin import ConfigResource, KafkaAdminClient  # type: ignore[import-untyped]

from tests.hostile.catalogue import CATALOGUE, NOW, OPTIONS, Hostile, neighbour
from tests.services import batches
from tests.services.worker import Worker

#: The broker is to let everything through, so that the worker meets it.
_LIMITS = {
    "max.message.bytes": "16000000",
    "message.timestamp.after.max.ms": str(2**63 - 1),
    "message.timestamp.before.max.ms": str(2**63 - 1),
    "retention.ms": "-1",
}


def records() -> Iterator[Hostile]:
    """Yield each record between good ones; the first of these is the original of all."""
    for hostile in CATALOGUE:
        yield Hostile("", "", hostile.fate, neighbour("good"))
        yield hostile


def send(worker: Worker) -> list[str]:
    """Send all records to one partition; return the expected answer to each, by offset."""
    topics = worker.topics
    names = (topics.input, topics.output, topics.dead_letter)
    with KafkaAdminClient(bootstrap_servers=worker.kafka.bootstrap) as admin:
        admin.alter_configs([ConfigResource("TOPIC", name, _LIMITS) for name in names])
    expected = []
    producer = KafkaProducer(
        bootstrap_servers=worker.kafka.bootstrap,
        max_request_size=16_000_000,
        compression_type="gzip",
    )
    other = Producer({"bootstrap.servers": worker.kafka.bootstrap})
    with closing(producer):
        for offset, one in enumerate(records()):
            if one.batch is not None:
                batches.send(worker.kafka.bootstrap, topics.input, one.batch)
            elif one.value is None and one.key is None:  # which kafka-python does not send
                other.produce(topics.input, partition=0)
                assert not other.flush(30)
            else:
                at = (topics.input, one.value, one.key, list(one.headers), 0, one.timestamp)
                producer.send(*at).get(30)
            good = "exact_duplicate" if offset else "original"
            fate = str(one.fate) if one.name else good
            if fate == "unreadable" and worker.flags["transport"] == "confluent":
                # It has no limit but one of 128 MiB for Zstandard, so that these are read.
                fate = "too_large"
            expected.append(fate)
    return expected


def answered(records_: list[Any], *, letters: bool) -> list[tuple[int, str]]:
    """Return what each record of a topic answers, by offset; the last header of a name is ours."""
    found = []
    for headers in (dict(record.headers) for record in records_):
        source = headers["source-offset"] if letters else headers["dedup-source"]
        told = headers["dead-letter-reason" if letters else "dedup-status"]
        found.append((int(source.rpartition(b"/")[2]), told.decode()))
    return found


@pytest.mark.parametrize("worker", ["kafka-python", "confluent"], indirect=True)
def test_each_is_answered_once_and_the_worker_goes_on(worker: Worker) -> None:
    expected = send(worker)
    letters = sum(1 for one in expected if "duplicate" not in one and one != "original")
    names = [one.name or "good" for one in records()]

    worker.start(**{name: str(value) for name, value in OPTIONS.items()})
    annotated = worker.receive(worker.topics.output, len(expected) - letters)
    dead = worker.receive(worker.topics.dead_letter, letters)

    found = sorted([*answered(annotated, letters=False), *answered(dead, letters=True)])
    assert [names[offset] for offset, _ in found] == names
    unlike = {names[n]: (fate, expected[n]) for n, fate in found if fate != expected[n]}
    assert unlike == {}
    restarts = [v for name, v in worker.metrics().items() if "worker_restarts_total" in name]
    assert sum(restarts) == 0, worker.log.read_text()
    assert "Traceback" not in worker.log.read_text()
    assert max(record.timestamp for record in annotated) > NOW
