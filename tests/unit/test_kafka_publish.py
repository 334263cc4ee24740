"""Sending through a pretended producer: where messages go, and who is refused."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from kafka.errors import KafkaError, MessageSizeTooLargeError  # type: ignore[import-untyped]

from stream_dedup.stream.kafka_publish import Publishing
from stream_dedup.stream.transactional import RecordRefusedError
from stream_dedup.stream.transport import Output


class Input(NamedTuple):
    """An input record."""

    partition: int
    key: bytes | None
    offset: int = 7
    topic: str = "documents"
    timestamp: int = 0
    value: bytes | None = b"{}"
    headers: tuple[tuple[str, bytes | None], ...] = ()


class FakeProducer:
    """A topic with ``partitions``, and errors by the number of the message."""

    def __init__(self, partitions: int, errors: dict[int, Exception] | None = None) -> None:
        self.partitions = partitions
        self.errors = errors or {}
        self.sent: list[int] = []
        self.broken_from: int | None = None
        self.broken_by: Exception = KafkaError("at least one previous request has failed")

    def partitions_for(self, topic: str) -> set[int]:
        return set(range(self.partitions))

    def send(  # noqa: PLR0917 - as the client has it
        self, topic: str, value: Any, key: Any, headers: Any, partition: int, at: Any
    ) -> Any:
        if len(self.sent) == self.broken_from:
            raise self.broken_by
        self.sent.append(partition)
        return FakeFuture(self.errors.get(len(self.sent) - 1))

    def flush(self, timeout: float) -> None:
        pass


class FakeFuture(NamedTuple):
    """The outcome of one message."""

    exception: Exception | None

    def succeeded(self) -> bool:
        return self.exception is None

    def get(self, timeout: float) -> None:
        if self.exception is not None:
            raise self.exception


def outputs(*records: Input) -> list[Output]:
    return [Output("annotated", record, b"{}", [], record.key, 0) for record in records]


def publish(producer: FakeProducer, *records: Input, inputs: int = 4) -> Publishing:
    publishing = Publishing(producer, inputs, lambda: None)
    publishing.send_all(outputs(*records))
    return publishing


class TestPartitions:
    def test_with_as_many_partitions_an_answer_keeps_its_number(self) -> None:
        producer = FakeProducer(4)

        publish(producer, Input(3, b"foobar"), Input(1, None))

        assert producer.sent == [3, 1]

    def test_else_a_key_goes_where_the_default_partitioner_puts_it(self) -> None:
        producer = FakeProducer(1000)

        publish(producer, Input(3, b"foobar"), Input(3, b"a-little-bit-long-string"))

        # murmur2 of these strings, as the Java client's own tests give it.
        assert producer.sent == [(-790332482 & 0x7FFFFFFF) % 1000, (-985981536 & 0x7FFFFFFF) % 1000]

    def test_and_a_message_without_a_key_to_its_number_modulo(self) -> None:
        producer = FakeProducer(3)

        publish(producer, Input(0, None), Input(3, None), Input(2, None))

        assert producer.sent == [0, 0, 2]


class TestRefusals:
    def test_a_refusal_among_many_names_nobody(self) -> None:
        producer = FakeProducer(4, {1: MessageSizeTooLargeError("x")})

        with pytest.raises(RecordRefusedError) as caught:
            publish(producer, Input(0, None), Input(1, None))

        assert caught.value.position is None

    def test_one_by_one_the_refused_record_is_named(self) -> None:
        producer = FakeProducer(4, {1: MessageSizeTooLargeError("x")})

        with pytest.raises(RecordRefusedError) as caught:
            Publishing(producer, 4, lambda: None).send_singly(
                outputs(Input(0, None), Input(1, None), Input(2, None))
            )

        assert caught.value.position == ("documents", 1, 7)
        assert producer.sent == [0, 1]

    def test_it_is_found_among_those_that_failed_because_of_it(self) -> None:
        generic = KafkaError("at least one previous transactional request has failed")
        producer = FakeProducer(4, {0: generic, 1: MessageSizeTooLargeError("x"), 2: generic})

        with pytest.raises(RecordRefusedError, match="MessageSizeTooLarge"):
            publish(producer, *[Input(0, None)] * 3)

    def test_it_is_found_when_what_comes_next_cannot_be_sent(self) -> None:
        producer = FakeProducer(4, {0: MessageSizeTooLargeError("x")})
        producer.broken_from = 1

        with pytest.raises(RecordRefusedError, match="MessageSizeTooLarge"):
            publish(producer, *[Input(0, None)] * 3)

    @pytest.mark.parametrize("error", [TypeError("x"), ValueError("x"), AssertionError("x")])
    def test_what_the_client_cannot_write_down_is_named(self, error: Exception) -> None:
        producer = FakeProducer(4)
        producer.broken_from, producer.broken_by = 1, error

        with pytest.raises(RecordRefusedError) as caught:
            publish(producer, Input(0, None), Input(1, None))

        assert caught.value.position == ("documents", 1, 7)

    def test_another_failure_is_no_refusal(self) -> None:
        with pytest.raises(KafkaError, match="gone"):
            publish(FakeProducer(4, {0: KafkaError("gone")}), Input(0, None))


def test_each_record_that_arrives_by_itself_is_progress() -> None:
    """Whoever is silent for long is taken for stuck, and ended."""
    beats: list[None] = []

    Publishing(FakeProducer(4), 4, lambda: beats.append(None)).send_singly(
        outputs(*[Input(0, None)] * 3)
    )

    assert len(beats) == 3
