"""Reads topics from their beginning to their end, committed records only."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from stream_dedup.generate import Truth
from stream_dedup.index.audit_decisions import Published
from stream_dedup.settings import Settings
from stream_dedup.stream.messages import HEADER_OFFSET, HEADER_PARTITION, HEADER_REASON
from stream_dedup.stream.messages import HEADER_SOURCE as SOURCE
from stream_dedup.types import Decision, Document
from tests.campaign.check import Answer, Place, Sent

#: Messages taken at a time, and the longest wait until there are as many, s.
_MESSAGES, _WAIT = 1000, 0.2
#: Time without a message after which reading is given up.
_PATIENCE = 60.0


class _Made(msgspec.Struct):
    id: str
    truth: Truth


class _Annotated(msgspec.Struct):
    id: str
    text: str
    dedup: Decision


_made = msgspec.json.Decoder(_Made).decode
_annotated = msgspec.json.Decoder(_Annotated).decode


class Topics:
    """The topics of a campaign.

    Args:
        bootstrap: brokers.
        settings: which topics.
        partitions: of each.
    """

    def __init__(self, bootstrap: str, settings: Settings, partitions: int) -> None:
        self._bootstrap, self._settings, self._partitions = bootstrap, settings, partitions

    def sent(self) -> Iterator[Sent]:
        """Yield the records of the input."""
        for message in self._messages(self._settings.input_topic):
            place = (message.partition(), message.offset())
            try:
                made = _made(message.value())
            except msgspec.DecodeError:
                yield Sent(place, None, None)
            else:
                yield Sent(place, made.id, made.truth.group)

    def answers(self) -> Iterator[Answer]:
        """Yield the records of the output."""
        for message in self._messages(self._settings.output_topic):
            value, headers = _annotated(message.value()), dict(message.headers())
            _, partition, offset = headers[SOURCE].decode().rsplit("/", 2)
            decided = value.dedup
            yield Answer(
                (int(partition), int(offset)),
                value.id,
                value.text,
                str(decided.status),
                decided.duplicate_id,
                str(decided.original_id),
            )

    def dead(self) -> Iterator[tuple[Place, str]]:
        """Yield the place and the reason of each dead letter."""
        for message in self._messages(self._settings.dead_letter_topic):
            headers = dict(message.headers())
            place = (int(headers[HEADER_PARTITION]), int(headers[HEADER_OFFSET]))
            yield place, headers[HEADER_REASON].decode()

    def published(self) -> Iterator[Published]:
        """Yield the records of the output as the audit of the index takes them."""
        for message in self._messages(self._settings.output_topic):
            value, source = _annotated(message.value()), dict(message.headers())[SOURCE].decode()
            yield Published(source, Document(value.id, value.text, source=source), value.dedup)

    def _messages(self, topic: str) -> Iterator[Any]:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "campaign-reading",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "log_level": 2,
            }
        )
        try:
            places = range(self._partitions)
            consumer.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for n in places])
            unread = set(places)
            deadline = time.monotonic() + _PATIENCE
            while unread:
                taken = consumer.consume(_MESSAGES, _WAIT)
                if taken:
                    deadline = time.monotonic() + _PATIENCE
                elif time.monotonic() > deadline:
                    msg = f"Partitions {sorted(unread)} of {topic} cannot be read to their end."
                    raise RuntimeError(msg)
                for message in taken:
                    error = message.error()
                    if error is None:
                        yield message
                    elif error.code() == KafkaError._PARTITION_EOF:
                        unread.discard(message.partition())
                    elif not error.retriable():
                        raise KafkaException(error)
        finally:
            consumer.close()
