"""Processes that keep groups are killed again and again: each member counts once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition  # type: ignore[import-untyped]

from stream_dedup.groups import Limits, Member, decode_group, decode_member, fold_all
from stream_dedup.settings import Settings
from stream_dedup.types import Status
from tests.services.kafka import KafkaBroker

MEMBERS = 12_000
GROUPS = 300
#: Members in one transaction; every fifth of these is aborted.
TOGETHER = 400
PARTITIONS = 4
KILLS = 4
LIMITS = Limits(5, 5)
PROGRAM = Path(sys.executable).with_name("stream-dedup")


@pytest.mark.parametrize(
    ("index", "transport"), [("node", "kafka-python"), ("cluster", "confluent")]
)
def test_each_member_counts_once(
    request: pytest.FixtureRequest,
    kafka: KafkaBroker,
    tmp_path: Path,
    transport: Literal["kafka-python", "confluent"],
    index: str,
) -> None:
    name = f"killed-{index}-{transport}-{time.time_ns():x}"
    settings = Settings(
        kafka_bootstrap=kafka.bootstrap,
        transport=transport,
        redis_url=request.getfixturevalue("redis_url" if index == "node" else "redis_cluster_url"),
        partitions=16,
        members_topic=f"{name}.members",
        groups_topic=f"{name}.groups",
        dead_letter_topic=f"{name}.dead-letter",
        group=name,
        batch_documents=150,
        transaction_timeout=10,
        group_members=LIMITS.members,
        group_sources=LIMITS.sources,
        http_port=0,
    )
    kafka.create([settings.members_topic, settings.dead_letter_topic], PARTITIONS)
    kafka.create([f"{name}.groups"], PARTITIONS, cleanup_policy="compact")
    sent = send(settings)
    lives = count()

    with reader(kafka, f"{name}.groups") as read:
        running = [start(settings, tmp_path / f"{next(lives)}.log") for _ in range(2)]
        try:
            for kill in range(1, KILLS + 1):
                read_until(read, lambda states, kill=kill: folded(states) >= sent * kill // 8)
                victim = running.pop(0)
                os.killpg(victim.pid, signal.SIGKILL)
                victim.wait(10)
                running.append(start(settings, tmp_path / f"{next(lives)}.log"))
            states = read_until(read, lambda states: folded(states) >= sent)
            time.sleep(2)  # nothing may come twice
            states = read(1000)
            for process in running:
                process.terminate()
            codes = {process.wait(40) for process in running}
        finally:
            for process in running:
                end(process)

    with reader(kafka, settings.members_topic) as read_members:
        read_until(read_members, lambda _: len(read_members.records) >= sent)
    assert codes <= {0, -signal.SIGTERM}, "the last may not have come so far as to take signals"
    truth = fold_all((decode_member(r.value) for r in read_members.records), LIMITS)
    found = {key.decode(): decode_group(value) for key, value in states.items()}
    for group in found.values():
        assert len(group.applied) == 1
        group.applied = {}
    assert found == truth
    assert sum(group.size - 1 for group in found.values()) == sent


def send(settings: Settings) -> int:
    """Write members, some of them in transactions that are aborted; return how many stand."""
    rng = random.Random(3)
    producer = KafkaProducer(
        bootstrap_servers=settings.kafka_bootstrap, transactional_id=f"{settings.group}-sender"
    )
    sent = 0
    with closing(producer):
        producer.init_transactions()
        for transaction, first in enumerate(range(0, MEMBERS, TOGETHER)):
            producer.begin_transaction()
            for number in range(first, first + TOGETHER):
                group = f"{rng.randrange(GROUPS) * 2654435761 % 2**32:08x}{'b' * 16}"
                member = Member(
                    duplicate_id=group,
                    original_id="o",
                    id=number,
                    status=Status.NEAR_DUPLICATE,
                    origin=rng.choice("abcdefgh"),
                )
                producer.send(settings.members_topic, msgspec.json.encode(member), group.encode())
            producer.flush()
            if transaction % 5 == 4:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
                sent += TOGETHER
    return sent


def start(settings: Settings, log: Path) -> subprocess.Popen[bytes]:
    """Start a program of its own process group."""
    plain = settings.model_dump(mode="json", exclude_defaults=True)
    environment = {f"STREAM_DEDUP_{name.upper()}": str(value) for name, value in plain.items()}
    with log.open("wb") as stderr:
        return subprocess.Popen(
            [str(PROGRAM), "groups"],
            env=os.environ | environment,
            stderr=stderr,
            start_new_session=True,
        )


def end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)


class Reader:
    """Reads the committed records of a topic; knows the last value of each key."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self.records: list[Any] = []
        self.states: dict[bytes, bytes] = {}

    def __call__(self, milliseconds: int = 200) -> dict[bytes, bytes]:
        for records in self._consumer.poll(milliseconds, max_records=5000).values():
            self.records += records
            self.states |= {record.key: record.value for record in records}
        return self.states


@contextmanager
def reader(kafka: KafkaBroker, topic: str) -> Iterator[Reader]:
    consumer = KafkaConsumer(
        bootstrap_servers=kafka.bootstrap,
        group_id=None,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    with closing(consumer):
        consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
        yield Reader(consumer)


def read_until(read: Reader, done: Any, seconds: float = 120) -> dict[bytes, bytes]:
    deadline = time.monotonic() + seconds
    while not done(states := read()):
        assert time.monotonic() < deadline, f"{folded(states)} members were folded"
    return states


def folded(states: dict[bytes, bytes]) -> int:
    return sum(decode_group(value).revision for value in states.values())
