"""Sends the messages of one transaction and makes sure that each of them arrived."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Sequence
from typing import Any

from kafka.errors import (  # type: ignore[import-untyped]
    InvalidRecordError,
    InvalidTimestampError,
    KafkaError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    UnknownError,
)
from kafka.partitioner.default import murmur2  # type: ignore[import-untyped]

from stream_dedup.stream.kafka_limits import DELIVERY_TIMEOUT
from stream_dedup.stream.transactional import RecordRefusedError, position_of
from stream_dedup.stream.transport import Output, Position

log = logging.getLogger(__name__)

#: Answers of a broker that will be the same for the same record next time.
_REFUSALS = (
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    InvalidTimestampError,
    InvalidRecordError,
)
#: The client cannot write it down, whatever it is.
_UNWRITABLE = (AssertionError, TypeError, ValueError, OverflowError, struct.error)


class Publishing:
    """Sends outputs through one producer, within one open transaction.

    Args:
        producer: a transactional producer that has begun a transaction.
        inputs: partitions of the input topic.
        beat: called at each sign of progress.
    """

    def __init__(self, producer: Any, inputs: int, beat: Callable[[], None]) -> None:
        self._producer = producer
        self._inputs = inputs
        self._beat = beat
        self._counts: dict[str, int] = {}

    def send_all(self, outputs: Sequence[Output]) -> None:
        """Send everything at once, and return when all of it has arrived.

        Raises:
            RecordRefusedError: the broker refuses a record, maybe unknown which.
            KafkaError: something did not arrive.
        """
        futures: list[Any] = []
        try:
            for output in outputs:
                futures.append(self._send(output))  # noqa: PERF401 - those sent before an error
            self._beat()
            self._flush()
        except KafkaError:
            # The first refusal ends the transaction; later ones have no reason of their own.
            self._raise_refusal(futures)
            raise
        self._raise_refusal(futures)
        for future in futures:
            if not future.succeeded():
                self._await(future, None)
        self._beat()

    def send_singly(self, outputs: Sequence[Output]) -> None:
        """Send one after the other, each when the last has arrived: slow, but tells who is refused.

        Raises:
            RecordRefusedError: the broker refuses this record.
            KafkaError: something did not arrive.
        """
        for output in outputs:
            future = self._send(output)
            self._flush()
            self._await(future, position_of(output))
            self._beat()

    @staticmethod
    def _raise_refusal(futures: Sequence[Any]) -> None:
        for future in futures:
            if isinstance(error := future.exception, _REFUSALS):
                raise RecordRefusedError(error, None) from error

    def _send(self, output: Output) -> Any:
        topic, record, value, headers, key, timestamp, by_key = output
        count = self._counts.get(topic)
        if count is None:
            count = self._counts[topic] = len(self._producer.partitions_for(topic))
        # Where both topics have as many partitions an answer keeps its number, whichever
        # partitioner chose it: order and co-partitioning stay. Elsewhere a key decides as the
        # default partitioner would, and messages without one keep their order.
        if key is None or (count == self._inputs and not by_key):
            partition = record.partition % count
        else:
            partition = (murmur2(key) & 0x7FFFFFFF) % count
        try:
            return self._producer.send(topic, value, key, headers, partition, timestamp)
        except (MessageSizeTooLargeError, *_UNWRITABLE) as error:
            raise RecordRefusedError(error, position_of(output)) from error

    def _flush(self) -> None:
        try:
            self._producer.flush(timeout=DELIVERY_TIMEOUT)
        except UnknownError:
            # A batch was split because the topic's limit is below ours; its parts are under way.
            log.debug("a produced batch was split")

    def _await(self, future: Any, position: Position | None) -> None:
        try:
            future.get(timeout=DELIVERY_TIMEOUT)
        except _REFUSALS as error:
            raise RecordRefusedError(error, position) from error
