"""The clients of kafka-python as this program needs them: each option that is not the default."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer  # type: ignore[import-untyped]
from kafka.coordinator.assignors.range import (  # type: ignore[import-untyped]
    RangePartitionAssignor,
)
from kafka.errors import KafkaError  # type: ignore[import-untyped]
from kafka.net.sasl import (  # type: ignore[import-untyped]
    get_sasl_mechanism,
    register_sasl_mechanism,
)
from kafka.net.sasl.oauth import AbstractTokenProvider  # type: ignore[import-untyped]

from stream_dedup.secrets import secret_of
from stream_dedup.settings import Settings
from stream_dedup.stream.kafka_limits import (
    DELIVERY_TIMEOUT,
    ENVELOPE_BYTES,
    FETCH_MAX_BYTES,
    LINGER_MS,
    MAX_POLL_INTERVAL_MS,
    OPEN_TIMEOUT_MS,
    PARTITION_FETCH_MAX_BYTES,
    PRODUCE_BATCH_BYTES,
    RECONNECT_MS,
    SESSION_TIMEOUT_MS,
    describe,
    unpacked_limit,
)
from stream_dedup.stream.kafka_records import bound
from stream_dedup.stream.kafka_tokens import Token, token_source
from stream_dedup.tls import tls_context

log = logging.getLogger(__name__)

# Their lines of level debug quote what is sent, passwords too.
for _name in ("kafka.net.connection", "kafka.protocol.parser"):
    logging.getLogger(_name).setLevel(logging.INFO)


def connection_options(settings: Settings) -> dict[str, Any]:
    """Return what every client of kafka-python needs to know to reach the brokers.

    Files for TLS, passwords and tokens are read again at each connection.

    Raises:
        SettingsError: a file cannot be read or used.
    """
    options: dict[str, Any] = {
        "bootstrap_servers": settings.kafka_bootstrap.split(","),
        "bootstrap_timeout_ms": OPEN_TIMEOUT_MS,
        "security_protocol": settings.kafka_security_protocol,
    }
    if settings.kafka_has_tls:
        tls_context(settings, "kafka")
        options |= {
            "ssl_check_hostname": True,
            "ssl_cafile": settings.kafka_ca_file,
            "ssl_certfile": settings.kafka_certificate_file,
            "ssl_keyfile": settings.kafka_key_file,
            "ssl_password": secret_of(settings, "kafka_key_password"),
        }
    if settings.kafka_has_login:
        options["sasl_mechanism"] = settings.kafka_sasl_mechanism
        if settings.kafka_sasl_mechanism == "OAUTHBEARER":
            options["sasl_oauth_token_provider"] = _TokenProvider(token_source(settings))
        else:
            options["sasl_plain_username"] = settings.kafka_username
            options["sasl_plain_password"] = partial(secret_of, settings, "kafka_password")
    return options


def _reading_anew(mechanism: Any) -> Any:
    """Return a login that takes a function for the password, and calls it at each connection."""

    class ReadingAnew(mechanism):  # type: ignore[misc]
        def __init__(self, **config: Any) -> None:
            password = config["sasl_plain_password"]
            if callable(password):
                config["sasl_plain_password"] = password()
            super().__init__(**config)

    return ReadingAnew


for _name in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
    register_sasl_mechanism(_name, _reading_anew(get_sasl_mechanism(_name)), overwrite=True)


class _TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
    """Hands a token to the client, which asks at each login."""

    def __init__(self, source: Callable[[], Token]) -> None:
        self._source = source

    def token(self) -> str:
        """Return a token that has not expired."""
        return self._source().value


def open_reader(settings: Settings, isolation_level: str, **options: Any) -> Any:
    """Open a consumer outside of any group that reads from the beginning.

    Args:
        settings: brokers.
        isolation_level: ``read_committed`` or ``read_uncommitted``.
        options: more options of the client.
    """
    consumer = KafkaConsumer(
        **connection_options(settings),
        group_id=None,
        isolation_level=isolation_level,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        allow_auto_create_topics=False,
        metrics_enabled=False,
        **options,
    )
    return bound(consumer, unpacked_limit(settings))


def open_admin(settings: Settings, **options: Any) -> Any:
    """Open a client that asks about topics and groups.

    Args:
        settings: brokers.
        options: options of the client, in place of those of ``connection_options``.
    """
    return KafkaAdminClient(**connection_options(settings) | options)


def open_consumer(settings: Settings, client_id: str) -> Any:
    """Open a member of the group that reads committed records only and never commits itself."""
    consumer = KafkaConsumer(
        **connection_options(settings),
        client_id=client_id,
        group_id=settings.group,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        allow_auto_create_topics=False,
        # Workers hold no state of their partitions, so nothing is gained by keeping them in place,
        # and range makes every partition start again from its committed offset.
        partition_assignment_strategy=(RangePartitionAssignor,),
        fetch_max_bytes=FETCH_MAX_BYTES,
        max_partition_fetch_bytes=PARTITION_FETCH_MAX_BYTES,
        max_poll_records=settings.batch_documents,
        max_poll_interval_ms=MAX_POLL_INTERVAL_MS,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=SESSION_TIMEOUT_MS // 4,
        reconnect_backoff_max_ms=RECONNECT_MS,
        metrics_enabled=False,
    )
    return bound(consumer, unpacked_limit(settings))


def open_producer(settings: Settings, transactional_id: str) -> Any:
    """Open a producer and finish whatever the last one with its transactional id left open."""
    delivery = min(DELIVERY_TIMEOUT, settings.transaction_timeout)
    producer = KafkaProducer(
        **connection_options(settings),
        client_id=transactional_id,
        transactional_id=transactional_id,
        transaction_timeout_ms=int(settings.transaction_timeout * 1000),
        compression_type=None if settings.compression == "none" else settings.compression,
        batch_size=PRODUCE_BATCH_BYTES,
        linger_ms=LINGER_MS,
        max_request_size=settings.max_document_bytes + ENVELOPE_BYTES,
        delivery_timeout_ms=int(delivery * 1000),
        request_timeout_ms=int(delivery * 500),
        max_block_ms=OPEN_TIMEOUT_MS,
        allow_auto_create_topics=False,
        reconnect_backoff_max_ms=RECONNECT_MS,
        metrics_enabled=False,
    )
    try:
        producer.init_transactions()
    except BaseException:
        discard(producer)
        raise
    return producer


def discard(producer: Any) -> None:
    """End a producer without waiting for anything that it still wants to send.

    Its public ``close`` first flushes, and raises when that takes too long, with the sender thread
    still running; so the thread is stopped directly. What was sent of an open transaction is
    aborted by the next producer with this id, or by the broker in time.
    """
    producer._sender.force_close()
    try:
        producer.close(timeout=2)
    except KafkaError as error:
        log.debug("a discarded producer did not close: %(cause)s", {"cause": describe(error)})
