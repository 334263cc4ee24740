"""A Kafka broker: KRaft, one node, no replication."""

from __future__ import annotations

import base64
import subprocess
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka import KafkaAdminClient  # type: ignore[import-untyped]
from kafka.errors import KafkaError  # type: ignore[import-untyped]

from tests.services.container import Container, docker_answers
from tests.services.errors import ServiceError
from tests.services.process import Process, find_program, free_ports
from tests.services.service import Runner, Service, listens, scratch_directory

IMAGE = "apache/kafka:4.1.0"
#: Filled by ``make services``.
LIBRARIES = Path(__file__).parents[2] / ".services" / "kafka" / "libs"

#: Small and quick to start rather than fast; a test machine has other work.
_JAVA_OPTIONS = (
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)

_PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "auto.create.topics.enable": "false",
    "default.replication.factor": "1",
    # Internal topics: one replica is all there is, and few partitions are created sooner.
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "3",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # Faults should show within a test's patience: no wait for more group members, short sessions
    # allowed, transactions of dead producers aborted soon.
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    # A killed broker that comes back is let in only when the session of its former life is over.
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "2000",
    # The default buffer takes a quarter of the heap.
    "log.cleaner.dedupe.buffer.size": "8388608",
}


@dataclass(frozen=True, slots=True)
class Topics:
    """The three topics of one worker group."""

    input: str
    output: str
    dead_letter: str
    partitions: int


class KafkaBroker(Service):
    """A broker; ``address`` (host:port) names one that runs already."""

    name = "Kafka"

    def __init__(self, address: str | None = None) -> None:
        if address is not None:
            self._bootstrap = address
            return
        port, controller_port = free_ports(2)
        self._bootstrap = f"127.0.0.1:{port}"
        self._runner = _runner(port, controller_port)

    @property
    def bootstrap(self) -> str:
        """Address for clients, host:port."""
        return self._bootstrap

    def is_ready(self) -> bool:
        """Whether the broker lists its topics."""
        host, _, port = self._bootstrap.split(",")[0].rpartition(":")
        if not listens(int(port), host):
            return False
        try:
            with KafkaAdminClient(bootstrap_servers=self._bootstrap) as admin:
                admin.list_topics()
        except KafkaError:
            return False
        return True

    def create_topics(self, partitions: int = 4) -> Topics:
        """Create an input, an output and a dead-letter topic with names of their own."""
        prefix = f"test-{uuid.uuid4().hex[:12]}"
        topics = Topics(f"{prefix}.input", f"{prefix}.output", f"{prefix}.dead-letter", partitions)
        self.create([topics.input, topics.output, topics.dead_letter], partitions)
        return topics

    def create(self, names: Iterable[str], partitions: int, **configs: str) -> None:
        """Create topics and wait until every partition has a leader."""
        wanted: dict[str, Any] = {"num_partitions": partitions, "replication_factor": 1}
        wanted["configs"] = {name.replace("_", "."): value for name, value in configs.items()}
        with KafkaAdminClient(bootstrap_servers=self._bootstrap) as admin:
            admin.create_topics(dict.fromkeys(names, wanted), wait_for_metadata=True)


def _runner(port: int, controller_port: int) -> Runner:
    if docker_answers():
        properties = _properties("0.0.0.0", port, controller_port)
        environment = {f"KAFKA_{k.upper().replace('.', '_')}": v for k, v in properties.items()}
        return Container(IMAGE, port, environment)
    directory = scratch_directory("kafka")
    properties = _properties("127.0.0.1", port, controller_port)
    properties["log.dirs"] = str(directory / "data")
    config = directory / "server.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    _format(config)
    return Process([*_java(), "kafka.Kafka", str(config)], directory / "log")


def _properties(host: str, port: int, controller_port: int) -> dict[str, str]:
    return _PROPERTIES | {
        "listeners": f"PLAINTEXT://{host}:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
    }


def _java() -> list[str]:
    if not any(LIBRARIES.glob("kafka_*.jar")):
        msg = f"There is no Kafka in {LIBRARIES} and no Docker daemon answers; run `make services`."
        raise ServiceError(msg)
    return [find_program("java"), *_JAVA_OPTIONS, "-cp", f"{LIBRARIES}/*"]


def _format(config: Path) -> None:
    """Write the cluster id into the data directory, as a new broker needs it."""
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
    # One argument, not two: an id that begins with a dash would be taken for another option.
    named = f"--cluster-id={cluster}"
    command = [*_java(), "kafka.tools.StorageTool", "format", named, "-c", str(config)]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        msg = f"Kafka's storage could not be formatted: {done.stdout}{done.stderr}"
        raise ServiceError(msg)
