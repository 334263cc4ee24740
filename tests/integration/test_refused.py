"""Messages whose answers the broker refuses, over a real broker and both transports.

What decides is a stand-in, so that nothing but Kafka takes part; the worker as a whole is in
``test_worker``.
"""

from __future__ import annotations

import base64
import random
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, Literal

import pytest
import zstandard
from kafka import KafkaConsumer, TopicPartition  # type: ignore[import-untyped]
from kafka.admin import ConfigResource, KafkaAdminClient  # type: ignore[import-untyped]

from stream_dedup.settings import Settings
from stream_dedup.stream import transactional
from stream_dedup.stream.clients import open_transport
from stream_dedup.stream.loop import Loop
from stream_dedup.types import Decision, Document, DocumentId, Method, Status
from tests.services.batches import Header, record, sealed
from tests.services.batches import send as send_batch
from tests.services.kafka import KafkaBroker, Topics
from tests.services.worker import settings_for

Name = Literal["kafka-python", "confluent"]
both = pytest.mark.parametrize("name", ["kafka-python", "confluent"])

#: Value and headers.
Input = tuple[bytes, Sequence[Header]]

#: 1.07 MB that lz4 does not make smaller; many of them are 870 KB in one batch of Zstandard.
WIDE = base64.b64encode(random.Random(17).randbytes(800_000))


class Deciding:
    """Calls everything an original."""

    def decide(self, documents: Sequence[Document]) -> list[Decision]:
        return [
            Decision(Status.ORIGINAL, "a" * 24, one.id, Method.MINHASH, "b" * 16)
            for one in documents
        ]

    def forget(self, ids: Sequence[DocumentId]) -> list[int]:
        return [0] * len(ids)

    def settle(self) -> None:
        """Nothing waits."""

    def discard(self) -> None:
        """Nothing waits."""


@pytest.fixture
def places(kafka: KafkaBroker, topics: Callable[..., Topics]) -> Topics:
    return topics(partitions=1)


def limit(kafka: KafkaBroker, topic: str, **config: str) -> None:
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap) as admin:
        written = {name.replace("_", "."): value for name, value in config.items()}
        admin.alter_configs([ConfigResource("TOPIC", topic, written)])


def send(kafka: KafkaBroker, topics: Topics, records: Sequence[Input]) -> int:
    """Send value and headers of each in one batch; return its bytes."""
    content = b"".join(record(n, *one) for n, one in enumerate(records))
    written = sealed("zstd", len(records), zstandard.ZstdCompressor(level=9).compress(content))
    for _ in range(50):  # a topic that is new may have no leader that knows of it
        try:
            send_batch(kafka.bootstrap, topics.input, written)
        except AssertionError:
            time.sleep(0.1)
        else:
            return len(written)
    pytest.fail("the broker takes no batch")


def work_off(settings: Settings, count: int, seconds: float = 50) -> int:
    """Let a worker's loop answer so many records; return how many turns failed."""
    deadline = time.monotonic() + seconds
    answered = failed = 0
    with closing(open_transport(settings, settings.group)) as transport:
        loop = Loop(settings, transport, Deciding(), time)
        while answered < count and time.monotonic() < deadline:
            answered += (done := loop.step())
            failed += not done
    assert answered == count, f"{answered} of {count} records were answered in {seconds} s"
    return failed


def read(kafka: KafkaBroker, topic: str) -> list[Any]:
    """Return what a committed reader sees."""
    place = TopicPartition(topic, 0)
    with closing(
        KafkaConsumer(
            bootstrap_servers=kafka.bootstrap,
            group_id=None,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
    ) as consumer:
        consumer.assign([place])
        (end,) = consumer.end_offsets([place]).values()
        found: list[Any] = []
        while consumer.position(place) < end:
            for records in consumer.poll(200).values():
                found += records
        return found


def small(count: int) -> list[Input]:
    return [(b'{"text": "t"}', [])] * count


def answered(kafka: KafkaBroker, topics: Topics) -> list[int]:
    sources = [dict(one.headers)["dedup-source"] for one in read(kafka, topics.output)]
    return [int(source.rpartition(b"/")[2]) for source in sources]


def reasons(kafka: KafkaBroker, topics: Topics) -> list[tuple[bytes, int]]:
    letters = [dict(one.headers) for one in read(kafka, topics.dead_letter)]
    return [(one["dead-letter-reason"], int(one["source-offset"])) for one in letters]


@both
@pytest.mark.parametrize("may_ask", [True, False])
def test_one_compressed_batch_of_many_refused(
    kafka: KafkaBroker,
    places: Topics,
    name: Name,
    monkeypatch: pytest.MonkeyPatch,
    *,
    may_ask: bool,
) -> None:
    """The attack: 30 records in a batch of 870 KB, whose headers are too large for the output."""
    wide: list[Input] = [(b'{"text": "t"}', [(b"h", WIDE)])] * (30 if may_ask else 2)
    records = [*small(2), *wide[:1], *small(1), *wide[1:], *small(2)]
    if not may_ask:
        monkeypatch.setattr(transactional, "read_limits", lambda _settings, _topics: {})
    assert send(kafka, places, records) < 900_000

    work_off(settings_for(name, kafka, places), len(records))

    refused = [number for number, (_, headers) in enumerate(records) if headers]
    assert reasons(kafka, places) == [(b"refused", number) for number in refused]
    assert answered(kafka, places) == [n for n in range(len(records)) if n not in refused]


@both
def test_a_dead_letter_that_is_refused_although_it_is_cut(
    kafka: KafkaBroker, places: Topics, name: Name
) -> None:
    limit(kafka, places.dead_letter, max_message_bytes="2000", cleanup_policy="compact")
    noise = base64.b64encode(random.Random(3).randbytes(6000))
    send(kafka, places, [*small(1), (b"no JSON " + noise, [(b"h", noise)]), *small(1)])

    work_off(settings_for(name, kafka, places), 3)

    (letter,) = read(kafka, places.dead_letter)
    said = dict(letter.headers)
    assert said["dead-letter-reason"] == b"refused"
    assert said["dead-letter-truncated"] == b"value,key,headers"
    assert letter.key == f"{places.input}/0/1".encode()
    assert answered(kafka, places) == [0, 2]


@both
def test_a_compacted_output_takes_no_message_without_a_key(
    kafka: KafkaBroker, places: Topics, name: Name
) -> None:
    limit(kafka, places.output, cleanup_policy="compact")
    send(kafka, places, small(20))

    work_off(settings_for(name, kafka, places), 20)

    assert reasons(kafka, places) == [(b"refused", number) for number in range(20)]
