"""The review page over the annotated topic of a real Kafka."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kafka import KafkaProducer  # type: ignore[import-untyped]

from stream_dedup import Deduplicator, Document, Settings
from stream_dedup.review.ingestion import Ingestion, Phase
from stream_dedup.review.reading.topic import Topic
from stream_dedup.review.window import Window
from tests.services.certificates import Certificates
from tests.services.http import get
from tests.services.kafka import KafkaBroker
from tests.services.process import free_ports
from tests.services.secure import PASSWORD, USER, SecureKafka
from tests.services.worker import PROGRAM

PATIENCE = 60.0


@pytest.fixture
def annotate() -> Callable[[str, int], list[bytes]]:
    """Annotate documents, each near a few others."""
    deduplicator = Deduplicator()

    def some(name: str, count: int) -> list[bytes]:
        texts = [
            f"the ferry to island {n // 5} leaves at nine, and so it is {n}" for n in range(count)
        ]
        documents = [Document(f"{name}-{n}", text) for n, text in enumerate(texts)]
        decided = zip(documents, deduplicator.decide(documents), strict=True)
        return [
            msgspec.json.encode({"id": one.id, "text": one.text, "dedup": decision})
            for one, decision in decided
        ]

    return some


@contextmanager
def following(
    broker: KafkaBroker, topic: str, path: Path, since: int | None = None, **more: Any
) -> Iterator[tuple[Window, Ingestion]]:
    settings = Settings.model_validate(
        {"kafka_bootstrap": broker.bootstrap, "output_topic": topic, "review_window": 100} | more
    )
    window = Window.open(path, settings.review_window)
    ingestion = Ingestion(window, Topic(settings, since))
    ingestion.start()
    try:
        yield window, ingestion
    finally:
        ingestion.stop()
        window.close()


def ids(window: Window) -> list[str]:
    with window.reader() as database:
        found = database.execute("SELECT id FROM documents ORDER BY row").fetchall()
    return [json.loads(row[0]) for row in found]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def new_topic(broker: KafkaBroker) -> str:
    return broker.create_topics(partitions=2).output


class TestTopic:
    def test_as_many_as_the_window_holds_and_what_comes_then(
        self, kafka: KafkaBroker, tmp_path: Path, annotate: Callable[[str, int], list[bytes]]
    ) -> None:
        topic = new_topic(kafka)
        kafka.produce(topic, *annotate("old", 300), b"no document")
        with following(kafka, topic, tmp_path / "window.db") as (window, ingestion):
            until(lambda: ingestion.progress().phase is Phase.FOLLOWING)
            first = ids(window)
            assert 90 <= len(first) <= 100
            assert ingestion.progress().documents <= 101
            kafka.produce(topic, *annotate("new", 20))
            until(lambda: {f"new-{n}" for n in range(20)} <= set(ids(window)))
            assert len(ids(window)) <= 100
            with window.reader() as database:
                (counted,) = database.execute("SELECT sum(documents) FROM groups").fetchone()
            assert counted == len(ids(window))

    def test_it_goes_on_where_its_window_ends(
        self, kafka: KafkaBroker, tmp_path: Path, annotate: Callable[[str, int], list[bytes]]
    ) -> None:
        topic, path = new_topic(kafka), tmp_path / "window.db"
        kafka.produce(topic, *annotate("first", 10))
        with following(kafka, topic, path) as (window, _):
            until(lambda: len(ids(window)) == 10)
        kafka.produce(topic, *annotate("second", 10))
        with following(kafka, topic, path) as (window, ingestion):
            until(lambda: len(ids(window)) == 20)
            assert ingestion.progress().documents == 20
            assert len(set(ids(window))) == 20

    def test_a_tombstone_makes_it_forget_and_what_was_aborted_is_not_shown(
        self, kafka: KafkaBroker, tmp_path: Path, annotate: Callable[[str, int], list[bytes]]
    ) -> None:
        topic = new_topic(kafka)
        kafka.produce(topic, *annotate("kept", 3))
        producer = KafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id=topic)
        try:
            producer.init_transactions()
            producer.begin_transaction()
            for value in annotate("aborted", 3):
                producer.send(topic, value)
            producer.flush()
            producer.abort_transaction()
        finally:
            producer.close()
        with following(kafka, topic, tmp_path / "window.db") as (window, _):
            until(lambda: len(ids(window)) == 3)
            producer = KafkaProducer(bootstrap_servers=kafka.bootstrap)
            producer.send(topic, None, b"kept-1").get(30)
            producer.close()
            until(lambda: set(ids(window)) == {"kept-0", "kept-2"})

    def test_since_a_time(
        self, kafka: KafkaBroker, tmp_path: Path, annotate: Callable[[str, int], list[bytes]]
    ) -> None:
        topic = new_topic(kafka)
        kafka.produce(topic, *annotate("before", 5))
        time.sleep(1.0)
        moment = int(time.time() * 1000)
        kafka.produce(topic, *annotate("after", 5))
        with following(kafka, topic, tmp_path / "window.db", moment) as (window, ingestion):
            until(lambda: ingestion.progress().phase is Phase.FOLLOWING)
            assert set(ids(window)) == {f"after-{n}" for n in range(5)}

    def test_an_outage_is_told_and_survived(
        self,
        tmp_path: Path,
        annotate: Callable[[str, int], list[bytes]],
    ) -> None:
        with KafkaBroker() as broker:
            topic = new_topic(broker)
            broker.produce(topic, *annotate("before", 5))
            with following(broker, topic, tmp_path / "window.db") as (window, ingestion):
                until(lambda: len(ids(window)) == 5)
                broker.kill()
                until(lambda: ingestion.progress().phase is Phase.AWAY)
                assert ingestion.progress().trouble
                assert len(ids(window)) == 5
                broker.start()
                broker.produce(topic, *annotate("after", 5))
                until(lambda: len(ids(window)) == 10)
                assert ingestion.progress().trouble == ""

    def test_over_tls_with_a_login_and_the_right_to_read_alone(
        self,
        secure_kafka: SecureKafka,
        certificates: Certificates,
        tmp_path: Path,
        annotate: Callable[[str, int], list[bytes]],
    ) -> None:
        topic = new_topic(secure_kafka)
        secure_kafka.grant({topic: ["READ"]}, topic)
        secure_kafka.produce(topic, *annotate("some", 5))
        login: dict[str, Any] = {
            "kafka_bootstrap": secure_kafka.at("LOGIN"),
            "kafka_security_protocol": "SASL_SSL",
            "kafka_ca_file": certificates.ca,
            "kafka_sasl_mechanism": "SCRAM-SHA-512",
            "kafka_username": USER,
            "kafka_password": PASSWORD,
        }
        with following(secure_kafka, topic, tmp_path / "window.db", **login) as (window, _):
            until(lambda: len(ids(window)) == 5)


def test_the_command_serves_and_stops(
    kafka: KafkaBroker,
    redis_url: str,
    tmp_path: Path,
    annotate: Callable[[str, int], list[bytes]],
) -> None:
    topic, (port,) = new_topic(kafka), free_ports(1)
    kafka.produce(topic, *annotate("some", 20))
    command = [
        str(PROGRAM),
        "review",
        "--topic",
        f"--kafka-bootstrap={kafka.bootstrap}",
        f"--output-topic={topic}",
        f"--redis-url={redis_url}",
        f"--review-port={port}",
        f"--review-labels={tmp_path / 'labels.db'}",
    ]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, stderr=log, cwd=tmp_path)
    try:
        until(lambda: bool(re.search("20 documents", get(port, "/")[1])))
        assert get(port, "/healthz") == (200, "ok\n")
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, (tmp_path / "log").read_text()
