"""Reads a topic from its beginning to its end, committed records only."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

#: Messages taken at a time, and the longest wait until there are as many, s.
_MESSAGES, _WAIT = 1000, 0.2
#: Time without a message after which reading is given up.
_PATIENCE = 60.0


def messages(bootstrap: str, topic: str, partitions: int) -> Iterator[Any]:
    """Yield the messages of librdkafka, of all partitions in turn.

    Raises:
        KafkaException: the topic cannot be read.
        RuntimeError: no partition goes on, and not all were read to their end.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{topic}.reading",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            # To start elsewhere would count records twice, or leave some out.
            "auto.offset.reset": "error",
            "log_level": 2,
        }
    )
    try:
        places = range(partitions)
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
