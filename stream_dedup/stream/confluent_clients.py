"""The clients of librdkafka as this program needs them: each option that is not the default."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer

from stream_dedup.secrets import secret_of
from stream_dedup.settings import Settings
from stream_dedup.stream.kafka_limits import (
    DELIVERY_TIMEOUT,
    ENVELOPE_BYTES,
    FETCH_MAX_BYTES,
    LINGER_MS,
    MAX_POLL_INTERVAL_MS,
    OFFSETS_TIMEOUT,
    OPEN_TIMEOUT_MS,
    PARTITION_FETCH_MAX_BYTES,
    RECONNECT_MS,
    SESSION_TIMEOUT_MS,
)
from stream_dedup.stream.kafka_tokens import token_source
from stream_dedup.tls import tls_context

#: librdkafka's own lines, which the bindings hand over when the client is polled.
log = logging.getLogger("librdkafka")

OPEN_TIMEOUT = OPEN_TIMEOUT_MS / 1000
#: Bytes of one fetch from one broker, and of one partition in it: a quarter of what the other
#: client fetches, because this one unpacks all of it at once, and it may become a hundred times as
#: much. More than that would not make it faster.
FETCH_BYTES = FETCH_MAX_BYTES // 4
PARTITION_FETCH_BYTES = PARTITION_FETCH_MAX_BYTES // 2
#: Kilobytes that lie fetched and unpacked, over all partitions; one more fetch may be under way.
QUEUED_KILOBYTES = 32 * 1024
#: Messages that lie fetched of each partition, in batches.
QUEUED_BATCHES = 4
#: Pause of a partition's fetches while there is enough in the queue. The default of a second would
#: let a fast worker run dry.
FETCH_BACKOFF_MS = 10
#: Time after which a connection without traffic is closed. To send offsets may wait for a broker as
#: it was before it came back, which changes its state no more (librdkafka issue 5511); any other
#: connection that closes makes it look again. So most such calls end by themselves (``bounded`` is
#: for the others).
IDLE_MS = int(OFFSETS_TIMEOUT * 800)
#: Largest answer of a broker, and what a zstd batch may unpack to; the other codecs have no limit.
RECEIVE_MAX_BYTES = 128 * 1024 * 1024
#: Kilobytes of messages that wait to be sent.
SEND_KILOBYTES = 128 * 1024


def connection_options(settings: Settings) -> dict[str, Any]:
    """Return what every client of librdkafka needs to know to reach the brokers.

    Raises:
        SettingsError: a file cannot be read or used.
    """
    options: dict[str, Any] = {
        "bootstrap.servers": settings.kafka_bootstrap,
        "security.protocol": settings.kafka_security_protocol,
    }
    if settings.kafka_has_tls:
        tls_context(settings, "kafka")
        files = {
            "ssl.ca.location": settings.kafka_ca_file,
            "ssl.certificate.location": settings.kafka_certificate_file,
            "ssl.key.location": settings.kafka_key_file,
        }
        options |= {name: str(path) for name, path in files.items() if path is not None}
        options["ssl.endpoint.identification.algorithm"] = "https"
        if password := secret_of(settings, "kafka_key_password"):
            options["ssl.key.password"] = password
    if settings.kafka_has_login:
        options["sasl.mechanism"] = settings.kafka_sasl_mechanism
        if settings.kafka_sasl_mechanism == "OAUTHBEARER":
            source = token_source(settings)
            options["oauth_cb"] = lambda _: tuple(source())
        else:
            options["sasl.username"] = settings.kafka_username
            options["sasl.password"] = secret_of(settings, "kafka_password")
    return options


def open_consumer(settings: Settings, client_id: str) -> Any:
    """Make a member of the group that reads committed records only and never commits itself."""
    return Consumer(
        {
            **connection_options(settings),
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
            "fetch.max.bytes": FETCH_BYTES,
            "max.partition.fetch.bytes": PARTITION_FETCH_BYTES,
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
    settings: Settings, transactional_id: str, batch_bytes: int, on_failure: Any, on_trouble: Any
) -> Any:
    """Open a producer and finish whatever the last one with its transactional id left open.

    Args:
        settings: brokers and limits.
        transactional_id: its name.
        batch_bytes: uncompressed bytes of one batch of one partition.
        on_failure: called with the error and the message for each one that did not arrive.
        on_trouble: called with each error of a connection or of the client.

    Raises:
        KafkaException: it cannot be had.
    """
    delivery = min(DELIVERY_TIMEOUT, settings.transaction_timeout)
    producer = Producer(
        {
            **connection_options(settings),
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
            "connections.max.idle.ms": IDLE_MS,
            # A call into Python for each record that arrived would cost more than to send it.
            "delivery.report.only.error": True,
            "on_delivery": on_failure,
            "error_cb": on_trouble,
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
    producer.purge(blocking=False)
    # One that was fenced raises that here again.
    with suppress(KafkaException):
        producer.poll(0)
