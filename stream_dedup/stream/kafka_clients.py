"""The Kafka clients as this program needs them: each option that is not the default."""

from __future__ import annotations

import logging
from typing import Any

from kafka import KafkaConsumer, KafkaProducer  # type: ignore[import-untyped]
from kafka.coordinator.assignors.range import (  # type: ignore[import-untyped]
    RangePartitionAssignor,
)
from kafka.errors import KafkaError  # type: ignore[import-untyped]

from stream_dedup.settings import Settings

log = logging.getLogger(__name__)

#: Without a heartbeat for this long a worker's partitions go to others. Heartbeats come from a
#: thread of the client, so this bounds the pause after a kill -9, not the time of a batch.
SESSION_TIMEOUT_MS = 10_000
#: Time between two polls after which a worker is taken for stuck. The loop gives up earlier.
MAX_POLL_INTERVAL_MS = 300_000
#: Bytes of one fetch from one broker, and of one partition in it, as they lie on its disk. There
#: is no bound here on what they decompress to: kafka-python 3.0 decompresses in private functions
#: of its record reader, and replacing those is a later matter. Until then the memory limit of the
#: process is the bound, and the input topic's writers have to be trusted that far.
FETCH_MAX_BYTES = 16 * 1024 * 1024
PARTITION_FETCH_MAX_BYTES = 2 * 1024 * 1024
#: Uncompressed bytes of one produced batch of one partition: as few requests as possible while
#: below the broker's default limit of 1,048,588, whatever the compression yields.
PRODUCE_BATCH_BYTES = 900_000
#: Room that key, headers and annotation may take beside the largest value.
ENVELOPE_BYTES = 4 * 1024 * 1024
#: Longest wait for the broker's answer to produced records; halved for a single request.
DELIVERY_TIMEOUT = 30.0
#: Time for bootstrap, for metadata and for the coordinator's answer when a producer opens.
OPEN_TIMEOUT_MS = 20_000
#: Longest pause of a client between two tries to reach a broker.
RECONNECT_MS = 5000


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
        # Batches are closed by the flush at the end of a transaction, or when full.
        linger_ms=50,
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


def describe(error: BaseException) -> str:
    """Name an error in a short line that quotes no record."""
    text = " ".join(str(error).split())[:160]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
