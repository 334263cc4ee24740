"""The seam between the loop and Kafka: what a worker needs of a transport, and nothing more.

    StreamDedupError
    └── PublishError   nothing of the batch is visible; the input stands where the group left it

The loop is written against ``Transport`` alone, so that a test can run it over a scripted one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from stream_dedup.errors import RefusedCallError, StreamDedupError

#: A topic and the number of one of its partitions.
Partition = tuple[str, int]
#: A partition and an offset in it: the name of one input record.
Position = tuple[str, int, int]
#: The parts of a record.
EVERYTHING = ("value", "key", "headers")


class Record(Protocol):
    """One input message."""

    @property
    def topic(self) -> str:
        """Topic it was read from."""

    @property
    def partition(self) -> int:
        """Partition it was read from."""

    @property
    def offset(self) -> int:
        """Its offset in the partition."""

    @property
    def timestamp(self) -> int:
        """Milliseconds since the epoch; negative when it has none."""

    @property
    def key(self) -> bytes | None:
        """Its key."""

    @property
    def value(self) -> bytes | None:
        """Its value; None for a tombstone."""

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        """Its headers, in order."""


class InputRecord(NamedTuple):
    """One input message, apart from the client's (see ``Record``)."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


class Output(NamedTuple):
    """One message to publish.

    Attributes:
        topic: where to.
        record: the input message that it answers; gives key, partition and timestamp.
        value: the value; None only beside a key.
        headers: all headers, in order.
        key: the key.
        timestamp: milliseconds since the epoch; None for the time of publishing.
        by_key: the key alone decides on the partition; otherwise an answer keeps the number of its
            record's partition where both topics have as many.
    """

    topic: str
    record: Record
    value: bytes | None
    headers: list[tuple[str, bytes]]
    key: bytes | None
    timestamp: int | None
    by_key: bool = False


class PublishError(StreamDedupError):
    """A batch was not published: none of it is visible, and its records will be polled again.

    Attributes:
        refused: None when it was no refusal. Else input positions whose output the broker refuses
            for good (too large, a time stamp out of range), with what it said: to try these again
            unchanged is in vain. None of them when it may be any; ``poll`` then returns fewer.
    """

    exit_code = 69

    def __init__(self, message: str, refused: Mapping[Position, str] | None = None) -> None:
        super().__init__(message)
        self.refused = refused


class StrangePublishError(PublishError, RefusedCallError):
    """Nothing is wrong with Kafka as far as is known: it may be what is published."""


class Transport(Protocol):
    """An ordered, partitioned input and a transactional output."""

    def poll(self) -> Sequence[Record]:
        """Wait a little for records and return up to a batch of them; empty when none came.

        Raises:
            ServiceError: the input cannot be read, and waiting will not mend it.
        """

    def publish(self, outputs: Sequence[Output]) -> None:
        """Publish the answers to everything polled last, and the fact that it was answered.

        All of it becomes visible at once or not at all.

        Raises:
            PublishError: none of it is visible; ``poll`` goes back to the first of it.
            ServiceError: the outcome cannot be learned or mended from here.
        """

    def lag(self) -> Mapping[Partition, int]:
        """Return, for each input partition held now, the number of records not yet polled."""

    def joined(self) -> bool:
        """Tell whether this worker is a settled member of its group (maybe an idle one)."""

    def stay(self) -> None:
        """Keep the place in the group while a batch takes long; called at each progress with it.

        A worker that does not poll for minutes is otherwise taken for stuck, and its partitions go
        to others, where the same batch takes as long. What is really stuck makes no progress, and
        the supervisor ends it.
        """

    def unmark(self) -> None:
        """Take back that what was polled last is being worked on, if that is on record.

        Called before a wait for a service that is unavailable and at an orderly end: what may end
        this process then is not to be blamed on the batch.
        """

    def close(self) -> None:
        """Leave the group and release everything. An unpublished batch stays unpublished."""
