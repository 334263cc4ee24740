"""Reads with kafka-python what librdkafka cannot unpack: it tells why, record by record."""

from __future__ import annotations

import time
from contextlib import closing

from kafka import TopicPartition  # type: ignore[import-untyped]

from stream_dedup.settings import Settings
from stream_dedup.stream.kafka_clients import open_reader
from stream_dedup.stream.kafka_limits import (
    FETCH_MAX_BYTES,
    OPEN_TIMEOUT_MS,
    PARTITION_FETCH_MAX_BYTES,
)
from stream_dedup.stream.transport import Partition, Record

_POLL_MS = 500


def read_again(settings: Settings, partition: Partition, start: int) -> tuple[list[Record], int]:
    """Return the next committed records of a partition, and the offset behind them.

    Args:
        settings: brokers and limits.
        partition: of which topic, and which.
        start: from which offset on.

    Raises:
        KafkaError: they cannot be read.
        TimeoutError: nothing came.
    """
    place = TopicPartition(*partition)
    deadline = time.monotonic() + OPEN_TIMEOUT_MS / 1000
    reader = open_reader(
        settings,
        "read_committed",
        fetch_max_bytes=FETCH_MAX_BYTES,
        max_partition_fetch_bytes=PARTITION_FETCH_MAX_BYTES,
    )
    with closing(reader) as consumer:
        consumer.assign([place])
        consumer.seek(place, start)
        records: list[Record] = []
        while (behind := consumer.position(place)) <= start:
            if time.monotonic() > deadline:
                msg = "nothing came of it from the broker in time"
                raise TimeoutError(msg)
            for polled in consumer.poll(_POLL_MS, max_records=settings.batch_documents).values():
                records += polled
        return records, behind
