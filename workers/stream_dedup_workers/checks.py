"""Checks before any worker process starts: is everything there and set up as it must be?

Each failure is one sentence on what is wrong and one on what to do, and never a traceback.
"""

from __future__ import annotations

import logging
from contextlib import closing
from typing import Any

import redis
from kafka.admin import ConfigResource, KafkaAdminClient  # type: ignore[import-untyped]
from kafka.errors import KafkaError  # type: ignore[import-untyped]

from stream_dedup.errors import ConfigurationMismatch, ServiceError
from stream_dedup.index.connection import connect, nodes_of, reporting_errors, shown
from stream_dedup.index.group_store import GroupStore
from stream_dedup.index.redis import RedisIndex
from stream_dedup.settings import Settings
from stream_dedup.stream.clients import check_installed
from stream_dedup_workers.shadow import shadow_settings

log = logging.getLogger(__name__)

#: Time for the first answer of a broker.
KAFKA_TIMEOUT_MS = 10_000
#: The request that commits offsets in a transaction, and its first version that carries the
#: group's generation (KIP-447, Kafka 2.5).
TXN_OFFSET_COMMIT = 28
FENCED_BY_GENERATION = 3
#: Oldest Redis that has Functions.
OLDEST_REDIS = 7
#: Partitions of a topic in the command that creates it, unless the input topic tells.
DEFAULT_PARTITIONS = 12


def check(settings: Settings) -> None:
    """Check the Kafka client, the shadow's settings, Kafka, Redis, and then the index.

    What is wrong with the shadow's Redis or index is only told: the live stream does without.

    Raises:
        SettingsError: the Kafka client is not installed, or the shadow's settings cannot be used.
        ServiceError: something is out of reach, missing or set up wrongly.
        ConfigurationMismatch: the index was built with another fingerprint configuration.
    """
    check_installed(settings)
    shadow = shadow_settings(settings)
    check_kafka(settings)
    check_redis(settings)
    if shadow is not None:
        try:
            check_redis(shadow)
        except (ServiceError, ConfigurationMismatch) as error:
            log.warning("the shadow cannot decide yet: %s", error)


def check_groups(settings: Settings) -> None:
    """Check the Kafka client, Kafka and Redis for ``stream-dedup groups``.

    Args:
        settings: those of ``settings_of_groups``.

    Raises:
        SettingsError: the Kafka client is not installed.
        ServiceError: something is out of reach, missing or set up wrongly.
        ConfigurationMismatch: the states are spread over another number of partitions.
    """
    check_installed(settings)
    check_kafka(settings, compacted=settings.output_topic)
    check_nodes(settings)
    with closing(GroupStore.connect(settings)) as store:
        store.enter()


def check_kafka(settings: Settings, *, compacted: str | None = None) -> None:
    """Check that a broker answers, knows transactions as needed, and has the topics.

    Args:
        settings: brokers and topics.
        compacted: the topic that must be compacted.

    Raises:
        ServiceError: it is not so.
    """
    # The client reports each failed connection by itself; the sentence below says it all.
    kafka_log = logging.getLogger("kafka")
    level = kafka_log.level
    kafka_log.setLevel(logging.CRITICAL + 1)
    try:
        topics, policy = _describe_topics(settings, compacted)
    except KafkaError as error:
        msg = (
            f"No Kafka broker answers at {settings.kafka_bootstrap} ({type(error).__name__}). "
            "Start one, or give its address with --kafka-bootstrap."
        )
        raise ServiceError(msg) from error
    finally:
        kafka_log.setLevel(level)
    partitions = topics.get(settings.input_topic, DEFAULT_PARTITIONS)
    wanted = [settings.input_topic, settings.output_topic, settings.dead_letter_topic]
    if compacted is None:
        if settings.shadow is not None and settings.shadow_topic is not None:
            wanted.append(settings.shadow_topic)
        if settings.groups_topic is not None:
            wanted.append(settings.members_topic)
    missing = [
        f"The Kafka topic {topic} does not exist. Create it: kafka-topics --bootstrap-server "
        f"{settings.kafka_bootstrap} --create --topic {topic} --partitions {partitions}"
        + (" --config cleanup.policy=compact" if topic == compacted else "")
        for topic in wanted
        if topic not in topics
    ]
    if missing:
        raise ServiceError("\n".join(missing))
    if "compact" not in policy.split(","):
        msg = (
            f"The Kafka topic {compacted} has the cleanup policy {policy}, which would forget "
            "groups. Set it: kafka-configs --bootstrap-server "
            f"{settings.kafka_bootstrap} --alter --topic {compacted} "
            "--add-config cleanup.policy=compact"
        )
        raise ServiceError(msg)


