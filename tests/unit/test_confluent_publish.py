"""Sending through a pretended producer of librdkafka: where messages go, and who is refused."""

from __future__ import annotations

from typing import Any, NamedTuple
from unittest import mock

import pytest
from confluent_kafka import KafkaError, KafkaException

from stream_dedup.settings import Settings
from stream_dedup.stream import confluent_publish
from stream_dedup.stream.confluent_clients import discard
from stream_dedup.stream.confluent_publish import Outbox
from stream_dedup.stream.transactional import RecordRefusedError
from stream_dedup.stream.transport import Output

TOO_LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
GONE = KafkaError(KafkaError._TRANSPORT)


def test_a_producer_that_was_fenced_can_be_discarded() -> None:
    """Found by the campaign of faults: it raises its fatal error at every call."""
    producer = mock.Mock()
    producer.poll.side_effect = KafkaException(KafkaError(KafkaError._FENCED))

    discard(producer)

    producer.purge.assert_called_once_with(blocking=False)


class Input(NamedTuple):
    """An input record."""

    partition: int
    key: bytes | None
    offset: int = 7
    topic: str = "documents"
    timestamp: int = 5
    value: bytes | None = b"{}"
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Found(NamedTuple):
    """What is known of a topic."""

    partitions: dict[int, None]
    error: None = None


class Listed(NamedTuple):
    """The answer to a question for topics."""

    topics: dict[str, Found]


class FakeProducer:
    """An output topic with ``partitions``, an input of 4; errors by the number of the message."""

    def __init__(self, partitions: int, errors: dict[int, KafkaError] | None = None) -> None:
        self.partitions = partitions
        self.errors = errors or {}
        self.on_failure: Any = None
        self.sent: list[tuple[int, int]] = []
        self.full = 0

    def produce(
        self, topic: str, value: Any, key: Any, partition: int, *, timestamp: int, headers: Any
    ) -> None:
        if self.full:
            self.full -= 1
            raise BufferError
        self.sent.append((partition, timestamp))

    def poll(self, timeout: float) -> int:
        return 0

    def flush(self, timeout: float) -> int:
        for number in range(len(self.sent)):
            if number in self.errors:
                self.on_failure(self.errors[number], None)
        return 0

    def list_topics(self, topic: str, timeout: float) -> Listed:
        count = 4 if topic == Settings().input_topic else self.partitions
        return Listed({topic: Found(dict.fromkeys(range(count)))})


def outbox(producer: FakeProducer) -> Outbox:
    def opened(_settings: Settings, _name: str, _bytes: int, *told: Any) -> FakeProducer:
        producer.on_failure, _ = told
        return producer

    with mock.patch.object(confluent_publish, "open_producer", opened):
        return Outbox(Settings(), "worker-0", 1000, lambda: None, lambda: False)


def outputs(*records: Input) -> list[Output]:
    return [Output("annotated", r, b"{}", [], r.key, r.timestamp) for r in records]


class TestPlaces:
    def test_with_as_many_partitions_an_answer_keeps_its_number(self) -> None:
        producer = FakeProducer(4)

        outbox(producer).send_all(outputs(Input(3, b"foobar"), Input(1, None)))

        assert producer.sent == [(3, 5), (1, 5)]

    def test_else_a_key_is_left_to_the_partitioner_and_the_rest_go_by_number(self) -> None:
        producer = FakeProducer(3)

        outbox(producer).send_all(outputs(Input(3, b"foobar"), Input(3, None)))

        assert producer.sent == [(-1, 5), (0, 5)]

    def test_no_timestamp_is_now_and_the_beginning_of_time_is_not(self) -> None:
        producer = FakeProducer(4)
        begun, undated = outputs(Input(0, None, timestamp=0), Input(0, None))

        outbox(producer).send_all([begun, undated._replace(timestamp=None)])

        assert producer.sent == [(0, 1), (0, 0)]

    def test_a_full_queue_is_waited_for(self) -> None:
        producer = FakeProducer(4)
        producer.full = 3

        outbox(producer).send_all(outputs(Input(0, None)))

        assert producer.sent == [(0, 5)]


class TestRefusals:
    def test_a_refusal_among_many_names_nobody(self) -> None:
        with pytest.raises(RecordRefusedError) as caught:
            outbox(FakeProducer(4, {1: TOO_LARGE})).send_all(
                outputs(Input(0, None), Input(1, None))
            )

        assert caught.value.position is None

    def test_another_failure_is_no_refusal(self) -> None:
        with pytest.raises(KafkaException):
            outbox(FakeProducer(4, {0: GONE})).send_all(outputs(Input(0, None)))
