"""At which records processes die, kept in the metadata of the group's offsets. Pure.

A process that begins on a partition writes a *marker* beside the committed offset, and the commit
of its first batch takes it away again. Whoever finds a marker of another process knows that a life
ended there without progress. It then takes one record at a time, alone in the process, and counts
in the marker how many lives have begun with that record; when ``LIVES`` of them have ended, the
record is given up: it becomes a dead letter without being looked at. See ADR 31.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec

from stream_dedup.stream.transport import Partition

#: Lives that end with a record alone in the process, before it is given up.
LIVES = 3
#: Each record given up right behind another takes twice as many lives, so often at most: a program
#: that dies at everything is not to empty a topic.
MOST_DOUBLINGS = 3


class Marker(msgspec.Struct, frozen=True, tag_field="stream_dedup_attempt", tag=1):
    """What stands beside a committed offset.

    Attributes:
        end: offset behind the last record that may be the cause.
        by: the process that wrote it.
        lives: lives that have begun with the record at the offset alone.
        row: records given up right before it.
    """

    end: int
    by: str
    lives: int = 0
    row: int = 0

    @classmethod
    def read(cls, metadata: str | None) -> Marker | None:
        """Read one; None when there is none, or one that is not understood."""
        try:  # librdkafka writes a zero behind it
            return _decode((metadata or "").rstrip("\0"))
        except (msgspec.DecodeError, UnicodeEncodeError):
            return None

    def written(self) -> str:
        """Write it down: some 80 characters, of the 4,096 that brokers take."""
        return msgspec.json.encode(self).decode()

    @property
    def ended(self) -> int:
        """The lives that ended with the record, when one more has just begun."""
        return self.lives - 1

    @property
    def gives_up(self) -> bool:
        """Whether the record is not to be tried again."""
        return self.ended >= LIVES << min(self.row, MOST_DOUBLINGS)

    @property
    def gives_up_bytes(self) -> bool:
        """Whether a life ended even as the record was written to the dead letters."""
        return self.ended > LIVES << min(self.row, MOST_DOUBLINGS)


_decode = msgspec.json.Decoder(Marker).decode


class Place(NamedTuple):
    """An offset to commit, and what stands beside it."""

    offset: int
    metadata: str = ""


class _Armed(NamedTuple):
    """A marker that this process has written and not taken away.

    Attributes:
        offset: where it stands.
        marker: what it is.
        before: what stood there before.
    """

    offset: int
    marker: Marker
    before: str


class Attempts:
    """What one process knows of markers: those that it found, and those that it wrote."""

    def __init__(self) -> None:
        self._by = secrets.token_hex(4)
        #: What stands at the committed offset of each partition looked at since it was assigned.
        self._found: dict[Partition, Place] = {}
        self._suspects: dict[Partition, Marker] = {}
        self._armed: dict[Partition, _Armed] = {}

    @property
    def careful(self) -> bool:
        """Whether records are to be taken one at a time."""
        return bool(self._suspects)

    def unknown(self, partitions: Collection[Partition]) -> Collection[Partition]:
        """Return those of which it is not known what stands there."""
        return [partition for partition in partitions if partition not in self._found]

    def suspects(self, partition: Partition) -> bool:
        """Whether a life ended on a partition, as far as it goes now."""
        return partition in self._suspects

    def forget(self, partitions: Iterable[Partition]) -> None:
        """Look anew at partitions that were just assigned: others may have worked on them."""
        for partition in partitions:
            self._found.pop(partition, None)

    def find(self, partition: Partition, place: Place) -> None:
        """Note what stands at the committed offset of a partition."""
        self._found[partition] = place
        marker = Marker.read(place.metadata)
        if marker is None:
            self._suspects.pop(partition, None)
            self._armed.pop(partition, None)
        elif marker.by != self._by:  # one's own says nothing of a life that ended
            self._suspects[partition] = marker
            self._armed.pop(partition, None)

    def begin(self, ends: Mapping[Partition, int]) -> dict[Partition, Place]:
        """Return the markers to be written before batches are worked on, for their ends."""
        wanted = {}
        for partition, end in ends.items():
            if partition not in self._armed:
                wanted[partition] = self._arm(partition, Marker(end, self._by))
        return wanted

    def begin_alone(self, partition: Partition, offset: int) -> dict[Partition, Place]:
        """Return the marker to be written before a record is worked on that is alone."""
        armed, suspect = self._armed.get(partition), self._suspects.get(partition)
        if armed is not None and armed.marker.lives:
            return {}
        known = suspect or Marker(offset + 1, self._by)
        marker = Marker(max(known.end, offset + 1), self._by, known.lives + 1, known.row)
        return {partition: self._arm(partition, marker)}

    def verdict(self, partition: Partition) -> Marker | None:
        """Return what stands beside a record that is alone, if it is to be given up."""
        armed = self._armed.get(partition)
        return armed.marker if armed is not None and armed.marker.gives_up else None

    def places(self, offsets: Mapping[Partition, int]) -> dict[Partition, Place]:
        """Return what to commit when everything before some offsets is answered."""
        if not self._suspects:
            return {partition: Place(offset) for partition, offset in offsets.items()}
        return {
            partition: Place(offset, left.written() if left else "")
            for partition, offset in offsets.items()
            for left in [self._left(partition, offset)]
        }

    def passed(self, offsets: Mapping[Partition, int]) -> None:
        """Note that everything before some offsets is answered."""
        if not self._armed and not self._suspects:
            return
        for partition, place in self.places(offsets).items():
            left = self._left(partition, place.offset)
            self._armed.pop(partition, None)
            self._suspects.pop(partition, None)
            if left is not None:
                self._suspects[partition] = left
            self._found[partition] = place

    def take_back(self) -> dict[Partition, Place]:
        """Return what stood where this process has markers, and forget that it has any."""
        armed, self._armed = self._armed, {}
        return {partition: Place(one.offset, one.before) for partition, one in armed.items()}

    def _arm(self, partition: Partition, marker: Marker) -> Place:
        stands = self._found[partition]
        self._armed[partition] = _Armed(stands.offset, marker, stands.metadata)
        return Place(stands.offset, marker.written())

    def _left(self, partition: Partition, offset: int) -> Marker | None:
        """Return what is still suspect of a partition behind an offset."""
        suspect = self._suspects.get(partition)
        given_up = self.verdict(partition)
        row = given_up.row + 1 if given_up else 0
        end = suspect.end if suspect else 0
        if not row and offset >= end:
            return None
        # What comes right behind a record that was given up is taken alone, too.
        return Marker(max(end, offset + 1), self._by, 0, row)
