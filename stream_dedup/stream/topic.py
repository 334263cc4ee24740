"""Reads a whole topic outside of any group: committed records, its partitions merged by time."""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, Protocol, Self, TypeVar

from kafka import TopicPartition  # type: ignore[import-untyped]
from kafka.errors import KafkaError  # type: ignore[import-untyped]

from stream_dedup.errors import ServiceError
from stream_dedup.settings import Settings
from stream_dedup.stream.kafka_clients import open_admin, open_reader
from stream_dedup.stream.kafka_limits import (
    FETCH_MAX_BYTES,
    PARTITION_FETCH_MAX_BYTES,
    RECONNECT_MS,
    describe,
)
from stream_dedup.stream.kafka_trouble import kafka_trouble
from stream_dedup.stream.transport import Record

#: Records of a partition that wait for those of others; then it is fetched no further.
_BUFFERED = 20_000
_POLL_MS = 500
_POLLED = 5_000
#: Time without any record after which the brokers are taken for dead.
_SILENCE = 120.0

#: For each partition an offset.
Offsets = dict[int, int]


class Dated(Protocol):
    """What is made of a record."""

    @property
    def moment(self) -> int:
        """When it came about, milliseconds since the epoch."""


Made = TypeVar("Made", bound=Dated)


class TopicReader:
    """Reads one topic from some offsets on; a partition without one has its beginning."""

    def __init__(self, settings: Settings, topic: str, start: Mapping[int, int]) -> None:
        """Open the topic.

        Raises:
            ServiceError: no broker answers, or there is no such topic.
        """
        self._settings = settings
        self._topic = topic
        with self._reporting():
            self._committed = self._open("read_committed")
            self._all = self._open("read_uncommitted")
            numbers = self._committed.partitions_for_topic(topic)
        if not numbers:
            self.close()
            msg = f"The Kafka topic {topic} does not exist. Check kafka_bootstrap and its name."
            raise ServiceError(msg)
        self._partitions = {number: TopicPartition(topic, number) for number in sorted(numbers)}
        self._buffers: dict[int, deque[Record]] = {number: deque() for number in self._partitions}
        with self._reporting():
            self._committed.assign(list(self._partitions.values()))
        self.seek(start)

    @property
    def numbers(self) -> list[int]:
        """Numbers of the partitions."""
        return list(self._partitions)

    def seek(self, start: Mapping[int, int]) -> None:
        """Go to some offsets; a partition without one goes to its beginning."""
        with self._reporting():
            for number, partition in self._partitions.items():
                self._buffers[number].clear()
                if number in start:
                    self._committed.seek(partition, start[number])
                else:
                    self._committed.seek_to_beginning(partition)

    def since(self, moment: int) -> Offsets:
        """Return where in each partition the first record stands that is not older.

        Args:
            moment: milliseconds since the epoch.
        """
        ends = self.ends()
        asked = dict.fromkeys(self._partitions.values(), moment)
        with self._reporting():
            found = self._committed.offsets_for_times(asked)
        return {
            partition.partition: ends[partition.partition] if place is None else place.offset
            for partition, place in found.items()
        }

    def at(self, number: int, offset: int) -> Record | None:
        """Return the record at an offset, if there is a committed one; moves all partitions."""
        ends = self.ends()
        if not 0 <= offset < ends.get(number, 0):
            return None
        self.seek(ends | {number: offset})
        return next(self._partition(number, offset + 1), None)

    def ends(self, *, committed: bool = True) -> Offsets:
        """Return where each partition ends now.

        Args:
            committed: before the first open transaction; else behind everything that was written.
        """
        consumer = self._committed if committed else self._all
        with self._reporting():
            found = consumer.end_offsets(list(self._partitions.values()))
        return {partition.partition: end for partition, end in found.items()}

    def begins(self) -> Offsets:
        """Return where each partition begins now."""
        with self._reporting():
            found = self._committed.beginning_offsets(list(self._partitions.values()))
        return {partition.partition: begin for partition, begin in found.items()}

    def read_by_group(self) -> Offsets:
        """Return how far the workers' group has come in this topic."""
        with self._reporting(), closing(open_admin(self._settings)) as admin:
            found = admin.list_group_offsets({self._settings.group: None})[self._settings.group]
        return {
            partition.partition: max(0, committed.offset)
            for partition, committed in found.items()
            if partition.topic == self._topic
        }

    def group_state(self) -> str:
        """Return the state of the workers' group: Stable, Empty, Dead (there is none), ..."""
        group = self._settings.group
        with self._reporting(), closing(open_admin(self._settings)) as admin:
            return str(admin.describe_groups([group])[group]["group_state"])

    def read(self, ends: Offsets, make: Callable[[Record], Made]) -> Iterator[Made]:
        """Yield what is made of the records before some offsets, the partitions merged by moment.

        Where a transaction is open before an end, it waits for that.

        Raises:
            ServiceError: the brokers stay away.
        """
        parts = [
            map(make, self._partition(number, ends.get(number, 0))) for number in self._buffers
        ]
        return heapq.merge(*parts, key=lambda made: made.moment)

    def close(self) -> None:
        """Close the connections."""
        self._committed.close(autocommit=False)
        self._all.close(autocommit=False)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def _partition(self, number: int, end: int) -> Iterator[Record]:
        buffer, partition = self._buffers[number], self._partitions[number]
        while True:
            while buffer and buffer[0].offset < end:
                yield buffer.popleft()
            # Between the last record and the end there may be marks of transactions alone.
            if buffer or self._position(partition) >= end:
                return
            self._fill(partition, end)

    def _fill(self, partition: Any, end: int) -> None:
        """Poll until something came from the partition, or it has come to its end."""
        deadline = time.monotonic() + _SILENCE
        wanted = self._buffers[partition.partition]
        while not wanted and self._position(partition) < end:
            with self._reporting():
                self._hold_full()
                polled = self._committed.poll(_POLL_MS, max_records=_POLLED)
            for one, records in polled.items():
                self._buffers[one.partition].extend(records)
            if polled:
                deadline = time.monotonic() + _SILENCE
            elif time.monotonic() > deadline:
                msg = (
                    f"Nothing came from the topic {self._topic} for {_SILENCE:.0f} s. Check the "
                    "brokers, and look for a transaction that stays open."
                )
                raise ServiceError(msg)

    def _hold_full(self) -> None:
        """Fetch only partitions of which not too much waits already."""
        for number, buffer in self._buffers.items():
            if len(buffer) >= _BUFFERED:
                self._committed.pause(self._partitions[number])
            else:
                self._committed.resume(self._partitions[number])

    def _position(self, partition: Any) -> int:
        with self._reporting():
            position: int = self._committed.position(partition)
        return position

    def _open(self, isolation: str) -> Any:
        return open_reader(
            self._settings,
            isolation,
            fetch_max_bytes=FETCH_MAX_BYTES,
            max_partition_fetch_bytes=PARTITION_FETCH_MAX_BYTES,
            reconnect_backoff_max_ms=RECONNECT_MS,
        )

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Turn an error of the client into a sentence that says what to do."""
        try:
            yield
        except KafkaError as error:
            msg = kafka_trouble(self._settings, error) or (
                f"The topic {self._topic} at {self._settings.kafka_bootstrap} cannot be read: "
                f"{describe(error)}. Check that the brokers are up and that this program may read."
            )
            raise ServiceError(msg) from error
