"""Traps of the Kafka clients: each as the bare client has it, and as the transports do not."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, Literal

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition  # type: ignore[import-untyped]
from kafka.errors import KafkaError  # type: ignore[import-untyped]
from kafka.structs import (  # type: ignore[import-untyped]
    ConsumerGroupMetadata,
    OffsetAndMetadata,
)

from stream_dedup.stream.clients import open_transport
from stream_dedup.stream.kafka_clients import discard
from stream_dedup.stream.transport import Output, PublishError, Record, Transport
from tests.services.kafka import KafkaBroker, Topics
from tests.services.worker import settings_for

Name = Literal["kafka-python", "confluent"]
both = pytest.mark.parametrize("name", ["kafka-python", "confluent"])


@pytest.fixture
def places(kafka: KafkaBroker, topics: Callable[..., Topics]) -> Topics:
    return topics(partitions=2)


@contextmanager
def bare(kafka: KafkaBroker, name: str, **options: Any) -> Iterator[Any]:
    """Open a transactional producer of kafka-python as it comes."""
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id=name, **options)
    producer.init_transactions()
    try:
        yield producer
    finally:
        discard(producer)


def fill(kafka: KafkaBroker, topics: Topics, each: int = 3) -> None:
    with closing(KafkaProducer(bootstrap_servers=kafka.bootstrap)) as producer:
        for partition in range(topics.partitions):
            for number in range(each):
                producer.send(topics.input, b"%d" % number, partition=partition)


def polled(transport: Transport) -> list[Record]:
    deadline = time.monotonic() + 30
    while not (records := list(transport.poll())):
        assert time.monotonic() < deadline
    return records


def answers(topics: Topics, records: list[Record]) -> list[Output]:
    return [Output(topics.output, r, r.value, [], r.key, r.timestamp) for r in records]


def committed(kafka: KafkaBroker, group: str, topics: Topics) -> dict[int, int]:
    consumer = KafkaConsumer(bootstrap_servers=kafka.bootstrap, group_id=group)
    with closing(consumer):
        found = {
            number: consumer.committed(TopicPartition(topics.input, number))
            for number in range(topics.partitions)
        }
    return {number: offset for number, offset in found.items() if offset is not None}


def visible(kafka: KafkaBroker, topics: Topics) -> int:
    """Count what a committed reader sees of the output."""
    consumer = KafkaConsumer(
        bootstrap_servers=kafka.bootstrap,
        group_id=None,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    with closing(consumer):
        all_places = [TopicPartition(topics.output, n) for n in range(topics.partitions)]
        consumer.assign(all_places)
        ends = consumer.end_offsets(all_places)
        count = 0
        while any(consumer.position(place) < ends[place] for place in all_places):
            count += sum(map(len, consumer.poll(200).values()))
        return count


def publish_all(transport: Transport, topics: Topics, count: int) -> None:
    while count:
        records = polled(transport)
        transport.publish(answers(topics, records))
        count -= len(records)


class TestOffsetsOfAnAbortedTransaction:
    def test_bare_they_are_committed_by_the_next(self, kafka: KafkaBroker, places: Topics) -> None:
        group = f"{places.input}-bare"
        aborted, done = (TopicPartition(places.input, number) for number in range(2))
        with bare(kafka, group) as producer:
            producer.begin_transaction()
            stale = ConsumerGroupMetadata(group, 7, "gone", None)
            with pytest.raises(KafkaError):
                producer.send_offsets_to_transaction({aborted: OffsetAndMetadata(3, "", -1)}, stale)
            producer.abort_transaction()
            producer.begin_transaction()
            nobody = ConsumerGroupMetadata(group, -1, "", None)
            producer.send_offsets_to_transaction({done: OffsetAndMetadata(2, "", -1)}, nobody)
            producer.commit_transaction()

        assert committed(kafka, group, places) == {0: 3, 1: 2}

    @both
    def test_they_are_gone(self, kafka: KafkaBroker, places: Topics, name: Name) -> None:
        fill(kafka, places)
        settings = settings_for(name, kafka, places)
        with closing(open_transport(settings, settings.group)) as transport:
            inside: Any = transport
            records = polled(transport)
            membership, inside._membership = inside._membership, _stale(inside._membership)
            with pytest.raises(PublishError):
                transport.publish(answers(places, records))
            inside._membership = membership
            # Markers of attempts (ADR 31) stand at the beginning of each partition.
            assert not any(committed(kafka, settings.group, places).values())

            inside._width = 1
            (first,) = polled(transport)
            transport.publish(answers(places, [first]))
            answered = {first.partition: first.offset + 1}
            stands = committed(kafka, settings.group, places)
            assert {place: offset for place, offset in stands.items() if offset} == answered
            publish_all(transport, places, 5)

        assert visible(kafka, places) == 6


def _stale(membership: Any) -> Any:
    """Return the membership of a generation that is over."""
    if isinstance(membership, ConsumerGroupMetadata):
        return membership._replace(generation_id=membership.generation_id + 7)
    # librdkafka's is opaque bytes: a magic word of 8, then the generation.
    written = bytes(membership)
    generation = int.from_bytes(written[8:12], "little") + 7
    return written[:8] + generation.to_bytes(4, "little") + written[12:]


class TestACommitThatOnlySeemsToSucceed:
    def test_bare_it_says_nothing(self, kafka: KafkaBroker, places: Topics) -> None:
        """The broker finds a gap in the sequence; the client gets a new epoch, and forgets."""
        with bare(kafka, f"{places.output}-bare") as producer:
            producer.begin_transaction()
            producer.send(places.output, b"a", partition=0).get(30)
            _lose_a_number(producer, places.output)
            lost = producer.send(places.output, b"b", partition=0)
            producer.commit_transaction()

            assert lost.failed()
        assert visible(kafka, places) == 0

    def test_a_batch_that_was_lost_is_published_again(
        self, kafka: KafkaBroker, places: Topics
    ) -> None:
        fill(kafka, places)
        settings = settings_for("kafka-python", kafka, places)
        with closing(open_transport(settings, settings.group)) as transport:
            publish_all(transport, places, 6)
            fill(kafka, places)
            records = polled(transport)
            inside: Any = transport
            for number in range(places.partitions):
                _lose_a_number(inside._producer, places.output, number)
            with pytest.raises(PublishError):
                transport.publish(answers(places, records))
            assert visible(kafka, places) == 6
            publish_all(transport, places, 6)

        assert visible(kafka, places) == 12

    @both
    def test_who_was_fenced_publishes_nothing(
        self, kafka: KafkaBroker, places: Topics, name: Name
    ) -> None:
        fill(kafka, places)
        settings = settings_for(name, kafka, places)
        with closing(open_transport(settings, settings.group)) as transport:
            records = polled(transport)
            with bare(kafka, settings.group):
                pass
            with pytest.raises(PublishError):
                transport.publish(answers(places, records))
            assert visible(kafka, places) == 0
            publish_all(transport, places, 6)

        assert visible(kafka, places) == 6
        assert committed(kafka, settings.group, places) == {0: 3, 1: 3}


def _lose_a_number(producer: Any, topic: str, partition: int = 0) -> None:
    producer._transaction_manager.increment_sequence_number(TopicPartition(topic, partition), 5)


#: Sends offsets with a time limit of 2 s, before and after the broker was away; tells whether that
#: ended within 20 s.
_SENDING_OFFSETS = """
import os, sys, threading, time
from confluent_kafka import Consumer, Producer, TopicPartition

