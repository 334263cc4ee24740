"""A worker with a shadow, over a real Kafka and real Redis servers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from stream_dedup.deduplicator import Deduplicator
from stream_dedup.generate import StreamShape, generate
from stream_dedup.settings import Settings
from stream_dedup.shadow import KINDS, Comparison, Kind
from stream_dedup.stream import shadow_topic
from stream_dedup.types import Decision, Document, Status
from tests.services.kafka import KafkaBroker
from tests.services.redis import RedisServer
from tests.services.worker import Sent, Worker, document

Caplog = pytest.LogCaptureFixture

SHAPE = StreamShape(documents=900, duplicate_share=0.5, words=50, edits=8, resemblance=0.5, seed=3)
DOCUMENTS = [Document(found.id, found.text, source=found.id) for found in generate(SHAPE)]
MESSAGES = [Sent(document(id=found.id, text=found.text)) for found in DOCUMENTS]
BATCHES = {"batch_documents": "150"}


def offline(settings: Settings) -> list[Decision]:
    with Deduplicator(settings) as deduplicator:
        return deduplicator.decide(DOCUMENTS)


def expected() -> dict[Kind, int]:
    """Count what the two configurations decide, each alone."""
    live, shadow = Settings(), Settings(threshold=0.6)
    comparison = Comparison.of(live, shadow)
    comparison.add(DOCUMENTS, offline(live), offline(shadow))
    return dict(comparison.counts)


def counted(worker: Worker) -> dict[Kind, int]:
    """Read what the worker has counted of each kind."""
    metrics = worker.metrics()
    found = {}
    for kind in KINDS:
        labels = f'live="{kind.live}",original="{"same" if kind.same else "other"}"'
        name = f'stream_dedup_shadow_documents_total{{{labels},shadow="{kind.shadow}"}}'
        if count := int(metrics.get(name, 0)):
            found[kind] = count
    return found


def skipped(worker: Worker, reason: str) -> int:
    name = f'stream_dedup_shadow_skipped_documents_total{{reason="{reason}"}}'
    return int(worker.metrics().get(name, 0))


@pytest.fixture
def shadow_toml(tmp_path: Path) -> str:
    path = tmp_path / "shadow.toml"
    path.write_text("threshold = 0.6\nredis_namespace = 'shadow'\n")
    return str(path)


@pytest.mark.parametrize("worker", ["kafka-python", "confluent"], indirect=True)
def test_the_counts_are_those_of_both_configurations_alone(
    worker: Worker, kafka: KafkaBroker, shadow_toml: str
) -> None:
    topic = f"{worker.topics.input}.shadow"
    kafka.create([topic], worker.topics.partitions)
    worker.send(MESSAGES)
    worker.start(shadow=shadow_toml, shadow_topic=topic, shadow_sample="7", **BATCHES)

    worker.until(lambda: sum(counted(worker).values()) == len(DOCUMENTS))
    found = counted(worker)
    published = worker.receive(worker.topics.output, len(DOCUMENTS))
    assert worker.stop() == 0

    kinds = expected()
    differences = {kind: count for kind, count in kinds.items() if not kind.agrees}
    assert differences
    assert found == kinds
    decided = [json.loads(record.value)["dedup"]["status"] for record in published]
    assert decided == [decision.status for decision in offline(Settings())]
    lines = [json.loads(record.value) for record in worker.receive(topic, 7 * len(differences))]
    assert {line["stratum_pairs"] for line in lines} == set(differences.values())
    assert all(line["live"]["duplicate_id"] != line["shadow"]["duplicate_id"] for line in lines)


def test_it_forgets_what_tombstones_name(worker: Worker, shadow_toml: str) -> None:
    messages = [Sent(document(id=n, text=DOCUMENTS[0].text), n.encode()) for n in "abc"]
    tombstone = Sent(None, b"a")
    worker.send([*messages[:2], tombstone, messages[2]])
    worker.start(shadow=shadow_toml)

    worker.until(lambda: sum(counted(worker).values()) == 3)
    found = counted(worker)
    assert worker.stop() == 0

    exact, original = Status.EXACT_DUPLICATE, Status.ORIGINAL
    assert found == {Kind(original, original, True): 2, Kind(exact, exact, True): 1}


def test_without_its_redis_the_live_stream_goes_on(worker: Worker, tmp_path: Path) -> None:
    path = tmp_path / "shadow.toml"
    with RedisServer() as server:
        path.write_text(f"redis_namespace = 'shadow'\nredis_url = '{server.url}'\n")
        worker.send(MESSAGES[:300])
        worker.start(shadow=str(path), shadow_backlog="1000", **BATCHES)
        worker.until(lambda: sum(counted(worker).values()) == 300)
    worker.send(MESSAGES[300:])

    published = worker.receive(worker.topics.output, len(DOCUMENTS))

    assert ids(published) == [found.id for found in DOCUMENTS]
    worker.until(lambda: skipped(worker, "backlog") >= 300)
    waiting = worker.metrics()["stream_dedup_shadow_backlog_documents"]
    assert 0 < waiting + skipped(worker, "backlog") <= 600
    assert worker.get("/readyz")[0] == 200
    assert worker.stop() == 0
    log = worker.log.read_text()
    assert "the shadow cannot decide" in log
    assert "the shadow's backlog is full" in log
    assert "Traceback" not in log


def test_a_shadow_whose_redis_comes_later_catches_up(worker: Worker, tmp_path: Path) -> None:
    server = RedisServer()
    path = tmp_path / "shadow.toml"
    path.write_text(f"threshold = 0.6\nredis_namespace = 'shadow'\nredis_url = '{server.url}'\n")
    worker.send(MESSAGES)
    worker.start(shadow=str(path), **BATCHES)
    worker.receive(worker.topics.output, len(DOCUMENTS))
    assert counted(worker) == {}

    with server:
        worker.until(lambda: sum(counted(worker).values()) == len(DOCUMENTS))
        found = counted(worker)
        assert worker.stop() == 0

    assert found == expected()


def test_an_index_of_another_configuration_is_told_and_the_live_stream_goes_on(
    worker: Worker, shadow_toml: str
) -> None:
    worker.start(shadow=shadow_toml)
    worker.send(MESSAGES[:1])
    worker.until(lambda: sum(counted(worker).values()) == 1)
    worker.stop()
    Path(shadow_toml).write_text("threshold = 0.5\nredis_namespace = 'shadow'\n")
    worker.send(MESSAGES[1:2])

    worker.start(shadow=shadow_toml)

    assert len(worker.receive(worker.topics.output, 2)) == 2
    assert worker.stop() == 0
    assert "the shadow cannot decide yet" in worker.log.read_text()
    assert "was built with other settings" in worker.log.read_text()


def test_a_shadow_in_the_live_namespace_is_refused(worker: Worker, shadow_toml: str) -> None:
    Path(shadow_toml).write_text("threshold = 0.6")

    code, said = worker.fail(shadow=shadow_toml)

    assert code == 2
    assert "redis_namespace" in said


def test_a_topic_for_samples_that_is_not_there_is_told(worker: Worker, shadow_toml: str) -> None:
    code, said = worker.fail(shadow=shadow_toml, shadow_topic="absent")

    assert code == 69
    assert "topic absent does not exist" in said


@pytest.mark.parametrize("transport", ["kafka-python", "confluent"])
def test_a_sample_that_cannot_be_sent_is_told_not_raised(
    kafka: KafkaBroker, transport: str, monkeypatch: pytest.MonkeyPatch, caplog: Caplog
) -> None:
    monkeypatch.setattr(shadow_topic, "SEND_SECONDS", 2.0)
    settings = Settings.model_validate(
        {"kafka_bootstrap": kafka.bootstrap, "transport": transport, "shadow_topic": "absent"}
    )
    sink = shadow_topic.open_sink(settings, "test")
    assert sink is not None

    assert sink.send([b"{}", b"{}"]) == 0

    sink.close()
    assert "a sample is incomplete" in caplog.text


def ids(records: Sequence[object]) -> list[str]:
    return [json.loads(record.value)["id"] for record in records]  # type: ignore[attr-defined]
