"""Redis lost under a stream, and another configuration taken over: over a real Kafka and Redis."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stream_dedup import Deduplicator, Document, Settings
from stream_dedup.generate import StreamShape, generate
from stream_dedup.index.audit import audit
from stream_dedup.index.audit_decisions import Published
from stream_dedup.types import Decision
from tests.services.kafka import KafkaBroker, Topics
from tests.services.process import free_ports
from tests.services.redis import RedisServer
from tests.services.worker import PROGRAM, Sent, Worker, document

SHAPE = StreamShape(documents=900, duplicate_share=0.5, edits=1, words=120, distance=600)
DOCUMENTS = [Document(one.id, one.text) for one in generate(SHAPE)]
HALF = 450


@pytest.fixture
def make(
    kafka: KafkaBroker, topics: Callable[..., Topics], redis_url: str, tmp_path: Path
) -> Iterator[Callable[..., Worker]]:
    """Return what makes workers on some topics; they are stopped in the end."""
    made: list[Worker] = []

    def make_worker(found: Topics, **flags: str) -> Worker:
        log = tmp_path / f"worker-{len(made)}.log"
        worker = Worker(kafka, found, redis_url, log, "kafka-python")
        worker.flags |= {name.replace("_", "-"): value for name, value in flags.items()}
        made.append(worker)
        return worker

    yield make_worker
    for worker in made:
        if worker.process is not None:
            worker.stop()


def rebuild_command(worker: Worker, *more: str, **flags: str) -> list[str]:
    names = {"kafka-bootstrap", "redis-url", "input-topic", "output-topic", "group"}
    given = {name: value for name, value in worker.flags.items() if name in names}
    given |= {name.replace("_", "-"): value for name, value in flags.items()}
    return [str(PROGRAM), "rebuild", *(f"--{name}={value}" for name, value in given.items()), *more]


def rebuild(worker: Worker, *more: str, **flags: str) -> dict[str, Any]:
    command = rebuild_command(worker, "--json", *more, **flags)
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def sent(documents: Sequence[Document]) -> list[Sent]:
    return [Sent(document(id=one.id, text=one.text)) for one in documents]


def answers(records: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """Return what was decided about each document, but for the time; each came once."""
    found = {}
    for record in records:
        value = json.loads(record.value)
        assert value["id"] not in found
        value["dedup"].pop("decided_at")
        found[value["id"]] = value["dedup"]
    return found


def expected() -> dict[Any, dict[str, Any]]:
    with Deduplicator() as deduplicator:
        decided = deduplicator.decide(DOCUMENTS)
    pairs = zip(DOCUMENTS, decided, strict=True)
    return {one.id: msgspec.to_builtins(decision) for one, decision in pairs}


def test_a_lost_redis_is_rebuilt_and_every_later_decision_stays(
    make: Callable[..., Worker], topics: Callable[..., Topics], redis_server: RedisServer
) -> None:
    found = topics(partitions=1)
    worker = make(found)
    worker.send(sent(DOCUMENTS[:HALF]))
    worker.start()
    worker.receive(found.output, HALF)
    worker.stop()
    redis_server.flush()

    rebuilt = rebuild(worker)
    worker.send(sent(DOCUMENTS[HALF:]))
    worker.start()

    assert answers(worker.receive(found.output, len(DOCUMENTS))) == expected()
    assert rebuilt["messages"] == HALF
    assert rebuilt["decided"] == rebuilt["unreadable"] == 0

    # Read once more, each original is itself again: its place in the input came back as well.
    again = make(found, group=f"{found.input}-again", output_topic=found.dead_letter)
    again.flags["dead-letter-topic"] = found.output
    again.start()
    assert answers(again.receive(found.dead_letter, len(DOCUMENTS))) == expected()


def test_the_input_topic_is_a_source_too(
    make: Callable[..., Worker], topics: Callable[..., Topics]
) -> None:
    found = topics(partitions=1)
    worker = make(found)
    worker.send(sent(DOCUMENTS[:HALF]))
    worker.start()
    worker.receive(found.output, HALF)
    worker.stop()
    # What nobody has read yet is decided by the rebuild first, and is itself again for the worker.
    worker.send(sent(DOCUMENTS[HALF:]))

    rebuilt = rebuild(worker, "--from=input", redis_namespace="two")
    worker.start(redis_namespace="two")

    assert rebuilt["decided"] == len(DOCUMENTS)
    assert answers(worker.receive(found.output, len(DOCUMENTS))) == expected()


def test_a_worker_does_not_begin_on_an_index_that_lacks_what_was_published_since(
    make: Callable[..., Worker], topics: Callable[..., Topics]
) -> None:
    found = topics(partitions=2)
    worker = make(found)
    worker.send(sent(DOCUMENTS[:10]))
    worker.start()
    worker.receive(found.output, 10)
    rebuild(worker, redis_namespace="two")
    worker.send(sent(DOCUMENTS[10:20]), 1)
    worker.receive(found.output, 20)
    worker.stop()

    code, said = worker.fail(redis_namespace="two")
    assert code == 69
    assert "since the index 'two' was rebuilt" in said

    # It goes on where it was.
    assert rebuild(worker, redis_namespace="two")["messages"] == 10
    worker.start(redis_namespace="two")


def test_another_configuration_takes_over_without_a_gap(
    make: Callable[..., Worker],
    topics: Callable[..., Topics],
    redis_url: str,
    tmp_path: Path,
) -> None:
    found = topics(partitions=2)
    old = make(found, threshold="0.95", redis_namespace="old", batch_documents="20")
    new = make(found, redis_namespace="new", http_port=str(free_ports(1)[0]))
    third = len(DOCUMENTS) // 3
    old.send(sent(DOCUMENTS[:third]))
    old.start()
    old.receive(found.output, third)
    log = tmp_path / "rebuild.log"
    command = rebuild_command(new, "--follow", redis_namespace="new")
    with log.open("wb") as stderr:
        following = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stderr)
    old.until(lambda: "Caught up" in log.read_text())

    # The new worker waits while the old one goes on, and is stopped in the midst of its work.
    with new.log.open("ab") as stderr:
        new.process = subprocess.Popen(new.command(), stderr=stderr)
    new.until(lambda: "waiting for that to end" in new.log.read_text())
    old.send(sent(DOCUMENTS[third : 2 * third]), 1)
    old.receive(found.output, third + 1)
    assert following.poll() is None
    old.stop()
    assert following.wait(60) == 0
    new.until(lambda: new.get("/readyz")[0] == 200)
    new.send(sent(DOCUMENTS[2 * third :]))

    records = new.receive(found.output, len(DOCUMENTS))
    assert len(answers(records)) == len(DOCUMENTS)
    settings = Settings(redis_url=redis_url, redis_namespace="new")
    checked = audit(settings, map(published, records))
    assert checked.violations == []
    assert checked.other_configuration >= third
    assert checked.decisions >= third


def published(record: Any) -> Published:
    value = json.loads(record.value)
    decision = msgspec.convert(value["dedup"], Decision)
    return Published(value["id"], Document(value["id"], value["text"]), decision)


def test_a_group_that_never_was_is_not_followed(
    make: Callable[..., Worker], topics: Callable[..., Topics]
) -> None:
    worker = make(topics(partitions=1))

    command = rebuild_command(worker, "--follow")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 69
    assert "knows no consumer group" in done.stderr
