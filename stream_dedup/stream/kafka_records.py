"""How kafka-python's consumers read batches here: within a limit, and whatever names headers have.

kafka-python unpacks a fetched batch whole, however large it gets, and reads nothing of a batch with
a header whose name is not UTF-8. Both are mended in the objects that a consumer makes of each
fetched partition: ``bound`` gives one consumer a class of its own for these. The library is left as
it is for everybody else. ``tests/unit/test_kafka_records.py`` tells when it has changed so far that
this no longer works.

What cannot be read is handed on as records that say so (``Damaged``): one for each offset of a
batch that cannot be unpacked, so that the loop has something to answer for each of its records.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from kafka.consumer.fetcher import Fetcher  # type: ignore[import-untyped]
from kafka.errors import CorruptRecordError  # type: ignore[import-untyped]
from kafka.record.default_records import (  # type: ignore[import-untyped]
    DefaultRecord,
    DefaultRecordBatch,
)
from kafka.record.legacy_records import LegacyRecordBatch  # type: ignore[import-untyped]
from kafka.record.util import decode_varint, encode_varint  # type: ignore[import-untyped]

from stream_dedup.stream.damaged import Damaged
from stream_dedup.stream.decompress import UnpackError, unpack
from stream_dedup.stream.poison import Reason
from stream_dedup.stream.transport import EVERYTHING

#: Records of an unreadable batch that are told one by one. A batch may claim two thousand million.
MOST_TOLD = 10_000
#: Headers of a record that are read. Each takes some 70 bytes, of as few as two in the batch.
MOST_HEADERS = 100_000
#: A batch of fewer bytes has no room for headers that would matter, so they are not counted.
_WIDE_BYTES = 4 << 20
_NO_HEADERS = b"\0"
#: What comes of records whose lengths, offsets or counts are wrong.
_DAMAGE = (CorruptRecordError, ValueError, IndexError, OverflowError)

_Kind = TypeVar("_Kind")


def bound(consumer: Any, limit: int) -> Any:
    """Return a consumer of kafka-python that unpacks no batch to more than so many bytes."""

    class Bounded(Fetcher.PartitionRecords):  # type: ignore[misc]
        """Reads what was fetched of a partition, batch by batch."""

        def __init__(self, fetch_offset: int, tp: Any, records: Any, **options: Any) -> None:
            super().__init__(fetch_offset, tp, _Batches(records, limit), **options)

    consumer._fetcher.PartitionRecords = Bounded
    return consumer


class _Batches:
    """Hands out the batches of a fetched partition as ones with a limit."""

    def __init__(self, records: Any, limit: int) -> None:
        self._records = records
        self._limit = limit

    def next_batch(self) -> Any:
        """Return the next one; None at the end."""
        batch = self._records.next_batch()
        if batch is None:
            return None
        return _adopt(_Batch if batch.magic >= 2 else _LegacyBatch, batch, self._limit)


def _adopt(kind: type[_Kind], batch: Any, limit: int) -> _Kind:
    """Return a batch as one of another class, without reading or copying it again."""
    made: Any = kind.__new__(kind)
    for name in type(batch).__slots__:
        setattr(made, name, getattr(batch, name))
    made._limit = limit
    found: _Kind = made
    return found


class _TooManyHeadersError(Exception):
    """Raised before the headers of a record are read; says how many there are, and from where."""

    def __init__(self, count: int, place: int) -> None:
        super().__init__(count, place)
        self.count = count
        self.place = place


class _Batch(DefaultRecordBatch):  # type: ignore[misc]
    """A batch of the format that there is since 2017."""

    _limit: int
    _buffer: bytearray
    _pos: int
    _decompressed: bool

    def __iter__(self) -> Iterator[Any]:
        try:
            self._maybe_uncompress()
        except UnpackError as error:
            yield from self._unread(str(error), self.base_offset)
            return
        last, reached = self.last_offset, self.base_offset - 1
        try:
            for record in self._records():
                if not reached < record.offset <= last:
                    raise CorruptRecordError
                reached = record.offset
                yield record
        except _DAMAGE:
            # Brokers do not look into all of it, and it would be the same again.
            yield from self._unread("is damaged", reached + 1)

    def _records(self) -> Iterator[Any]:
        """Return the records as far as they can be read."""
        wide = len(self._buffer) > _WIDE_BYTES
        read = self._next_with_few_headers if wide else super().__next__
        while True:
            try:
                yield from iter(read, None)
            except CorruptRecordError as error:
                if not isinstance(error.__context__, UnicodeDecodeError):
                    raise
                record = self._misnamed()
            except _TooManyHeadersError as error:
                record = self._without_headers(error)
            else:
                return
            self._next_record_index += 1
            yield record

    def _maybe_uncompress(self) -> None:
        if not self._decompressed and self.compression_type:
            packed = memoryview(self._buffer)[self._pos :]
            self._buffer = unpack(self.compression_type, packed, self._limit)
            self._pos = 0
        self._decompressed = True

    def _unread(self, why: str, first: int) -> Iterator[Any]:
        """Return a record for each offset from one on; for the last alone if they are too many.

        The last, because whoever has got beyond an offset may come back and skip it.
        """
        last = self.last_offset
        detail = f"It is of the batch of offsets {self.base_offset} to {last}, which {why}."
        headers = Damaged((), Reason.UNREADABLE, detail, EVERYTHING)
        for offset in range(first if last - first < MOST_TOLD else last, last + 1):
            at = (offset, self.max_timestamp, self.timestamp_type)
            yield DefaultRecord(0, *at, None, None, headers)

    def _misnamed(self) -> Any:
        """Read a record; bytes in names of headers that are not UTF-8 are escaped."""
        length, body = decode_varint(self._buffer, self._pos)
        end = body + length
        record = self._read_apart(_Lenient(self._buffer[self._pos : end]), end)
        detail = "The name of a header is not UTF-8; its bytes are escaped here."
        record._headers = Damaged(record.headers, Reason.BAD_HEADER, detail)
        return record

    def _without_headers(self, many: _TooManyHeadersError) -> Any:
        """Read a record as one without headers."""
        length, body = decode_varint(self._buffer, self._pos)
        shortened = self._buffer[body : many.place] + _NO_HEADERS
        front = bytearray()
        encode_varint(len(shortened), front.append)
        record = self._read_apart(front + shortened, body + length)
        detail = f"It has {many.count} headers; {MOST_HEADERS} are read at most."
        record._headers = Damaged((), Reason.BAD_HEADER, detail, ("headers",))
        return record

    def _read_apart(self, written: bytearray, end: int) -> Any:
        """Read a record that was written anew, and go on behind the one that it stands for."""
        whole = self._buffer
        self._buffer, self._pos = written, 0
        try:
            return self._read_msg()
        finally:
            self._buffer, self._pos = whole, end

    def _next_with_few_headers(self) -> Any:
        """Return the next record, unless its headers would take many times their bytes."""
        if self._next_record_index < self._num_records:
            buffer, at = self._buffer, self._pos
            try:
                for _ in range(4):  # length, attributes, time, offset
                    _, at = decode_varint(buffer, at)
                for _ in range(2):  # key, value
                    length, at = decode_varint(buffer, at)
                    at += max(length, 0)
                count, _ = decode_varint(buffer, at)
            except (IndexError, ValueError):
                count = 0  # and the library says what is wrong
            if count > MOST_HEADERS:
                raise _TooManyHeadersError(count, at)
        return super().__next__()


class _Lenient(bytearray):
    """Bytes whose parts are decoded whatever they are."""

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        return _Lenient(found) if isinstance(found, bytearray) else found

    def decode(self, *_: Any) -> str:
        return super().decode("utf-8", "backslashreplace")


class _LegacyBatch(LegacyRecordBatch):  # type: ignore[misc]
    """A message of the formats before that, which may have messages in it."""

    _limit: int

    def __iter__(self) -> Iterator[Any]:
        try:
            yield from super().__iter__()
        except UnpackError as error:
            # It has the offset of its last message, and does not say how many there are.
            detail = f"It is the last message of a set, all lost, which {error}."
            headers = Damaged((), Reason.UNREADABLE, detail, EVERYTHING)
            moment = -1 if self._timestamp is None else self._timestamp
            yield DefaultRecord(0, self._offset, moment, self.timestamp_type, None, None, headers)

    def _decompress(self, key_offset: int) -> Any:
        if self._magic == 0 and self.compression_type == self.CODEC_LZ4:
            msg = "was packed by LZ4 as Kafka 0.9 did it, which is not read"
            raise UnpackError(msg)
        _, packed = self._read_key_value(key_offset)
        if packed is None:
            msg = "has nothing in it"
            raise UnpackError(msg)
        return unpack(self.compression_type, memoryview(packed), self._limit)
