"""Documents at a steady pace until SIGTERM, then what is left at once; a process of its own.

One message in some hundred is no document. Copies go to other partitions than their original, most
of them within seconds, so that different workers decide them, some at the same moment.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterator

import msgspec
from confluent_kafka import Producer

from stream_dedup.generate import StreamShape, generate

#: What is no document, and one message in how many is that.
POISON = b"not JSON"
_POISON_EVERY = 199
#: The stream has no end; it is left when enough has been sent.
_ENDLESS = 1_000_000_000
#: Messages between two looks at the clock.
_BURST = 20
#: Time that the last messages have to arrive, s.
_FLUSH_SECONDS = 120.0


def messages(seed: int) -> Iterator[bytes]:
    """Yield documents and what is none, without end.

    One changed word in 130 or more leaves also two copies of one original far above the threshold,
    so the truth demands the same groups whichever member comes first.
    """
    shape = StreamShape(
        documents=_ENDLESS, duplicate_share=0.5, edits=1, words=200, distance=2_000, seed=seed
    )
    for number, made in enumerate(generate(shape)):
        yield POISON if number % _POISON_EVERY == _POISON_EVERY - 1 else msgspec.json.encode(made)


class _Load:
    """Sends messages round the partitions.

    Attributes:
        hurry: whether the pace does not matter any more.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.hurry = False
        self._topic, self._partitions = topic, partitions
        self._failed = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 20,
                "compression.type": "lz4",
                # Longer than any outage: what is lost here would be sent by nobody.
                "delivery.timeout.ms": 600_000,
                "log_level": 2,
            }
        )
        signal.signal(signal.SIGTERM, self._on_term)

    def send(self, documents: int, rate: float, seed: int) -> int:
        """Send at least so many messages; return how many did not arrive."""
        began = time.monotonic()
        for sent, value in enumerate(messages(seed)):
            if self.hurry and sent >= documents:
                break
            if sent % _BURST == 0:
                self._producer.poll(0)
                while not self.hurry and (wait := began + sent / rate - time.monotonic()) > 0:
                    time.sleep(min(wait, 0.2))
            self._send(value, sent % self._partitions)
        return self._failed + int(self._producer.flush(_FLUSH_SECONDS))

    def _send(self, value: bytes, partition: int) -> None:
        while True:
            try:
                self._producer.produce(
                    self._topic, value, partition=partition, on_delivery=self._on_delivery
                )
            except BufferError:
                self._producer.poll(0.2)
            else:
                return

    def _on_delivery(self, error: object, _message: object) -> None:
        self._failed += error is not None

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
    sys.exit(f"{failed} messages did not arrive" if failed else 0)


if __name__ == "__main__":
    main()
