"""Batches of some KB that unpack to hundreds of MB: taken by the bare clients, not by a worker.

What each of them takes is measured in a process of its own, as the most memory that it ever had.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from stream_dedup.settings import Settings
from tests.services.batches import COMPRESSED, Codec, batch, long_record, record, send
from tests.services.kafka import KafkaBroker, Topics
from tests.services.worker import Worker, document

#: More than the limit of either client that has one, 128 MiB for Zstandard in librdkafka.
BOMB_BYTES = 150_000_000
MB = 1 << 20
compressed = pytest.mark.parametrize("codec", COMPRESSED)

#: Reads a topic to its end; prints the records and the most memory that there was, before and now.
_READER = """
import json, sys
from contextlib import closing
from stream_dedup.settings import Settings
from stream_dedup.stream.kafka_clients import open_reader
from kafka import KafkaConsumer, TopicPartition
from confluent_kafka import Consumer, TopicPartition as Place

def most():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))

def read_by_confluent(bootstrap, topic):
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic,
        "auto.offset.reset": "earliest", "enable.partition.eof": True})
    with closing(consumer):
        consumer.assign([Place(topic, 0, 0)])
        while (message := consumer.poll(30)) is not None and message.error() is None:
            yield message.offset(), len(message.value())

def read(consumer, topic):
    place = TopicPartition(topic, 0)
    with closing(consumer):
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        (end,) = consumer.end_offsets([place]).values()
        while consumer.position(place) < end:
            for records in consumer.poll(500).values():
                yield from ((one.offset, one.value and len(one.value)) for one in records)

kind, bootstrap, topic = sys.argv[1:]
before = most()
if kind == "confluent":
    found = read_by_confluent(bootstrap, topic)
elif kind == "kafka-python":
    found = read(KafkaConsumer(bootstrap_servers=bootstrap), topic)
else:
    found = read(open_reader(Settings(kafka_bootstrap=bootstrap), "read_committed"), topic)
found = list(found)
print(json.dumps({"before": before, "most": most(), "found": found}))
"""


def read_apart(kind: str, kafka: KafkaBroker, topic: str) -> tuple[list[Any], int]:
    """Return offsets and sizes of values, and the bytes that it took to read them."""
    command = [sys.executable, "-W", "ignore", "-c", _READER, kind, kafka.bootstrap, topic]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    return told["found"], told["most"] - told["before"]


def plant(kafka: KafkaBroker, codec: Codec, topic: str, size: int = BOMB_BYTES) -> int:
    """Send a bomb between two good records; return its bytes as sent."""
    good = batch("none", 1, iter([record(0, document(id="good", text="the same words"))]))
    bomb = batch(codec, 1, long_record(0, size))
    for one in (good, bomb, good):
        send(kafka.bootstrap, topic, one)
    return len(bomb)


@compressed
def test_the_bare_clients_take_it_and_ours_does_not(
    kafka: KafkaBroker, codec: Codec, topics: Callable[..., Topics]
) -> None:
    topic = topics(partitions=1).input + "-bomb"
    kafka.create([topic], 1, max_message_bytes="10000000")
    sent = plant(kafka, codec, topic)
    whole = [[0, 40], [1, BOMB_BYTES], [2, 40]]

    assert sent < BOMB_BYTES / 20
    found, taken = read_apart("kafka-python", kafka, topic)
    assert found == whole
    assert taken > 2 * BOMB_BYTES
    found, taken = read_apart("ours", kafka, topic)
    assert found == [[0, 40], [1, None], [2, 40]]
    # What was unpacked before it was too much, and what was fetched, several times over.
    assert taken < 1.25 * Settings().max_unpacked_bytes + 4 * sent + 24 * MB
    found, taken = read_apart("confluent", kafka, topic)
    if codec == "zstd":
        assert found == [[0, 40]]  # it says that it cannot unpack it
        assert taken < 150 * MB
    else:
        assert found == whole
        assert taken > 2 * BOMB_BYTES


@pytest.mark.parametrize("worker", ["kafka-python", "confluent"], indirect=True)
def test_a_worker_goes_on_behind_it(worker: Worker) -> None:
    """Of one that is too much for both; in one batch with others, and come to in its middle."""
    topics = worker.topics
    many = iter([record(n, bytes(BOMB_BYTES // 20)) for n in range(20)])
    good = iter([record(0, document(id="good", text="the same words"))])
    plant(worker.kafka, "zstd", topics.input)
    send(worker.kafka.bootstrap, topics.input, batch("zstd", 20, many))
    send(worker.kafka.bootstrap, topics.input, batch("zstd", 1, good))

    worker.start(batch_documents="8")
    annotated = worker.receive(topics.output, 3)
    letters = worker.receive(topics.dead_letter, 21)

    told = [dict(letter.headers) for letter in letters]
    assert [int(one["source-offset"]) for one in told] == [1, *range(3, 23)]
    assert {one["dead-letter-reason"] for one in told} == {b"unreadable"}
    assert {one["dead-letter-truncated"] for one in told} == {b"value,key,headers"}
    assert b"offsets 3 to 22" in told[1]["dead-letter-detail"]
    places = [dict(one.headers)["dedup-source"].rpartition(b"/")[2] for one in annotated]
    assert places == [b"0", b"2", b"23"]
    restarts = [v for name, v in worker.metrics().items() if "worker_restarts_total" in name]
    assert sum(restarts) == 0, worker.log.read_text()
    assert "Traceback" not in worker.log.read_text()
