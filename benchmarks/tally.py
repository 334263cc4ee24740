"""What came of records, counted in the topics themselves when nothing is under way any more.

A reader beside the workers would have to survive what they must: where it starts again after a
broker was killed would be counted as theirs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from confluent_kafka import Consumer, TopicPartition

from tests.services.kafka import KafkaBroker, Topics
from tests.services.reading import messages

_TIMEOUT = 10.0
#: Wrong records of a partition that are told one by one.
_TOLD = 5


class Identity(NamedTuple):
    """What tells a record of ``mixed`` from all others: the key, and whether it is a tombstone."""

    key: bytes
    tombstone: bool


class Tally(NamedTuple):
    """How often each record is in the input and among the answers.

    Attributes:
        sent: of the input topic.
        answered: of output and dead letters together.
        dead_letters: how many of these there are.
    """

    sent: Counter[Identity]
    answered: Counter[Identity]
    dead_letters: int

    @property
    def missing(self) -> Counter[Identity]:
        """Records without an answer."""
        return self.sent - self.answered

    @property
    def doubled(self) -> Counter[Identity]:
        """Answers beyond the first."""
        return self.answered - self.sent


def tally(broker: KafkaBroker, topics: Topics) -> Tally:
    """Read all topics from their beginning to their end."""
    sent: Counter[Identity] = Counter()
    answered: Counter[Identity] = Counter()
    dead_letters = 0
    for topic, identity, _ in _records(broker, topics):
        if topic == topics.input:
            sent[identity] += 1
        else:
            answered[identity] += 1
            dead_letters += topic == topics.dead_letter
    return Tally(sent, answered, dead_letters)


def unread(broker: KafkaBroker, topics: Topics) -> int:
    """Return how many records of the input the group of the workers has not committed.

    Raises:
        KafkaException: the broker does not tell.
    """
    group = {"bootstrap.servers": broker.bootstrap, "group.id": topics.input, "log_level": 2}
    consumer = Consumer(group)
    try:
        places = [TopicPartition(topics.input, number) for number in range(topics.partitions)]
        left = 0
        for place in consumer.committed(places, _TIMEOUT):
            _, end = consumer.get_watermark_offsets(place, _TIMEOUT)
            left += end - max(0, place.offset)
        return left
    finally:
        consumer.close()


def tell(broker: KafkaBroker, topics: Topics, found: Tally) -> Iterator[str]:
    """Yield lines about the records that are missing or doubled: where they are in the topics."""
    looked_for = {*found.missing, *found.doubled}
    if not looked_for:
        return
    where: dict[tuple[str, int], list[str]] = defaultdict(list)
    for topic, identity, message in _records(broker, topics):
        if identity in looked_for:
            place = f"{identity.key!r} at {message.offset()} of {message.timestamp()[1]}"
            where[(topic, message.partition())].append(place)
    for (topic, partition), places in sorted(where.items()):
        shown = places if len(places) <= 2 * _TOLD else [*places[:_TOLD], "...", *places[-_TOLD:]]
        yield f"{topic} {partition}: {len(places)} records, {', '.join(shown)}"


def _records(broker: KafkaBroker, topics: Topics) -> Iterator[tuple[str, Identity, Any]]:
    for topic in (topics.input, topics.output, topics.dead_letter):
        for message in messages(broker.bootstrap, topic, topics.partitions):
            tombstone = message.value() is None and topic != topics.dead_letter
            yield topic, Identity(message.key() or b"", tombstone), message
