"""Reads all that a compacted topic holds, once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

from kafka import TopicPartition  # type: ignore[import-untyped]
from kafka.errors import KafkaError  # type: ignore[import-untyped]

from stream_dedup.errors import ServiceError
from stream_dedup.settings import Settings
from stream_dedup.stream.kafka_clients import open_reader
from stream_dedup.stream.kafka_limits import OPEN_TIMEOUT_MS, describe
from stream_dedup.stream.kafka_trouble import kafka_trouble
from stream_dedup.stream.transport import Record

_POLL_MS = 500
_RECORDS = 1000


def read_all(
    settings: Settings, topic: str, beat: Callable[[], None] = lambda: None
) -> Iterator[Sequence[Record]]:
    """Read the committed records of a topic from the beginning to where it ends now.

    Transactions that are open now are waited for. Either transport's topics can be read.

    Args:
        settings: brokers.
        topic: which topic.
        beat: called at each sign of progress.

    Yields:
        Some records, those of one partition in order.

    Raises:
        ServiceError: the topic cannot be read.
    """
    try:
        ends = {place: end for place, end in _ends(settings, topic).items() if end}
        if not ends:
            return
        with closing(open_reader(settings, "read_committed")) as consumer:
            consumer.assign(list(ends))
            come = -1
            while any(consumer.position(place) < end for place, end in ends.items()):
                yield from consumer.poll(_POLL_MS, max_records=_RECORDS).values()
                before, come = come, sum(map(consumer.position, ends))
                if come > before:  # a broker that gives nothing is no progress
                    beat()
    except KafkaError as error:
        msg = kafka_trouble(settings, error) or (
            f"The topic {topic} at {settings.kafka_bootstrap} cannot be read: {describe(error)}. "
            "Check the brokers and the name of the topic."
        )
        raise ServiceError(msg) from error


def _ends(settings: Settings, topic: str) -> dict[Any, int]:
    """Return where each partition ends; to a reader of committed records it ends before that."""
    with closing(open_reader(settings, "read_uncommitted")) as consumer:
        places = [TopicPartition(topic, n) for n in consumer.partitions_for_topic(topic) or ()]
        if not places:
            msg = f"The topic {topic} does not exist. Create it, or correct groups_topic."
            raise ServiceError(msg)
        ends: dict[Any, int] = consumer.end_offsets(places, timeout_ms=OPEN_TIMEOUT_MS)
        return ends
