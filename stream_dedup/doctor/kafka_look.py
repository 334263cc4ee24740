"""Looks at the brokers, the topics and the group, and changes nothing."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kafka import TopicPartition  # type: ignore[import-untyped]
from kafka.admin import (  # type: ignore[import-untyped]
    ConfigResource,
    OffsetSpec,
)
from kafka.errors import AuthorizationError, KafkaError  # type: ignore[import-untyped]

from stream_dedup.doctor.findings import Fact, Unknown, may_not_look, not_checked
from stream_dedup.doctor.kafka_facts import (
    OFFSETS,
    SHARES,
    TRANSACTIONS,
    Group,
    KafkaFacts,
    Member,
    Place,
    Role,
    Topic,
    retention_of,
)
from stream_dedup.errors import ServiceError
from stream_dedup.settings import Settings
from stream_dedup.stream.kafka_clients import open_admin
from stream_dedup.stream.kafka_limits import describe
from stream_dedup.stream.kafka_trouble import kafka_trouble

#: Time for the first answer of a broker.
TIMEOUT_MS = 10_000
#: The request that commits offsets in a transaction.
TXN_OFFSET_COMMIT = 28

_UNKNOWN_TOPIC, _TOPIC_DENIED = 3, 29


def look(settings: Settings, topics: Mapping[Role, str], *, thoroughly: bool = True) -> KafkaFacts:
    """Look at brokers and topics; ``thoroughly``, also at the group and its offsets.

    Raises:
        ServiceError: no broker answers.
        SettingsError: a file for TLS or a login cannot be used.
    """
    with _quietly():
        started = time.monotonic()
        admin: Any = None
        try:
            admin = open_admin(
                settings, bootstrap_timeout_ms=TIMEOUT_MS, request_timeout_ms=TIMEOUT_MS
            )
            return _Look(admin, settings, topics, time.monotonic() - started).facts(
                thoroughly=thoroughly
            )
        except KafkaError as error:
            msg = kafka_trouble(settings, error) or (
                f"No Kafka broker answers at {settings.kafka_bootstrap} ({type(error).__name__}). "
                "Start one, or give its address with --kafka-bootstrap."
            )
            raise ServiceError(msg) from error
        finally:
            if admin is not None:
                admin.close()


class _Look:
    """One look through an administration client."""

    def __init__(
        self, admin: Any, settings: Settings, names: Mapping[Role, str], seconds: float
    ) -> None:
        self._admin = admin
        self._settings = settings
        self._names = names
        self._seconds = seconds

    def facts(self, *, thoroughly: bool) -> KafkaFacts:
        brokers = self._admin.describe_cluster()["brokers"]
        versions = self._admin.api_versions()
        topics = self._topics(list(self._names.values()))
        found = KafkaFacts(
            brokers=len(brokers),
            commit_version=versions.get(TXN_OFFSET_COMMIT, (0, 0))[1],
            seconds=self._seconds,
            names=self._names,
            topics={role: topics[name] for role, name in self._names.items()},
        )
        return self._whole(found, brokers[0]["broker_id"]) if thoroughly else found

    def _whole(self, found: KafkaFacts, broker: int) -> KafkaFacts:
        inner = self._topics([OFFSETS, TRANSACTIONS])
        topic = found.topic(Role.INPUT)
        group: Group | Unknown | None = None
        places: Mapping[int, Place] | Unknown = {}
        # To ask for a group makes the topic that groups are kept in, if it is not there yet.
        if inner[OFFSETS] is not None:
            group = _try(self._group, f"the group {self._settings.group}", "Describe on the group")
        latest: float | Unknown | None
        if isinstance(topic, Unknown):
            places = latest = topic
        else:
            grouped = inner[OFFSETS] is not None
            what = f"the offsets of {topic.name}"
            permission = "Describe on the topic and on the group"
            places = _try(lambda: self._places(topic, grouped=grouped), what, permission)
            latest = _try(lambda: self._latest(topic), what, "Describe on the topic")
        return KafkaFacts(
            brokers=found.brokers,
            commit_version=found.commit_version,
            seconds=found.seconds,
            names=found.names,
            topics=found.topics,
            inner=inner,
            config=self._config("BROKER", str(broker), "DescribeConfigs on the cluster"),
            group=group,
            places=places,
            latest=latest,
            now=time.time(),
        )

    def _topics(self, names: Sequence[str]) -> dict[str, Topic | Unknown | None]:
        found: dict[str, Topic | Unknown | None] = {}
        for described in self._admin.describe_topics(list(names)):
            name, code = described["name"], described["error_code"]
            if code == _UNKNOWN_TOPIC:
                found[name] = None
            elif code == _TOPIC_DENIED:
                found[name] = may_not_look(f"the topic {name}", "Describe on it")
            else:
                found[name] = self._topic(described)
        return found

    def _topic(self, described: Mapping[str, Any]) -> Topic:
        partitions = described["partitions"]
        numbers = [one["partition_index"] for one in partitions]
        behind = [len(one["isr_nodes"]) < len(one["replica_nodes"]) for one in partitions]
        return Topic(
            name=described["name"],
            partitions=len(partitions),
            replicas=min((len(one["replica_nodes"]) for one in partitions), default=0),
            leaderless=tuple(
                number
                for number, one in zip(numbers, partitions, strict=True)
                if one["leader_id"] < 0
            ),
            lagging=tuple(number for number, one in zip(numbers, behind, strict=True) if one),
            operations=_operations(described),
            config=self._config("TOPIC", described["name"], "DescribeConfigs on the topic"),
        )

    def _config(self, kind: str, name: str, permission: str) -> Mapping[str, str] | Unknown:
        asked = [ConfigResource(kind, name)]
        what = f"the configuration of {'broker ' if kind == 'BROKER' else ''}{name}"
        found = _try(
            lambda: self._admin.describe_configs(asked, config_filter="all"), what, permission
        )
        if isinstance(found, Unknown):
            return found
        values = {key: str(one["value"]) for key, one in found[kind.lower()][name].items()}
        # The client passes over the answer that says why.
        return values or may_not_look(what, permission)

    def _group(self) -> Group:
        name = self._settings.group
        described = self._admin.describe_groups([name])[name]
        members = (
            Member(one["client_id"], _subscribed(one["member_metadata"]))
            for one in described["members"]
        )
        return Group(described["group_state"], tuple(members), _operations(described))

    def _places(self, topic: Topic, *, grouped: bool) -> dict[int, Place]:
        parts = [TopicPartition(topic.name, number) for number in range(topic.partitions)]
        committed: dict[Any, Any] = {}
        if grouped:
            name = self._settings.group
            committed = self._admin.list_group_offsets({name: parts})[name]
        oldest, ends = self._offsets(parts, OffsetSpec.EARLIEST), self._offsets(parts)
        aged = [self._aged(parts, topic, share, ends) for share in SHARES]
        return {
            part.partition: Place(
                committed[part].offset
                if part in committed and committed[part].offset >= 0
                else None,
                oldest[part],
                ends[part],
                tuple(one[part] for one in aged if one),
            )
            for part in parts
        }

    def _offsets(self, parts: Sequence[Any], spec: Any = OffsetSpec.LATEST) -> dict[Any, int]:
        found = self._admin.list_partition_offsets(dict.fromkeys(parts, spec))
        return {part: one.offset for part, one in found.items()}

    def _aged(
        self, parts: Sequence[Any], topic: Topic, share: float, ends: Mapping[Any, int]
    ) -> dict[Any, int]:
        """Return the first offset of each partition that is younger than a share of retention."""
        retention = retention_of(topic)
        if retention is None:
            return {}
        found = self._offsets(parts, int((time.time() - share * retention) * 1000))
        return {part: ends[part] if offset < 0 else offset for part, offset in found.items()}

    def _latest(self, topic: Topic) -> float | None:
        parts = [TopicPartition(topic.name, number) for number in range(topic.partitions)]
        asked = dict.fromkeys(parts, OffsetSpec.MAX_TIMESTAMP)
        times = [one.timestamp for one in self._admin.list_partition_offsets(asked).values()]
        latest = max(times, default=-1)
        return latest / 1000 if latest >= 0 else None


def _try(ask: Callable[[], Fact], what: str, permission: str) -> Fact | Unknown:
    """Ask for a fact; return what stands for it when that fails."""
    try:
        return ask()
    except AuthorizationError:
        return may_not_look(what, permission)
    except KafkaError as error:
        return not_checked(f"The brokers did not tell {what}: {describe(error)}.")


def _operations(described: Mapping[str, Any]) -> frozenset[str] | None:
    operations = described.get("authorized_operations")
    return frozenset(operations) if operations else None


def _subscribed(metadata: Any) -> tuple[str, ...]:
    """Return the topics of a member's subscription, if it could be decoded."""
    return tuple(metadata["topics"]) if isinstance(metadata, dict) else ()


@contextmanager
def _quietly() -> Iterator[None]:
    """Silence the client, which reports each failed connection by itself."""
    log = logging.getLogger("kafka")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(level)
