"""Sampled differences to their Kafka topic: best effort, outside every transaction."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from stream_dedup.settings import Settings
from stream_dedup.stream.kafka_limits import describe
from stream_dedup.stream.shadow_report import Sink

log = logging.getLogger(__name__)

#: Time that the lines of one sample have to arrive.
SEND_SECONDS = 10.0


def open_sink(settings: Settings, client_id: str) -> Sink | None:
    """Return where samples go: the topic that the settings name, if they do, by their client."""
    if settings.shadow_topic is None:
        return None
    if settings.transport == "confluent":
        return ConfluentSink(settings, settings.shadow_topic, client_id)
    return KafkaSink(settings, settings.shadow_topic, client_id)


class KafkaSink:
    """Sends by kafka-python; its producer is opened for each sample, which is once a minute."""

    def __init__(self, settings: Settings, topic: str, client_id: str) -> None:
        self._settings = settings
        self._topic = topic
        self._options = {
            "client_id": client_id,
            "compression_type": None if settings.compression == "none" else settings.compression,
            "delivery_timeout_ms": int(SEND_SECONDS * 1000),
            "request_timeout_ms": int(SEND_SECONDS * 500),
            "max_block_ms": int(SEND_SECONDS * 1000),
            "max_request_size": 8 * settings.shadow_text + settings.max_document_bytes,
            "allow_auto_create_topics": False,
            "metrics_enabled": False,
        }

    def send(self, lines: Sequence[bytes]) -> int:
        """Send lines; return how many of them arrived."""
        # Imported here because the other transport does without it.
        from kafka import KafkaProducer  # type: ignore[import-untyped]  # noqa: PLC0415
        from kafka.errors import KafkaError  # type: ignore[import-untyped]  # noqa: PLC0415

        from stream_dedup.stream.kafka_clients import connection_options, discard  # noqa: PLC0415

        futures = []
        try:
            producer = KafkaProducer(**connection_options(self._settings), **self._options)
            try:
                futures += [producer.send(self._topic, line) for line in lines]
                producer.flush(SEND_SECONDS)
            finally:
                discard(producer)
        except KafkaError as error:
            log.warning("a sample is incomplete: %(cause)s", {"cause": describe(error)})
        return sum(future.succeeded() for future in futures)

    def close(self) -> None:
        """Nothing is open."""


class ConfluentSink:
    """Sends by librdkafka."""

    def __init__(self, settings: Settings, topic: str, client_id: str) -> None:
        from confluent_kafka import Producer  # noqa: PLC0415 - optional

        from stream_dedup.stream.confluent_clients import connection_options  # noqa: PLC0415

        self._topic = topic
        self._producer: Any = Producer(
            {
                **connection_options(settings),
                "client.id": client_id,
                "compression.type": settings.compression,
                "message.timeout.ms": int(SEND_SECONDS * 1000),
                "message.max.bytes": 8 * settings.shadow_text + settings.max_document_bytes,
                "allow.auto.create.topics": False,
                "logger": logging.getLogger("librdkafka"),
            }
        )
        self._failures: list[str] = []

    def send(self, lines: Sequence[bytes]) -> int:
        """Send lines; return how many of them arrived."""
        from confluent_kafka import KafkaException  # noqa: PLC0415 - optional

        self._failures.clear()
        for line in lines:
            try:
                self._producer.produce(self._topic, line, on_delivery=self._on_delivery)
            except (KafkaException, BufferError) as error:
                self._failures.append(describe(error))
        self._producer.flush(SEND_SECONDS + 1)
        if self._failures:
            log.warning("a sample is incomplete: %(cause)s", {"cause": self._failures[0]})
        return len(lines) - len(self._failures)

    def close(self) -> None:
        """Give up what has not arrived."""
        self._producer.purge()

    def _on_delivery(self, error: Any, _message: Any) -> None:
        if error is not None:
            self._failures.append(str(error))
