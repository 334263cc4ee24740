"""Documents at a steady pace until SIGTERM, then what is left at once; a process of its own.

One message in some hundred is no document. Copies go to other partitions than their original, most
of them within seconds, so that different workers decide them, some at the same moment. From time
to time comes what has halted a partition once: a compressed batch of documents whose annotation is
too large for its topic, texts of combining marks, documents of one template.
"""

from __future__ import annotations

import argparse
import base64
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
from confluent_kafka import Producer

from stream_dedup.generate import GeneratedDocument, Kind, StreamShape, Truth, generate

#: What is no document, and one message in how many is that.
POISON = b"not JSON"
_POISON_EVERY = 199
#: Each kind of attack comes once in so many documents, behind so many of them.
_ATTACK_EVERY, _WIDE_AT, _TEMPLATE_AT, _MARKS_AT = 10_000, 1_000, 4_000, 7_000
#: How many messages an attack has.
_WIDE, _TEMPLATE, _MARKS = 30, 100, 5
#: A header of 1.07 MB that lz4, which the workers use, does not make smaller; zstd makes it fit,
#: and a batch of such messages takes hardly more than one.
_NOISE_BYTES = 800_000
#: Marks of each of two classes in a text of them: 100 KB in all.
_MARKS_EACH = 25_000
#: Words of a template, and of these such as differ from document to document. Two documents have
#: 162 shingles of 234 in common: a Jaccard similarity of .69.
_WORDS, _FIELDS = 200, range(8, 200, 16)
#: Header of an input record that must become a dead letter: the reason.
LETTER = "campaign-letter"
#: The stream has no end; it is left when enough has been sent.
_ENDLESS = 1_000_000_000
#: Messages between two looks at the clock.
_BURST = 20
#: Time that the last messages have to arrive, s.
_FLUSH_SECONDS = 120.0


class Message(NamedTuple):
    """What is sent.

    Attributes:
        value: the same.
        headers: the same.
        wide: whether it goes, with others, in one compressed batch.
    """

    value: bytes
    headers: Sequence[tuple[str, bytes]] = ()
    wide: bool = False


def messages(seed: int) -> Iterator[Message]:
    """Yield documents and what is none, without end.

    One changed word in 130 or more leaves also two copies of one original far above the threshold,
    so the truth demands the same groups whichever member comes first.
    """
    shape = StreamShape(
        documents=_ENDLESS, duplicate_share=0.5, edits=1, words=200, distance=2_000, seed=seed
    )
    noise = base64.b64encode(random.Random(seed).randbytes(_NOISE_BYTES))
    for number, made in enumerate(generate(shape)):
        if number % _POISON_EVERY == _POISON_EVERY - 1:
            yield Message(POISON, [(LETTER, b"not_json")])
        else:
            yield Message(msgspec.json.encode(made))
        times, place = divmod(number, _ATTACK_EVERY)
        if place == _WIDE_AT:
            refused = [(LETTER, b"refused"), ("noise", noise)]
            yield from [Message(msgspec.json.encode(made), refused, wide=True)] * _WIDE
        elif place == _TEMPLATE_AT:
            texts = [_filled_in(times, nth) for nth in range(_TEMPLATE)]
            yield from _originals(f"template-{times}", made.time, texts)
        elif place == _MARKS_AT:
            texts = [_of_marks(times * _MARKS + nth) for nth in range(_MARKS)]
            yield from _originals(f"marks-{times}", made.time, texts)


def _filled_in(template: int, nth: int) -> str:
    words = [f"template{template}word{number}" for number in range(_WORDS)]
    for field in _FIELDS:
        words[field] = f"field{nth}x{field}"
    return " ".join(words)


def _of_marks(nth: int) -> str:
    return "a" + "\u0301" * (_MARKS_EACH + nth) + "\u0316" * _MARKS_EACH


def _originals(name: str, time: str, texts: Sequence[str]) -> Iterator[Message]:
    for number, text in enumerate(texts):
        truth = Truth(f"{name}-{number}", Kind.ORIGINAL)
        yield Message(msgspec.json.encode(GeneratedDocument(truth.group, text, time, truth)))


class _Load:
    """Sends messages round the partitions.

    Attributes:
        hurry: whether the pace does not matter any more.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.hurry = False
        self._topic, self._partitions = topic, partitions
        self._failed: Counter[str] = Counter()
        common = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            # Longer than any outage: what is lost here would be sent by nobody.
            "delivery.timeout.ms": 600_000,
            "log_level": 2,
        }
        self._producer = Producer(common | {"linger.ms": 20, "compression.type": "lz4"})
        # The broker counts what a batch has when it is compressed; this client what it has before.
        large = {"message.max.bytes": 64_000_000, "batch.size": 64_000_000, "linger.ms": 1000}
        # A lower level misses most of what repeats at such a distance.
        packed = {"compression.type": "zstd", "compression.level": 12}
        self._wide = Producer(common | large | packed)
        signal.signal(signal.SIGTERM, self._on_term)

    def send(self, documents: int, rate: float, seed: int) -> Counter[str]:
        """Send at least so many messages; return how many did not arrive, by reason."""
        began = time.monotonic()
        partition = 0
        for sent, message in enumerate(messages(seed)):
            if self.hurry and sent >= documents:
                break
            if sent % _BURST == 0:
                self._producer.poll(0)
                self._wide.poll(0)
                while not self.hurry and (wait := began + sent / rate - time.monotonic()) > 0:
                    time.sleep(min(wait, 0.2))
            if not message.wide:
                partition = sent % self._partitions
            self._send(message, partition)
        for producer in (self._producer, self._wide):
            self._failed["still waits"] += producer.flush(_FLUSH_SECONDS)
        return +self._failed

    def _send(self, message: Message, partition: int) -> None:
        producer = self._wide if message.wide else self._producer
        while True:
            try:
                producer.produce(
                    self._topic,
                    message.value,
                    partition=partition,
                    headers=[*message.headers],
                    on_delivery=self._on_delivery,
                )
            except BufferError:
                producer.poll(0.2)
            else:
                return

    def _on_delivery(self, error: object, _message: object) -> None:
        if error is not None:
            self._failed[str(error)] += 1

    def _on_term(self, *_: object) -> None:
        self.hurry = True


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--documents", type=int, required=True, help="least number of messages")
    parser.add_argument("--rate", type=float, required=True, help="messages a second")
    parser.add_argument("--seed", type=int, required=True)
    asked = parser.parse_args()
    load = _Load(asked.bootstrap, asked.topic, asked.partitions)
    failed = load.send(asked.documents, asked.rate, asked.seed)
    sys.exit(f"messages did not arrive: {dict(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
