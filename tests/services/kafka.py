"""A Kafka broker (KRaft), by itself or with a seat among others."""

from __future__ import annotations

import base64
import subprocess
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from kafka import KafkaAdminClient, KafkaProducer  # type: ignore[import-untyped]
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
    # Tests write records of any age, and deleting what is older than a week would begin half a
    # minute after the start. Topics keep the usual retention, which the doctor looks at.
    "log.initial.task.delay.ms": "86400000",
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


class Seat(NamedTuple):
    """The place of a broker among others, each a controller too.

    Attributes:
        number: its node id, from 1 on.
        controllers: port of the controller of each.
        cluster: cluster id.
        advertised: port that clients are told, if it is not its own.
    """

    number: int
    controllers: Sequence[int]
    cluster: str
    advertised: int | None = None


class KafkaBroker(Service):
    """A broker, by itself unless it is given a seat among others."""

    name = "Kafka"

    def __init__(
        self,
        address: str | None = None,
        *,
        listeners: Mapping[str, str] | None = None,
        extra: Mapping[str, str] | None = None,
        seat: Seat | None = None,
    ) -> None:
        """Describe the broker.

        Args:
            address: host:port of one that runs already.
            listeners: more listeners beside the plain one, and the security protocol of each.
            extra: more properties.
            seat: its place among others; it is a local process then.
        """
        if address is not None:
            self._bootstrap = address
            return
        protocols = {"PLAINTEXT": "PLAINTEXT", **(listeners or {})}
        #: Port of each listener.
        self.ports = dict(zip(protocols, free_ports(len(protocols)), strict=True))
        self._bootstrap = f"127.0.0.1:{self.ports['PLAINTEXT']}"
        self._runner = _runner(self.ports, protocols, extra or {}, seat)

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

    def produce(self, topic: str, *values: bytes) -> None:
        """Write values to a topic, and return when they are there."""
        producer = KafkaProducer(bootstrap_servers=self._bootstrap)
        try:
            for future in [producer.send(topic, value) for value in values]:
                future.get(30)
        finally:
            producer.close()


def _runner(
    ports: Mapping[str, int],
    protocols: Mapping[str, str],
    extra: Mapping[str, str],
    seat: Seat | None,
) -> Runner:
    if seat is None and docker_answers():
        properties = _properties("0.0.0.0", ports, protocols, _alone()) | dict(extra)
        environment = {_variable(name): value for name, value in properties.items()}
        return Container(IMAGE, list(ports.values()), environment)
    directory = scratch_directory("kafka")
    seat = seat or _alone()
    properties = _properties("127.0.0.1", ports, protocols, seat) | dict(extra)
    properties["log.dirs"] = str(directory / "data")
    config = directory / "server.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    _format(config, seat.cluster)
    return Process([*_java(), "kafka.Kafka", str(config)], directory / "log")


def new_cluster_id() -> str:
    """Return an id for brokers that belong together."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()


def _alone() -> Seat:
    return Seat(1, free_ports(1), new_cluster_id())


def _variable(name: str) -> str:
    """Return the variable that sets a property in the image."""
    return "KAFKA_" + name.replace("_", "__").replace("-", "___").replace(".", "_").upper()


def _properties(
    host: str, ports: Mapping[str, int], protocols: Mapping[str, str], seat: Seat
) -> dict[str, str]:
    controllers = [f"127.0.0.1:{port}" for port in seat.controllers]
    told = dict(ports)
    if seat.advertised is not None:
        told["PLAINTEXT"] = seat.advertised
    kinds = {**protocols, "CONTROLLER": "PLAINTEXT"}
    listening = [f"{name}://{host}:{port}" for name, port in ports.items()]
    advertised = [f"{name}://127.0.0.1:{port}" for name, port in told.items()]
    return _PROPERTIES | {
        "listeners": ",".join([*listening, f"CONTROLLER://{controllers[seat.number - 1]}"]),
        "advertised.listeners": ",".join(advertised),
        "listener.security.protocol.map": ",".join(f"{n}:{kind}" for n, kind in kinds.items()),
        "controller.quorum.voters": ",".join(f"{n}@{at}" for n, at in enumerate(controllers, 1)),
        "node.id": str(seat.number),
    }


def _java() -> list[str]:
    if not any(LIBRARIES.glob("kafka_*.jar")):
        msg = f"There is no Kafka in {LIBRARIES} and no Docker daemon answers; run `make services`."
        raise ServiceError(msg)
    return [find_program("java"), *_JAVA_OPTIONS, "-cp", f"{LIBRARIES}/*"]


def _format(config: Path, cluster: str) -> None:
    """Write the cluster id into the data directory, as a new broker needs it."""
    # One argument, not two: an id that begins with a dash would be taken for another option.
    named = f"--cluster-id={cluster}"
    command = [*_java(), "kafka.tools.StorageTool", "format", named, "-c", str(config)]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        msg = f"Kafka's storage could not be formatted: {done.stdout}{done.stderr}"
        raise ServiceError(msg)
