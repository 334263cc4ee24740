"""``stream-dedup worker`` as a process, its topics, and what it says and publishes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from kafka import KafkaConsumer, KafkaProducer, TopicPartition  # type: ignore[import-untyped]
from kafka.admin import KafkaAdminClient  # type: ignore[import-untyped]

from stream_dedup.settings import Settings
from tests.services.http import get
from tests.services.kafka import KafkaBroker, Topics
from tests.services.process import free_ports

PROGRAM = Path(sys.executable).with_name("stream-dedup")


class Sent(NamedTuple):
    """An input message."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes]] = ()
    timestamp: int | None = None


class Worker:
    """The program, its topics and what comes out of it."""

    def __init__(
        self, kafka: KafkaBroker, topics: Topics, redis_url: str, log: Path, transport: str
    ) -> None:
        self.kafka = kafka
        self.topics = topics
        self.flags = {
            "kafka-bootstrap": kafka.bootstrap,
            "transport": transport,
            "redis-url": redis_url,
            "input-topic": topics.input,
            "output-topic": topics.output,
            "dead-letter-topic": topics.dead_letter,
            "group": topics.input,
            "http-port": str(free_ports(1)[0]),
            "max-document-bytes": "100000",
        }
        self.log = log
        self.process: subprocess.Popen[bytes] | None = None

    def command(self, **flags: str) -> list[str]:
        given = self.flags | {name.replace("_", "-"): value for name, value in flags.items()}
        return [str(PROGRAM), "worker", *(f"--{name}={value}" for name, value in given.items())]

    def start(self, **flags: str) -> None:
        with self.log.open("ab") as stderr:
            self.process = subprocess.Popen(self.command(**flags), stderr=stderr)
        self.until(lambda: self.get("/readyz")[0] == 200)

    def fail(self, **flags: str) -> tuple[int, str]:
        """Run a program that is expected to end by itself."""
        done = subprocess.run(
            self.command(**flags), capture_output=True, text=True, timeout=60, check=False
        )
        return done.returncode, done.stderr

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(30)
        self.process = None
        return code

    def get(self, path: str) -> tuple[int, str]:
        return get(int(self.flags["http-port"]), path)

    def metrics(self) -> dict[str, float]:
        """Return every sample by its name with its labels, as /metrics writes it."""
        lines = self.get("/metrics")[1].splitlines()
        named = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {name: float(value) for name, _, value in named}

    def until(self, condition: Callable[[], bool], seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.process is None or self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.1)

    def send(self, messages: Sequence[Sent], partition: int = 0) -> None:
        producer = KafkaProducer(bootstrap_servers=self.kafka.bootstrap, max_request_size=9_000_000)
        try:
            sent = [
                producer.send(
                    self.topics.input,
                    message.value,
                    message.key,
                    list(message.headers),
                    partition,
                    message.timestamp,
                )
                for message in messages
            ]
            for future in sent:
                future.get(30)
        finally:
            producer.close()

    def receive(self, topic: str, count: int) -> list[Any]:
        """Return the committed records of a topic once there are ``count``, by input order."""
        consumer = KafkaConsumer(
            bootstrap_servers=self.kafka.bootstrap,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            group_id=None,
        )
        try:
            consumer.assign([TopicPartition(topic, n) for n in range(self.topics.partitions)])
            records: list[Any] = []

            def read() -> bool:
                for polled in consumer.poll(200).values():
                    records.extend(polled)
                return len(records) >= count

            self.until(read)
            # One more look: nothing may come twice.
            read()
            return records
        finally:
            consumer.close()

    def members(self) -> int:
        with KafkaAdminClient(bootstrap_servers=self.kafka.bootstrap) as admin:
            group = admin.describe_groups([self.flags["group"]])[self.flags["group"]]
        return len(group["members"])


def document(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def decisions(records: Sequence[Any]) -> dict[Any, Any]:
    values = [json.loads(record.value) for record in records]
    return {value["id"]: value["dedup"] for value in values}


def settings_for(
    transport: Literal["kafka-python", "confluent"],
    kafka: KafkaBroker,
    topics: Topics,
    **more: Any,
) -> Settings:
    """Return settings for one transport on these topics, in a group of its own."""
    given: dict[str, Any] = {"group": f"{topics.input}-{transport}"} | more
    return Settings(
        transport=transport,
        kafka_bootstrap=kafka.bootstrap,
        input_topic=topics.input,
        output_topic=topics.output,
        dead_letter_topic=topics.dead_letter,
        transaction_timeout=10,
        **given,
    )
