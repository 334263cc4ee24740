"""Facts of Kafka with one defect each, and what the doctor says of them."""

from __future__ import annotations

from typing import Any, NamedTuple

from stream_dedup.doctor.findings import Level
from stream_dedup.doctor.kafka_facts import Group, Member, Place, Role, Topic
from stream_dedup.settings import Settings
from tests.models.healthy import (
    DAY,
    SETTINGS,
    kafka,
    with_config,
    with_topic,
)

HINT, WARNING, ERROR = Level.HINT, Level.WARNING, Level.ERROR


class Defect(NamedTuple):
    """Facts with a defect.

    Attributes:
        check: that finds it.
        level: how it comes out.
        facts: with the defect.
        found: a part of what it says.
        remedy: a part of the remedy.
        settings: that the facts are held to.
    """

    check: str
    level: Level
    facts: Any
    found: str
    remedy: str
    settings: Settings = SETTINGS


DEFECTS = [
    Defect("kafka.version", ERROR, kafka(commit_version=2), "fence", "Kafka 2.5"),
    Defect(
        "kafka.transactions",
        ERROR,
        kafka(),
        "60 min, and the brokers allow 15 min",
        "transaction_timeout = 900",
        Settings(transaction_timeout=3600),
    ),
    Defect("kafka.replication", WARNING, kafka(brokers=1), "one broker", "three"),
    Defect(
        "kafka.replication",
        WARNING,
        with_topic(Role.INPUT, replicas=1),
        "documents has 1 replica",
        "kafka-reassign-partitions",
    ),
    Defect(
        "kafka.replication",
        WARNING,
        with_config(Role.INPUT, min_insync_replicas="1"),
        "counts as written when 1",
        "min.insync.replicas=2",
    ),
    Defect(
        "kafka.inner_topics",
        WARNING,
        kafka(inner={"__transaction_state": Topic("t", 3), "__consumer_offsets": None}),
        "t has 1 replica",
        "kafka-reassign-partitions",
    ),
    Defect(
        "kafka.leaders",
        ERROR,
        with_topic(Role.INPUT, leaderless=(1, 2)),
        "Partitions 1, 2 of documents have no leader",
        "--describe --topic documents",
    ),
    Defect(
        "kafka.leaders",
        WARNING,
        with_topic(Role.INPUT, lagging=tuple(range(20))),
        "6, 7, ... of documents lack",
        "--describe --topic documents",
    ),
    Defect(
        "kafka.offsets_retention",
        WARNING,
        kafka(config={"offsets.retention.minutes": "60"}),
        "stopped for 60 min",
        "offsets.retention.minutes=10080",
    ),
    Defect(
        "kafka.topics",
        ERROR,
        kafka(topics={**kafka().topics, Role.GROUPS: None}),
        "documents.groups does not exist",
        "--create --topic documents.groups --partitions 4 --config cleanup.policy=compact",
    ),
    Defect(
        "kafka.compaction",
        ERROR,
        with_config(Role.GROUPS, cleanup_policy="delete"),
        "forget groups",
        "--topic documents.groups --add-config cleanup.policy=compact",
    ),
    Defect(
        "kafka.compaction",
        WARNING,
        with_config(Role.INPUT, cleanup_policy="compact,delete"),
        "documents is compacted",
        "--topic documents --add-config cleanup.policy=delete",
    ),
    Defect(
        "kafka.partitions",
        WARNING,
        with_topic(Role.OUTPUT, partitions=2),
        "4 partitions and documents.annotated 2",
        "--topic documents.annotated --partitions 4",
    ),
    Defect(
        "kafka.partitions",
        WARNING,
        with_topic(Role.OUTPUT, partitions=8),
        "4 partitions and documents.annotated 8",
        "--topic documents --partitions 8",
    ),
    Defect(
        "kafka.processes",
        WARNING,
        kafka(),
        "2 have nothing to do",
        "processes = 4",
        Settings(processes=6),
    ),
    Defect(
        "kafka.retention",
        WARNING,
        with_config(Role.INPUT, retention_ms="3600000"),
        "for 60 min",
        f"retention.ms={7 * DAY * 1000}",
    ),
    Defect(
        "kafka.retention",
        WARNING,
        kafka(places={0: Place(5, 0, 9, (7, 2))}),
        "less than half of its retention",
        "retention.ms=",
    ),
    Defect(
        "kafka.retention",
        ERROR,
        kafka(places={0: Place(5, 0, 9, (9, 7)), 1: Place(5, 0, 9, (2, 2))}),
        "1 partition(s) of documents what is not read yet has less than a tenth",
        "retention.ms=",
    ),
    Defect(
        "kafka.output_retention",
        HINT,
        with_config(Role.OUTPUT),
        "kept for 7 d and originals without end",
        "retention.ms=-1",
    ),
    Defect(
        "kafka.output_retention",
        HINT,
        with_config(Role.OUTPUT),
        "originals for 31 d",
        f"retention.ms={31 * DAY * 1000}",
        Settings(window=30 * DAY),
    ),
    Defect(
        "kafka.message_bytes",
        WARNING,
        with_config(Role.OUTPUT, max_message_bytes="500000"),
        "documents.annotated takes messages of 500 kB",
        "max.message.bytes=965536",
    ),
    Defect(
        "kafka.message_bytes",
        WARNING,
        kafka(),
        "documents may have 5 MB",
        "max.message.bytes=5065536",
        Settings(max_document_bytes=5_000_000),
    ),
    Defect(
        "kafka.message_bytes",
        WARNING,
        with_config(Role.INPUT, max_message_bytes="50000000"),
        "documents takes messages of 50 MB",
        "max.message.bytes=16777216",
    ),
    Defect(
        "kafka.timestamps",
        WARNING,
        with_config(Role.OUTPUT, message_timestamp_type="LogAppendTime"),
        "documents.annotated has LogAppendTime",
        "message.timestamp.type=CreateTime",
    ),
    Defect(
        "kafka.compression",
        WARNING,
        with_config(Role.OUTPUT, compression_type="gzip"),
        "send lz4 to documents.annotated",
        "compression.type=producer",
    ),
    Defect(
        "kafka.permissions",
        ERROR,
        with_topic(Role.OUTPUT, operations=frozenset({"DESCRIBE", "READ"})),
        "may not write the topic documents.annotated",
        "--operation Write --topic documents.annotated",
    ),
    Defect(
        "kafka.permissions",
        ERROR,
        kafka(group=Group("Empty", (), frozenset({"DESCRIBE"}))),
        "may not read the group stream-dedup",
        "--operation Read --group stream-dedup",
    ),
    Defect(
        "kafka.group",
        ERROR,
        kafka(group=Group("Stable", (Member("other", ("orders",)), Member("w", ("documents",))))),
        "readers of orders (other)",
        "group = documents-dedup",
    ),
    Defect(
        "kafka.offsets",
        ERROR,
        kafka(places={0: Place(5, 7, 9), 1: Place(0, 100, 200), 2: Place(3, 0, 4)}),
        "102 documents of documents were removed before they were read, in 2 partition(s)",
        "--reset-offsets --to-earliest",
    ),
    Defect(
        "kafka.offsets",
        ERROR,
        kafka(places={0: Place(5, 0, 4)}),
        "stands behind the end",
        "--reset-offsets --to-earliest",
    ),
    Defect(
        "kafka.offsets",
        HINT,
        kafka(places={0: Place(5, 0, 9), 1: Place(None, 0, 4)}),
        "no committed offset",
        "right for partitions that are new",
    ),
    Defect(
        "clock.documents",
        WARNING,
        kafka(latest=5000.0),
        "66.7 min ahead of this machine's clock, further than max_future",
        "timedatectl",
    ),
]
