"""Facts, as the doctor gets them, of a set-up in which all is well; and with one thing changed."""

from __future__ import annotations

import dataclasses
from typing import Any

from stream_dedup.doctor import kafka_facts
from stream_dedup.doctor.examination import CHECKS
from stream_dedup.doctor.findings import Finding, judged
from stream_dedup.doctor.kafka_facts import Group, KafkaFacts, Member, Place, Role, Topic
from stream_dedup.doctor.machine import MachineFacts
from stream_dedup.doctor.redis_facts import Node, RedisFacts
from stream_dedup.index.description import Described
from stream_dedup.settings import Settings

DAY = 86400
CONFIG = {
    "cleanup.policy": "delete",
    "retention.ms": str(7 * DAY * 1000),
    "max.message.bytes": "1048588",
    "message.timestamp.type": "CreateTime",
    "compression.type": "producer",
    "min.insync.replicas": "2",
}
INFO = {
    "redis_version": "7.2.0",
    "maxmemory_policy": "noeviction",
    "maxmemory": 10**10,
    "used_memory": 4 * 10**8,
    "total_system_memory": 10**11,
    "connected_slaves": 1,
    "connected_clients": 10,
    "maxclients": 10_000,
    "aof_enabled": 1,
    "rdb_last_bgsave_status": "ok",
    "aof_last_write_status": "ok",
    "aof_last_bgrewrite_status": "ok",
}
BUILT = Described("79f7", "1 partitions=1", '{"threshold":0.8}')


def topic(name: str, **config: str) -> Topic:
    return Topic(name, 4, replicas=3, config=CONFIG | config)


def kafka(**changed: Any) -> KafkaFacts:
    settings = Settings(groups_topic="documents.groups")
    names = kafka_facts.topics_of(settings) | {Role.GROUPS: "documents.groups"}
    topics: dict[Role, Topic | None] = {role: topic(name) for role, name in names.items()}
    topics[Role.GROUPS] = topic("documents.groups", **{"cleanup.policy": "compact"})
    topics[Role.OUTPUT] = topic("documents.annotated", **{"retention.ms": "-1"})
    facts = KafkaFacts(
        brokers=3,
        commit_version=3,
        seconds=0.01,
        names=names,
        topics=topics,
        inner={"__transaction_state": topic("t"), "__consumer_offsets": topic("o")},
        config={"transaction.max.timeout.ms": "900000", "offsets.retention.minutes": "10080"},
        group=Group("Stable", (Member("w", ("documents",)),), frozenset({"READ"})),
        places={0: Place(5, 0, 9, (2, 1))},
        latest=1000.0,
        now=1001.0,
    )
    return dataclasses.replace(facts, **changed)


def with_topic(role: Role, **changed: Any) -> KafkaFacts:
    facts = kafka()
    found = facts.topics[role]
    assert isinstance(found, Topic)
    return kafka(topics={**facts.topics, role: dataclasses.replace(found, **changed)})


def with_config(role: Role, **config: str) -> KafkaFacts:
    return with_topic(role, config=CONFIG | {k.replace("_", "."): v for k, v in config.items()})


def redis(count: int = 1, info: dict[str, Any] | None = None, **changed: Any) -> RedisFacts:
    node = Node(
        "redis:6379",
        "redis-cli -h redis -p 6379",
        INFO | (info or {}),
        config={"save": "", "appendfsync": "everysec"},
        libraries={"stream_dedup_1": "code"},
        latency=0.0002,
        ahead=0.001,
        lengths=(16, 18),
    )
    nodes = tuple(dataclasses.replace(node, name=f"redis-{n}:6379") for n in range(count))
    facts = RedisFacts(
        "redis://redis",
        nodes,
        wanted=BUILT,
        index=BUILT,
        originals=500_000,
        denied=(),
        claims=("stream_dedup_1", "code"),
        libraries=("stream_dedup_1", "stream_dedup_groups_2"),
    )
    return dataclasses.replace(facts, **changed)


def with_node(**changed: Any) -> RedisFacts:
    facts = redis()
    return dataclasses.replace(facts, nodes=(dataclasses.replace(facts.nodes[0], **changed),))


def in_cluster(count: int = 3, **info: Any) -> RedisFacts:
    state = {"cluster_state": "ok", "cluster_slots_ok": "16384"}
    return redis(count, info, cluster=state)


SETTINGS = Settings(groups_topic="documents.groups")
SPREAD = Settings(partitions=64)
MACHINE = MachineFacts("", False, 65536, "/tmp", True, 10**10, 8)


def said(check: str, facts: Any, settings: Settings = SETTINGS) -> list[Finding]:
    """Return what one check says."""
    (found,) = [one for one in CHECKS if one.name == check]
    return judged([found], facts, settings)