bootstrap, topic = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bare", "log_level": 0})
producer = Producer(
    {
        "bootstrap.servers": bootstrap,
        "transactional.id": "bare",
        "log_level": 0,
    }
)

def publish():
    producer.begin_transaction()
    producer.produce(topic, b"1")
    assert not producer.flush(60)
    group = consumer.consumer_group_metadata()
    began = time.monotonic()
    call = lambda: producer.send_offsets_to_transaction([TopicPartition(topic, 0, 1)], group, 2)
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(20)
    print("waits" if thread.is_alive() else "done", flush=True)

producer.init_transactions(60)
publish()
producer.commit_transaction()
sys.stdin.readline()
publish()
os._exit(0)
"""


def _sending_offsets(broker: KafkaBroker, topics: Topics) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _SENDING_OFFSETS, broker.bootstrap, topics.output],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _told(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


class TestWaitsWithoutATimeout:
    def test_bare_a_commit_outlasts_every_limit(self) -> None:
        limits = dict.fromkeys(
            ["delivery_timeout_ms", "max_block_ms", "transaction_timeout_ms"], 2000
        )
        with KafkaBroker() as broker:
            topics = broker.create_topics(partitions=1)
            with bare(broker, "bare", request_timeout_ms=1000, **limits) as producer:
                producer.begin_transaction()
                producer.send(topics.output, b"a").get(30)
                broker.kill()
                # It is left behind: not even a producer that ends lets go of it.
                waiting = threading.Thread(target=producer.commit_transaction, daemon=True)
                waiting.start()
                waiting.join(8)
                assert waiting.is_alive()

    def test_bare_offsets_wait_beyond_their_limit(self) -> None:
        """librdkafka issue 5511; when this fails, look whether the bound is needed still."""
        with KafkaBroker() as broker:
            topics = broker.create_topics(partitions=1)
            with _sending_offsets(broker, topics) as process:
                assert _told(process) == "done"
                broker.kill()
                time.sleep(12)
                broker.start()
                assert process.stdin is not None
                process.stdin.write("\n")
                process.stdin.flush()
                assert _told(process) == "waits"

    @both
    def test_who_is_to_end_does_not_wait(self, name: Name) -> None:
        with KafkaBroker() as broker:
            topics = broker.create_topics(partitions=2)
            fill(broker, topics)
            settings = settings_for(name, broker, topics)
            asked = float("inf")
            transport = open_transport(
                settings, settings.group, stopping=lambda: time.monotonic() > asked
            )
            try:
                with closing(transport):
                    records = polled(transport)
                    broker.pause()
                    asked = time.monotonic() + 1
                    with pytest.raises(PublishError):
                        transport.publish(answers(topics, records))
                assert time.monotonic() - asked < 12
            finally:
                broker.resume()
