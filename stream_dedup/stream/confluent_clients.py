"""The clients of librdkafka as this program needs them: each option that is not the default."""

from __future__ import annotations

import logging
from typing import Any

from confluent_kafka import Consumer, Producer

from stream_dedup.settings import Settings
from stream_dedup.stream.kafka_limits import (
    DELIVERY_TIMEOUT,
    ENVELOPE_BYTES,
    FETCH_MAX_BYTES,
    LINGER_MS,
    MAX_POLL_INTERVAL_MS,
    OPEN_TIMEOUT_MS,
    PARTITION_FETCH_MAX_BYTES,
    RECONNECT_MS,
    SESSION_TIMEOUT_MS,
)

#: librdkafka's own lines, which the bindings hand over when the client is polled.
log = logging.getLogger("librdkafka")

OPEN_TIMEOUT = OPEN_TIMEOUT_MS / 1000
#: Kilobytes that lie fetched and unpacked, over all partitions; one more fetch may be under way.
QUEUED_KILOBYTES = 32 * 1024
#: Messages that lie fetched of each partition, in batches.
QUEUED_BATCHES = 4
#: Pause of a partition's fetches while there is enough in the queue. The default of a second would
#: let a fast worker run dry.
FETCH_BACKOFF_MS = 10
#: Largest answer of a broker, and what a zstd batch may unpack to; the other codecs have no limit.
RECEIVE_MAX_BYTES = 128 * 1024 * 1024
#: Kilobytes of messages that wait to be sent.
SEND_KILOBYTES = 128 * 1024


def open_consumer(settings: Settings, client_id: str) -> Any:
    """Make a member of the group that reads committed records only and never commits itself."""
    return Consumer(
        {
            "bootstrap.servers": settings.kafka_bootstrap,
            "client.id": client_id,
            "group.id": settings.group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "allow.auto.create.topics": False,
            # Workers hold no state of their partitions, so nothing is gained by keeping them in
            # place, and range makes every partition start again from its committed offset.
            "partition.assignment.strategy": "range",
            "check.crcs": True,
            # Tells where a partition ends, behind the marks of transactions: the lag is then none.
            "enable.partition.eof": True,
            "fetch.max.bytes": FETCH_MAX_BYTES,
            "max.partition.fetch.bytes": PARTITION_FETCH_MAX_BYTES,
            "receive.message.max.bytes": RECEIVE_MAX_BYTES,
            "queued.max.messages.kbytes": QUEUED_KILOBYTES,
            "queued.min.messages": QUEUED_BATCHES * settings.batch_documents,
            "fetch.queue.backoff.ms": FETCH_BACKOFF_MS,
            "max.poll.interval.ms": MAX_POLL_INTERVAL_MS,
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": SESSION_TIMEOUT_MS // 4,
            "reconnect.backoff.max.ms": RECONNECT_MS,
            "log.connection.close": False,
            "logger": log,
        }
    )


def open_producer(
    settings: Settings, transactional_id: str, batch_bytes: int, on_failure: Any
) -> Any:
    """Open a producer and finish whatever the last one with its transactional id left open.

    Args:
        settings: brokers and limits.
        transactional_id: its name.
        batch_bytes: uncompressed bytes of one batch of one partition.
        on_failure: called with the error and the message for each one that did not arrive.

    Raises:
        KafkaException: it cannot be had.
    """
    delivery = min(DELIVERY_TIMEOUT, settings.transaction_timeout)
    producer = Producer(
        {
            "bootstrap.servers": settings.kafka_bootstrap,
            "client.id": transactional_id,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": int(settings.transaction_timeout * 1000),
            "compression.type": settings.compression,
            "batch.size": batch_bytes,
            "linger.ms": LINGER_MS,
            "message.max.bytes": settings.max_document_bytes + ENVELOPE_BYTES,
            "queue.buffering.max.kbytes": SEND_KILOBYTES,
            "partitioner": "murmur2_random",
            "delivery.timeout.ms": int(delivery * 1000),
            "request.timeout.ms": int(delivery * 500),
            "socket.timeout.ms": int(delivery * 1000),
            "reconnect.backoff.max.ms": RECONNECT_MS,
            # A call into Python for each record that arrived would cost more than to send it.
            "delivery.report.only.error": True,
            "on_delivery": on_failure,
            "log.connection.close": False,
            "logger": log,
        }
    )
    try:
        producer.init_transactions(OPEN_TIMEOUT)
    except BaseException:
        discard(producer)
        raise
    return producer


def discard(producer: Any) -> None:
    """Make a producer forget what it still wants to send; its threads end with the last reference.

    What was sent of an open transaction is aborted by the next producer with this id, or by the
    broker in time.
    """
    producer.purge()
    producer.poll(0)
