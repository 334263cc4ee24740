"""Checks before any worker process starts: those of the doctor's without which none can work.

Each failure is one sentence on what is wrong and one on what to do, and never a traceback.
"""

from __future__ import annotations

import logging
from contextlib import closing

import redis

from stream_dedup.doctor import (
    kafka_brokers,
    kafka_look,
    kafka_topics,
    redis_look,
    redis_servers,
    setup,
)
from stream_dedup.doctor.findings import demand
from stream_dedup.doctor.kafka_facts import Role, topics_of, topics_of_groups
from stream_dedup.errors import ConfigurationMismatch, ServiceError
from stream_dedup.index.connection import connect, nodes_of
from stream_dedup.index.group_store import GroupStore
from stream_dedup.index.redis import RedisIndex
from stream_dedup.settings import Settings
from stream_dedup.stream.clients import check_installed

log = logging.getLogger(__name__)


def check(settings: Settings) -> None:
    """Check the Kafka client, the shadow's settings, Kafka, Redis, and then the index.

    What is wrong with the shadow's Redis or index is only told: the live stream does without.

    Raises:
        SettingsError: the Kafka client is not installed, or settings or files cannot be used.
        ServiceError: something is out of reach, missing or set up wrongly.
        ConfigurationMismatch: the index was built with another fingerprint configuration.
    """
    found = setup.look(settings)
    demand(setup.CHECKS, found, settings)
    check_kafka(settings)
    check_redis(settings)
    if isinstance(found.shadow, Settings):
        try:
            check_redis(found.shadow)
        except (ServiceError, ConfigurationMismatch) as error:
            log.warning("the shadow cannot decide yet: %(cause)s", {"cause": str(error)})


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
    check_kafka(settings, topics_of_groups(settings))
    check_nodes(settings)
    with closing(GroupStore.connect(settings)) as store:
        store.enter()


def check_kafka(settings: Settings, topics: dict[Role, str] | None = None) -> None:
    """Check that a broker answers, knows transactions as needed, and has the topics.

    Args:
        settings: brokers.
        topics: that a program needs; None for those of a worker.

    Raises:
        ServiceError: it is not so.
    """
    wanted = topics_of(settings) if topics is None else topics
    facts = kafka_look.look(settings, wanted, thoroughly=False)
    demand((*kafka_brokers.CHECKS, *kafka_topics.CHECKS), facts, settings)


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

    A narrow user may not look; the index itself checks what it can.

    Raises:
        ServiceError: it is not so.
    """
    demand(redis_servers.CHECKS, redis_look.look(settings, thoroughly=False), settings)


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
