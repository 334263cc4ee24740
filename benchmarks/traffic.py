"""A mixed stream of records for workers."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import msgspec
from confluent_kafka import Producer

from benchmarks import documents
from stream_dedup.generate import GeneratedDocument, StreamShape, generate
from tests.hostile.catalogue import CATALOGUE
from tests.services.kafka import KafkaBroker, Topics

#: One record in so many is hostile, a tombstone, a large and a very large document.
HOSTILE, TOMBSTONE, LARGE, LARGEST = 50, 40, 200, 4000
#: Texts that a large and a very large document are made of; the largest is below 900,000 bytes.
_LARGE, _LARGEST = 100, 950
#: A tombstone names the document so many before it.
_BEFORE = 300
#: Hostile values beyond that are left out, so that the rate in bytes stays even.
_HOSTILE_BYTES = 100_000
#: Seconds between two looks at how many records are due.
TICK_SECONDS = 0.02
#: Seconds that a record may wait for its broker.
_PATIENCE_MS = 300_000


class Message(NamedTuple):
    """An input record."""

    key: bytes
    value: bytes | None


def plain(stream: Iterable[GeneratedDocument], prefix: str) -> Iterator[Message]:
    """Yield the records of documents."""
    for document in stream:
        renamed = msgspec.structs.replace(document, id=f"{prefix}-{document.id}")
        yield Message(renamed.id.encode(), documents.encode(renamed))


def mixed(seed: int) -> Iterator[Message]:
    """Yield records for ever: documents, copies, tombstones, hostile and large ones."""
    values = [
        one.value
        for one in CATALOGUE
        if one.part == "value" and one.value and len(one.value) < _HOSTILE_BYTES
    ]
    shape = StreamShape(documents=10**12, edits=documents.EDITS, seed=seed)
    recent: deque[GeneratedDocument] = deque(maxlen=_LARGEST)
    for number, document in enumerate(generate(shape), 1):
        recent.append(document)
        yield Message(document.id.encode(), documents.encode(document))
        if number % HOSTILE == 0:
            yield Message(b"hostile-%d" % number, values[number // HOSTILE % len(values)])
        if number % TOMBSTONE == 0 and number > _BEFORE:
            yield Message(b"doc-%08d" % (number - _BEFORE), None)
        for name, every, most in (("large", LARGE, _LARGE), ("largest", LARGEST, _LARGEST)):
            if number % every == 0:
                text = " ".join(one.text for one in list(recent)[-most:])
                key = f"{name}-{number}"
                yield Message(key.encode(), msgspec.json.encode({"id": key, "text": text}))


class Sender:
    """Produces records at a rate, over all partitions in turn."""

    def __init__(self, broker: KafkaBroker, topics: Topics) -> None:
        self._topics = topics
        self._producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "enable.idempotence": True,
                "compression.type": "lz4",
                "linger.ms": 20,
                "message.max.bytes": 2_000_000,
                "message.timeout.ms": _PATIENCE_MS,
                "queue.buffering.max.messages": 1_000_000,
                "log_level": 0,
            }
        )
        self.sent = 0

    def send(
        self,
        messages: Iterator[Message],
        rate: float,
        going: Callable[[], bool] = lambda: True,
        note: Callable[[Message], None] = lambda _: None,
    ) -> None:
        """Produce so many records a second while ``going`` and while there are some."""
        began, done = time.monotonic(), 0
        while going():
            due = int((time.monotonic() - began) * rate) + 1
            while done < due:
                message = next(messages, None)
                if message is None:
                    self.flush()
                    return
                self._send(message)
                note(message)
                done += 1
            self._producer.poll(TICK_SECONDS)
        self.flush()

    def send_all(self, messages: Iterable[Message]) -> None:
        """Produce as fast as it goes."""
        for message in messages:
            self._send(message)
        self.flush()

    def flush(self) -> None:
        """Wait until all has arrived."""
        if self._producer.flush(_PATIENCE_MS / 1000):
            msg = "the broker did not take the records"
            raise TimeoutError(msg)

    def _send(self, message: Message) -> None:
        partition = self.sent % self._topics.partitions
        self.sent += 1
        while True:
            try:
                self._producer.produce(
                    self._topics.input, message.value, message.key, partition=partition
                )
            except BufferError:
                self._producer.poll(TICK_SECONDS)
            else:
                return
