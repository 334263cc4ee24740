"""The clients of kafka-python as this program needs them: each option that is not the default."""

from __future__ import annotations

import logging
from typing import Any

from kafka import KafkaConsumer, KafkaProducer  # type: ignore[import-untyped]
from kafka.coordinator.assignors.range import (  # type: ignore[import-untyped]
    RangePartitionAssignor,
)
from kafka.errors import KafkaError  # type: ignore[import-untyped]

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
)

log = logging.getLogger(__name__)


def open_consumer(settings: Settings, client_id: str) -> Any:
    """Open a member of the group that reads committed records only and never commits itself."""
    return KafkaConsumer(
        bootstrap_servers=settings.kafka_bootstrap.split(","),
        bootstrap_timeout_ms=OPEN_TIMEOUT_MS,
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


def open_producer(settings: Settings, transactional_id: str) -> Any:
    """Open a producer and finish whatever the last one with its transactional id left open."""
    delivery = min(DELIVERY_TIMEOUT, settings.transaction_timeout)
    producer = KafkaProducer(
        bootstrap_servers=settings.kafka_bootstrap.split(","),
        bootstrap_timeout_ms=OPEN_TIMEOUT_MS,
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
        log.debug("a discarded producer did not close: %s", describe(error))
