"""The whole pipeline over TLS: SCRAM at Kafka, certificates and users with few rights at Redis."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stream_dedup.groups import decode_group
from stream_dedup.settings import ENV_PREFIX
from tests.services.certificates import Certificates
from tests.services.secure import PASSWORD, USER, SecureKafka, SecureRedis
from tests.services.worker import PROGRAM, Sent, Worker, decisions, document

OTHER = "Boil the potatoes for twenty minutes, drain them, and let them steam until they are dry."
TEXT = "The ferry to the island leaves at nine in the morning, and again at noon if it is full."
COPIES = 20


@pytest.fixture(params=["kafka-python", "confluent"])
def secure_worker(
    request: pytest.FixtureRequest,
    secure_kafka: SecureKafka,
    secure_redis: SecureRedis,
    certificates: Certificates,
    tmp_path: Path,
) -> Iterator[Worker]:
    secure_redis.flush()
    topics = secure_kafka.create_topics(partitions=2)
    secure_kafka.create([f"{topics.input}.members"], 2)
    secure_kafka.create([f"{topics.input}.groups"], 2, cleanup_policy="compact")
    # As in docs/connections.md.
    rights = {
        topics.input: ["READ"],
        topics.output: ["WRITE", "READ"],
        topics.dead_letter: ["WRITE"],
        f"{topics.input}.members": ["WRITE", "READ"],
        f"{topics.input}.groups": ["WRITE", "READ", "DESCRIBE_CONFIGS"],
    }
    secure_kafka.grant(rights, topics.input)
    secret = tmp_path / "password"
    secret.write_text(PASSWORD)
    config = {
        "kafka_security_protocol": "SASL_SSL",
        "kafka_ca_file": certificates.ca,
        "kafka_sasl_mechanism": "SCRAM-SHA-512",
        "kafka_username": USER,
        "kafka_password_file": secret,
        "redis_ca_file": certificates.ca,
        "redis_certificate_file": certificates.client.certificate,
        "redis_key_file": certificates.client.key,
        "redis_password_file": secret,
        "members_topic": f"{topics.input}.members",
        "groups_topic": f"{topics.input}.groups",
    }
    lines = [f"{name} = {msgspec.json.encode(str(path)).decode()}" for name, path in config.items()]
    file = tmp_path / "stream-dedup.toml"
    file.write_text("\n".join(lines) + "\n")
    worker = Worker(secure_kafka, topics, secure_redis.url, tmp_path / "worker.log", request.param)
    worker.flags |= {
        "config": str(file),
        "kafka-bootstrap": secure_kafka.at("LOGIN"),
        "redis-username": "worker",
    }
    yield worker
    if worker.process is not None:
        worker.stop()


@pytest.mark.timeout(600)
def test_documents_go_through_once_and_every_command_gets_what_it_needs(
    secure_worker: Worker, tmp_path: Path
) -> None:
    worker = secure_worker
    sent = [Sent(document(id=n, text=OTHER if n % 2 else TEXT)) for n in range(COPIES)]
    worker.send([*sent, Sent(b"poison")])
    worker.start()
    with (tmp_path / "groups.log").open("wb") as log:
        command = [str(PROGRAM), "groups", *flags(worker, http_port=0)]
        groups = subprocess.Popen(command, stderr=log)
    try:
        records = worker.receive(worker.topics.output, COPIES)
        found = decisions(records)
        assert len(records) == len(found) == COPIES
        statuses = [one["status"] for one in found.values()]
        assert statuses.count("original") == 2
        (letter,) = worker.receive(worker.topics.dead_letter, 1)
        assert letter.value == b"poison"
        states = group_states(worker, COPIES - 2)
        assert {state.duplicate_id for state in states} == {
            one["duplicate_id"] for one in found.values()
        }
        group = call(worker, "reader", "group", states[0].duplicate_id, "--json")
        assert json.loads(group.stdout)["size"] == COPIES // 2
    finally:
        groups.terminate()
        assert groups.wait(30) == 0, (tmp_path / "groups.log").read_text()
    assert worker.stop() == 0

    query = call(worker, "reader", "query", TEXT, "--json")
    assert json.loads(query.stdout)["known"]
    # What writes asks for more than a reader has.
    swept = call(worker, "reader", "sweep", code=69)
    assert "lacks a permission: see docs/redis.md" in swept.stderr
    assert "violations" in call(worker, "operator", "audit", "--json").stdout
    rebuilt = call(worker, "operator", "rebuild", "--json", redis_namespace="sd2")
    told = json.loads(rebuilt.stdout)
    assert told["registered"] + told["left_out"] == COPIES
    again = call(worker, "worker", "query", TEXT, "--json", redis_namespace="sd2", code=69)
    assert "lacks a permission" in again.stderr


def flags(worker: Worker, **more: object) -> list[str]:
    given = worker.flags | {name.replace("_", "-"): str(value) for name, value in more.items()}
    return [f"--{name}={value}" for name, value in given.items()]


def call(
    worker: Worker, user: str, *arguments: str, code: int = 0, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run a command as a user of Redis; what the flags of a worker say comes by the environment."""
    settings = {name.replace("-", "_"): value for name, value in worker.flags.items()} | more
    settings["redis_username"] = user
    named = {f"{ENV_PREFIX}{name.upper()}": value for name, value in settings.items()}
    done = subprocess.run(
        [str(PROGRAM), *arguments],
        env={**os.environ, **named},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert PASSWORD not in done.stdout + done.stderr
    return done


def group_states(worker: Worker, members: int) -> list[Any]:
    """Return the last state of each group, once they have so many members beside the first."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        records = worker.receive(f"{worker.topics.input}.groups", 1)
        last = {record.key: decode_group(record.value) for record in records}
        if sum(state.size - 1 for state in last.values()) == members:
            return list(last.values())
    raise AssertionError
