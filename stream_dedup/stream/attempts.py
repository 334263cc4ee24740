"""At which records processes die, kept in the metadata of the group's offsets. Pure.

A process that begins on a partition writes a *marker* beside the committed offset, and the commit
of its first batch takes it away again. Whoever finds a marker of another process knows that a life
ended there without progress. It then takes one record at a time, alone in the process, and counts
in the marker how many lives have begun with that record; when ``LIVES`` of them have ended, the
record is given up: it becomes a dead letter without being looked at. See ADR 31.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
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
        tried: the processes that have begun with the record at the offset alone. Who finds itself
            there has not died: partitions may go to and fro between processes that are stopped.
        row: records given up right before it.
        careful: whether records are taken one at a time up to the end.
    """

    end: int
    by: str
    tried: tuple[str, ...] = ()
    row: int = 0
    careful: bool = False

    @classmethod
    def read(cls, metadata: str | None) -> Marker | None:
        """Read one; None when there is none, or one that is not understood."""
        try:  # librdkafka writes a zero behind it
            return _decode((metadata or "").rstrip("\0"))
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return None

    def written(self) -> str:
        """Write it down: less than 500 characters, of the 4,096 that brokers take."""
        return msgspec.json.encode(self).decode()

    @property
    def ended(self) -> int:
        """The lives that ended with the record, when one more has just begun."""
        return len(self.tried) - 1

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


_NOWHERE = Place(-1)


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

    def reset(self) -> None:
        """Forget everything: partitions were assigned anew, and others may have worked on them.

        What this process has written stands there still, if nobody went on from it; to take it back
        now would undo what the others have done.
        """
        self._found.clear()
        self._suspects.clear()
        self._armed.clear()

    def find(self, partition: Partition, place: Place) -> None:
        """Note what stands at the committed offset of a partition."""
        marker, armed = Marker.read(place.metadata), self._armed.get(partition)
        if armed is not None and (armed.offset, armed.marker) == (place.offset, marker):
            self._found[partition] = Place(place.offset, armed.before)
            return
        self._armed.pop(partition, None)
        self._suspects.pop(partition, None)
        if marker is not None and marker.by == self._by and not marker.careful:
            marker, place = None, Place(place.offset)
        elif marker is not None and self._by in marker.tried:
            marker = msgspec.structs.replace(marker, tried=self._others(marker))
            place = Place(place.offset, marker.written())
        self._found[partition] = place
        if marker is not None:
            self._suspects[partition] = marker

    def look_again(self) -> None:
        """Find out anew what stands there: it is not known whether a commit took effect."""
        self._found.clear()

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
        if armed is not None and armed.marker.tried:
            return {}
        known = suspect or Marker(offset + 1, self._by)
        end = max(known.end, offset + 1)
        tried = (*self._others(known), self._by)
        marker = Marker(end, self._by, tried, known.row, careful=True)
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
        places = self.places(offsets)
        if self._armed or self._suspects:
            left = {
                partition: self._left(partition, offset) for partition, offset in offsets.items()
            }
            for partition, marker in left.items():
                self._armed.pop(partition, None)
                self._suspects.pop(partition, None)
                if marker is not None:
                    self._suspects[partition] = marker
        self._found |= places

    @property
    def marked(self) -> Collection[Partition]:
        """The partitions where this process may have a marker."""
        return self._armed.keys()

    def take_back(self, found: Mapping[Partition, Place]) -> dict[Partition, Place]:
        """Return what is to stand where this process has markers, and forget that it has any.

        Args:
            found: what stands there now; nothing else than a marker is to be overwritten.
        """
        armed, self._armed = self._armed, {}
        return {
            partition: Place(one.offset, one.before)
            for partition, one in armed.items()
            if found.get(partition, _NOWHERE).offset == one.offset
            and Marker.read(found[partition].metadata) == one.marker
        }

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
        return Marker(max(end, offset + 1), self._by, (), row, careful=True)

    def _others(self, marker: Marker) -> tuple[str, ...]:
        return tuple(one for one in marker.tried if one != self._by)
