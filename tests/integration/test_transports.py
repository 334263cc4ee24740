"""Both Kafka transports, without a worker around them: the same topics, and the same promises."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, Literal
from unittest import mock

import confluent_kafka
import pytest
from confluent_kafka import Consumer
from kafka import KafkaConsumer, KafkaProducer, TopicPartition  # type: ignore[import-untyped]
from kafka.admin import ConfigResource, KafkaAdminClient  # type: ignore[import-untyped]
from kafka.structs import OffsetAndMetadata  # type: ignore[import-untyped]

from stream_dedup.settings import Settings
from stream_dedup.stream import transactional
from stream_dedup.stream.clients import open_transport
from stream_dedup.stream.transport import Output, PublishError, Record, Transport
from tests.services.kafka import KafkaBroker, Topics
from tests.services.worker import settings_for

Name = Literal["kafka-python", "confluent"]
both = pytest.mark.parametrize("name", ["kafka-python", "confluent"])

NOW = 1_763_700_000_000
#: Key, value, headers and timestamp: all that a record can be.
RECORDS: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]], int]] = [
    (b"foobar", b"{}", [], NOW),
    (None, b"no key", [("trace", b"\xff"), ("trace", b"2"), ("ä", b"")], NOW + 1),
    (b"", b"empty key", [], 1),
    (b"tombstone", None, [], NOW),
    (b"empty", b"", [], NOW),
    (None, random.Random(3).randbytes(600_000), [], NOW),
    *((str(n).encode(), b"x" * n, [("n", str(n).encode())], NOW + n) for n in range(300)),
    *((None, b"y" * n, [], NOW - n) for n in range(30)),
]


def opened(settings: Settings, identity: str = "a") -> Transport:
    return open_transport(settings, f"{settings.group}-{identity}")


def send(kafka: KafkaBroker, topics: Topics, records: Sequence[Any] = RECORDS) -> None:
    with closing(KafkaProducer(bootstrap_servers=kafka.bootstrap, linger_ms=20)) as producer:
        for number, (key, value, headers, timestamp) in enumerate(records):
            partition = number % topics.partitions
            producer.send(topics.input, value, key, headers, partition, timestamp)


def polled(transport: Transport, count: int) -> list[Record]:
    """Poll until there are records, at most so many."""
    deadline = time.monotonic() + 30
    while not (records := list(transport.poll())):
        assert time.monotonic() < deadline
    assert len(records) <= count
    return records


def answers(topic: str, records: Sequence[Record]) -> list[Output]:
    return [
        Output(topic, r, r.value, [(n, v or b"") for n, v in r.headers], r.key, r.timestamp)
        for r in records
    ]


def copy(transport: Transport, topic: str, count: int) -> None:
    """Publish every input record as it came."""
    while count:
        records = polled(transport, count)
        transport.publish(answers(topic, records))
        count -= len(records)


def read(kafka: KafkaBroker, topic: str, partitions: int) -> list[list[Any]]:
    """Return what a committed reader sees of each partition, in order."""
    consumer = KafkaConsumer(
        bootstrap_servers=kafka.bootstrap,
        group_id=None,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    with closing(consumer):
        places = [TopicPartition(topic, number) for number in range(partitions)]
        consumer.assign(places)
        ends = consumer.end_offsets(places)
        found: list[list[Any]] = [[] for _ in places]
        while any(consumer.position(place) < ends[place] for place in places):
            for place, records in consumer.poll(200).items():
                found[place.partition] += [
                    (r.key, r.value, r.headers, r.timestamp) for r in records
                ]
        return found


@pytest.fixture
def places(kafka: KafkaBroker, topics: Callable[..., Topics]) -> Topics:
    return topics(partitions=2)


class TestTheSameTopics:
    @pytest.mark.parametrize("partitions", [2, 5])
    def test_what_goes_in_comes_out_and_in_the_same_places(
        self, kafka: KafkaBroker, places: Topics, partitions: int
    ) -> None:
        send(kafka, places)
        found = {}
        for name in ("kafka-python", "confluent"):
            target = f"{places.output}-{name}-{partitions}"
            kafka.create([target], partitions)
            settings = settings_for(name, kafka, places, batch_documents=100)
            with closing(opened(settings)) as transport:
                copy(transport, target, len(RECORDS))
            found[name] = read(kafka, target, partitions)

        # Where input partitions share an output partition, they may be read in any order.
        one, other = ([sorted(map(repr, records)) for records in found[name]] for name in found)
        assert one == other
        assert sum(map(len, one)) == len(RECORDS)
        if partitions == places.partitions:
            for records in found.values():
                for number, came in enumerate(records):
                    assert came == [
                        (key, value, headers, at)
                        for key, value, headers, at in RECORDS[number :: places.partitions]
                    ]

    @both
    def test_the_beginning_of_time(self, kafka: KafkaBroker, places: Topics, name: Name) -> None:
        """librdkafka takes 0 for "now"; a millisecond is the nearest that it can say."""
        send(kafka, places, [(b"k", b"v", [], 0)])

        with closing(opened(settings_for(name, kafka, places))) as transport:
            copy(transport, places.output, 1)

        ((_, _, _, timestamp),) = read(kafka, places.output, 2)[0]
        assert timestamp == {"kafka-python": 0, "confluent": 1}[name]

    def test_what_goes_by_its_key_does_so_everywhere(
        self, kafka: KafkaBroker, places: Topics
    ) -> None:
        """One key is in one partition, wherever its records were and however many there are."""
        records: list[Any] = [(b"key-%d" % (n // 4), b"%d" % n, [], NOW) for n in range(40)]
        send(kafka, places, records)
        found = {}
        for name in ("kafka-python", "confluent"):
            target = f"{places.output}-{name}"
            kafka.create([target], places.partitions)
            with closing(opened(settings_for(name, kafka, places))) as transport:
                count = len(records)
                while count:
                    batch = polled(transport, count)
                    outputs = answers(target, batch)
                    transport.publish([output._replace(by_key=True) for output in outputs])
                    count -= len(batch)
            partitions = read(kafka, target, places.partitions)
            found[name] = [{key for key, *_ in partition} for partition in partitions]

        assert found["kafka-python"] == found["confluent"]
        one, other = found["confluent"]
        assert one
        assert other
        assert not one & other


@both
class TestPromises:
    def test_a_refused_record_is_named_and_nothing_is_published(
        self, kafka: KafkaBroker, places: Topics, name: Name
    ) -> None:
        send(kafka, places, RECORDS[:6])
        with closing(opened(settings_for(name, kafka, places))) as transport:
            refused: dict[Any, str] = {}
            while not refused:
                outputs = answers(places.output, polled(transport, 6))
                large = random.Random(5).randbytes(2_000_000)
                outputs[0] = outputs[0]._replace(value=large)
                with pytest.raises(PublishError) as caught:
                    transport.publish(outputs)
                refused = dict(caught.value.refused or {})
            first = outputs[0].record
            assert list(refused) == [(first.topic, first.partition, first.offset)]
            assert read(kafka, places.output, 2) == [[], []]

            copy(transport, places.output, 6)

        assert [len(records) for records in read(kafka, places.output, 2)] == [3, 3]

    def test_a_topic_that_takes_small_batches_only(
        self, kafka: KafkaBroker, places: Topics, name: Name
    ) -> None:
        with KafkaAdminClient(bootstrap_servers=kafka.bootstrap) as admin:
            limit = {"max.message.bytes": "60000"}
            admin.alter_configs([ConfigResource("TOPIC", places.output, limit)])
        bytes_ = random.Random(1).randbytes
        send(kafka, places, [(None, bytes_(20_000), [], NOW) for _ in range(20)])

        with closing(opened(settings_for(name, kafka, places, batch_documents=5))) as transport:
            count = 20
            while count:
                records = polled(transport, count)
                refused: dict[Any, str] = {}
                try:
                    transport.publish(answers(places.output, records))
                    count -= len(records)
                except PublishError as error:
                    refused = dict(error.refused or {})
                assert refused == {}

        assert [len(records) for records in read(kafka, places.output, 2)] == [10, 10]

    def test_who_lost_the_partitions_publishes_nothing(
        self, kafka: KafkaBroker, places: Topics, name: Name
    ) -> None:
        send(kafka, places, RECORDS[:6])
        settings = settings_for(name, kafka, places)
        with closing(opened(settings, "late")) as late:
            outputs = answers(places.output, polled(late, 6))
            # What a worker that was away for a while finds: others have done its work.
            late_consumer: Any = late
            membership = late_consumer._membership
            late_consumer._consumer.close()
            late_consumer._membership = membership
            with closing(opened(settings, "early")) as early:
                copy(early, places.output, 6)
                late_consumer._recover = lambda *, fenced: None
                with pytest.raises(PublishError, match=r"(?i)generation|member|commitfailed"):
                    late.publish(outputs)
            late_consumer._consumer = _Closed()

        assert [len(records) for records in read(kafka, places.output, 2)] == [3, 3]

    def test_the_lag_is_none_at_the_end(
        self, kafka: KafkaBroker, places: Topics, name: Name
    ) -> None:
        send(kafka, places, RECORDS[:6])
        with closing(opened(settings_for(name, kafka, places))) as transport:
            assert not transport.joined()
            copy(transport, places.output, 6)
            assert transport.joined()
            deadline = time.monotonic() + 30
            while set(transport.lag().values()) != {0} or len(transport.lag()) != 2:
                transport.poll()
                assert time.monotonic() < deadline, transport.lag()

    def test_the_lag_counts_what_came_since_the_last_poll(
        self, kafka: KafkaBroker, places: Topics, name: Name
    ) -> None:
        many: list[Any] = [(None, b"x", [], NOW)] * 1000
        send(kafka, places, RECORDS[:6])
        with closing(opened(settings_for(name, kafka, places))) as transport:
            copy(transport, places.output, 6)
            send(kafka, places, many)

            assert sum(transport.lag().values()) == len(many)


class _Closed:
    def close(self, **_: object) -> None:
        """Nothing is left to be closed."""


class TestStaleOffsets:
    @both
    def test_offsets_before_what_was_answered_are_not_gone_back_to(
        self,
        kafka: KafkaBroker,
        topics: Callable[..., Topics],
        name: Name,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """A broker that has crashed tells such ones, for as long as it reads the last ones."""
        places = topics(partitions=1)
        send(kafka, places, RECORDS[-10:])
        with closing(opened(settings_for(name, kafka, places))) as transport:
            copy(transport, places.output, 10)
            commit(transport, places.input, 3)
            waits: list[float] = []

            def read_on(seconds: float) -> None:
                waits.append(seconds)
                commit(transport, places.input, 3 if len(waits) < 3 else 10)

            clock = mock.Mock(wraps=time, sleep=read_on)
            monkeypatch.setattr(transactional, "time", clock)
            transport._return_batch()  # type: ignore[attr-defined]
            send(kafka, places, RECORDS[-1:])

            assert [record.offset for record in polled(transport, 1)] == [10]
            assert len(waits) == 3


def commit(transport: Any, topic: str, offset: int) -> None:
    """Commit an offset of the group, as the member that the transport is."""
    consumer = transport._consumer
    if isinstance(consumer, Consumer):
        consumer.commit(
            offsets=[confluent_kafka.TopicPartition(topic, 0, offset)], asynchronous=False
        )
    else:
        consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(offset, "", -1)})