def _describe_topics(settings: Settings, compacted: str | None) -> tuple[dict[str, int], str]:
    """Return the number of partitions of each topic, and one's cleanup policy (or "compact")."""
    admin: Any = None
    try:
        admin = KafkaAdminClient(
            bootstrap_servers=settings.kafka_bootstrap.split(","),
            bootstrap_timeout_ms=KAFKA_TIMEOUT_MS,
            request_timeout_ms=KAFKA_TIMEOUT_MS,
        )
        _, newest = admin.api_versions().get(TXN_OFFSET_COMMIT, (0, 0))
        if newest < FENCED_BY_GENERATION:
            msg = (
                f"The Kafka broker at {settings.kafka_bootstrap} cannot fence a commit by the "
                "group's generation (KIP-447). Use Kafka 2.5 or later."
            )
            raise ServiceError(msg)
        topics = {topic["name"]: len(topic["partitions"]) for topic in admin.describe_topics()}
        return topics, _cleanup_policy(admin, compacted) if compacted in topics else "compact"
    finally:
        if admin is not None:
            admin.close()


def _cleanup_policy(admin: Any, topic: str | None) -> str:
    asked = ConfigResource("TOPIC", topic, {"cleanup.policy": None})
    found = admin.describe_configs([asked], config_filter="all")
    return str(found["topic"][topic]["cleanup.policy"]["value"])


def check_redis(settings: Settings) -> None:
    """Check that Redis answers, is recent enough and never evicts, and that the index fits.

    Raises:
        ServiceError: it is not so.
        ConfigurationMismatch: the index was built with another fingerprint configuration.
    """
    check_nodes(settings)
    RedisIndex.connect(settings).close()


def check_nodes(settings: Settings) -> None:
    """Check that Redis answers, is recent enough and never evicts.

    Raises:
        ServiceError: it is not so.
    """
    where = shown(settings.redis_url.split(","))
    with closing(connect(settings)) as client, reporting_errors():
        for node in nodes_of(client):
            _check_node(where, node)


def _check_node(where: str, node: redis.Redis) -> None:
    try:
        facts: dict[str, Any] = node.info()
    except redis.exceptions.NoPermissionError:
        return  # a narrow user may not look; the index itself checks what it can
    version = str(facts.get("redis_version", OLDEST_REDIS))
    if int(version.split(".", maxsplit=1)[0]) < OLDEST_REDIS:
        msg = f"Redis at {where} is of version {version}. Use Redis 7 or later, or Valkey."
        raise ServiceError(msg)
    policy = facts.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        msg = (
            f"Redis at {where} has the eviction policy {policy}, which would forget originals. "
            "Set it to keep all: redis-cli config set maxmemory-policy noeviction"
        )
        raise ServiceError(msg)


def ping_redis(settings: Settings) -> str:
    """Say why Redis does not answer; empty when it does."""
    try:
        with closing(connect(settings)) as client:
            for node in nodes_of(client):
                node.ping()
    except redis.exceptions.NoPermissionError:
        return ""  # it answers
    except (ServiceError, redis.exceptions.RedisError, OSError) as error:
        cause = error.__cause__ or error
        return f"Redis does not answer ({type(cause).__name__})."
    return ""
