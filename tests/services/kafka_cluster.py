"""Kafka brokers with replicas: KRaft, each a controller too, all local processes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from kafka import TopicPartition  # type: ignore[import-untyped]
from kafka.admin import KafkaAdminClient  # type: ignore[import-untyped]

from tests.services.errors import ServiceError
from tests.services.kafka import KafkaBroker, Seat, new_cluster_id
from tests.services.process import free_ports
from tests.services.toxiproxy import Toxiproxy

_START_SECONDS = 180.0
_ANSWER_SECONDS = 3.0
#: librdkafka tells of every connection that breaks.
_QUIET = {"log_level": 2}
#: Topics that the brokers keep their own state in; made when they are first needed.
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state")


class KafkaCluster:
    """Brokers that replicate every topic; with three, one may fail and all goes on.

    Brokers, and clients with the address ``inside``, talk to each other directly; clients with the
    address ``bootstrap`` by the proxies ``kafka-1``, ``kafka-2`` and so on.
    """

    def __init__(self, brokers: int, proxy: Toxiproxy) -> None:
        """Describe the brokers.

        Args:
            brokers: how many.
            proxy: what is between them and their clients.
        """
        controllers, cluster = free_ports(brokers), new_cluster_id()
        self._in_sync = max(1, brokers - 1)
        self._told = free_ports(brokers)
        self.brokers = [
            KafkaBroker(
                listeners={"INTERNAL": "PLAINTEXT"},
                extra=self._properties(brokers),
                seat=Seat(number, controllers, cluster, self._told[number - 1]),
            )
            for number in range(1, brokers + 1)
        ]
        for broker, told, name in zip(self.brokers, self._told, self.proxies, strict=True):
            proxy.add(name, told, broker.ports["PLAINTEXT"])

        self._client = AdminClient({"bootstrap.servers": self.inside, **_QUIET})

    @property
    def proxies(self) -> list[str]:
        """Names of the proxies, in the order of the brokers."""
        return [f"kafka-{number}" for number in range(1, len(self.brokers) + 1)]

    @property
    def bootstrap(self) -> str:
        """Addresses for clients that go by the proxies."""
        return ",".join(f"127.0.0.1:{port}" for port in self._told)

    @property
    def inside(self) -> str:
        """Addresses for clients that are no part of the trouble."""
        return ",".join(f"127.0.0.1:{broker.ports['INTERNAL']}" for broker in self.brokers)

    def create(self, names: Sequence[str], partitions: int) -> None:
        """Create topics and wait until every partition has a leader."""
        wanted = {"num_partitions": partitions, "replication_factor": len(self.brokers)}
        with self.admin() as admin:
            admin.create_topics(dict.fromkeys(names, wanted), wait_for_metadata=True)

    @contextmanager
    def admin(self) -> Iterator[Any]:
        """Return an admin client that is closed at the end of the block."""
        with KafkaAdminClient(bootstrap_servers=self.inside.split(",")) as admin:
            yield admin

    def is_whole(self) -> bool:
        """Whether all brokers are there, and every partition has all of its replicas in sync."""
        try:
            described = self._client.list_topics(timeout=_ANSWER_SECONDS)
        except KafkaException:
            return False
        partitions = [p for topic in described.topics.values() for p in topic.partitions.values()]
        return len(described.brokers) == len(self.brokers) and all(
            one.leader > 0 and sorted(one.isrs) == sorted(one.replicas) for one in partitions
        )

    def coordinator(self, group: str) -> KafkaBroker:
        """Return the broker that coordinates a group."""
        with self.admin() as admin:
            (topic,) = admin.describe_topics([INTERNAL_TOPICS[0]])
        partition = _java_hash(group) % len(topic["partitions"])
        leaders: dict[int, int] = {
            one["partition_index"]: one["leader_id"] for one in topic["partitions"]
        }
        return self.brokers[leaders[partition] - 1]

    def move_coordinators(self) -> None:
        """Give every partition of the brokers' own topics another leader."""
        with self.admin() as admin:
            wanted: dict[Any, list[int]] = {}
            for topic in admin.describe_topics(list(INTERNAL_TOPICS)):
                for one in topic["partitions"]:
                    place = TopicPartition(topic["name"], one["partition_index"])
                    replicas = one["replica_nodes"]
                    wanted[place] = [*replicas[1:], replicas[0]]
            admin.alter_partition_reassignments(wanted)
            places = {
                name: [p.partition for p in wanted if p.topic == name] for name in INTERNAL_TOPICS
            }
            admin.elect_leaders(0, places, raise_errors=False)

    def __enter__(self) -> Self:
        try:
            return self._start()
        except BaseException:
            self._close()
            raise

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        # The last ones would wait for a majority of controllers before they end.
        for broker in self.brokers:
            broker.kill()
            broker.close()

    def _start(self) -> Self:
        for broker in self.brokers:
            broker.launch()  # none answers before a majority of the controllers runs
        deadline = time.monotonic() + _START_SECONDS
        while not self.is_whole():
            if time.monotonic() > deadline:
                msg = f"The Kafka brokers were not complete after {_START_SECONDS:.0f} s."
                raise ServiceError(msg)
            time.sleep(0.2)
        return self

    def _properties(self, brokers: int) -> dict[str, str]:
        replicas, in_sync = str(brokers), str(self._in_sync)
        return {
            "inter.broker.listener.name": "INTERNAL",
            "default.replication.factor": replicas,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": in_sync,
            # Not fenced whenever the machine is busy.
            "broker.session.timeout.ms": "6000",
            # A follower that lags is to be dropped within a test's patience.
            "replica.lag.time.max.ms": "5000",
            "unclean.leader.election.enable": "false",
        }


def _java_hash(text: str) -> int:
    """Return what Kafka makes of a name of ASCII characters: String.hashCode without its sign."""
    value = 0
    for character in text:
        value = (value * 31 + ord(character)) & 0xFFFFFFFF
    return value & 0x7FFFFFFF
