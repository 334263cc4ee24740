"""How many records a batch may still take: a batch is bounded in documents and in bytes."""

from __future__ import annotations

from collections.abc import Iterable

from stream_dedup.settings import Settings
from stream_dedup.stream.transport import Record

#: Times as many records as would fit if all were of the largest size are asked for at once, where
#: those seen so far were smaller: to ask often takes time, and sizes may change within a batch.
_TIMES = 4


class Filling:
    """The batch that is being polled.

    What a client unpacks for one call lies in memory before anybody can count it, and compressed
    messages may be a hundred times as large as what was fetched. So it is asked for a part at a
    time, as many records as there is room for by the largest one seen.

    Args:
        settings: how large a batch may be.
        limit: how many records it may have.
    """

    def __init__(self, settings: Settings, limit: int) -> None:
        self._records = limit
        self._most = self._room = settings.batch_bytes
        self._least = max(1, self._room // settings.max_document_bytes)
        self._largest = 0

    @property
    def taken(self) -> int:
        """Bytes of the records so far: keys, values and headers."""
        return self._most - self._room

    def wanted(self) -> int:
        """Return the number of records to ask for next; 0 when the batch is full."""
        if not self._largest:
            return min(self._records, self._least)
        fitting = max(0, self._room) // self._largest
        return min(self._records, fitting, _TIMES * self._least)

    def add(self, records: Iterable[Record]) -> None:
        """Count records that were polled."""
        sizes = [_size(record) for record in records]
        self._records -= len(sizes)
        self._room -= sum(sizes)
        self._largest = max(self._largest, max(sizes, default=0))


def _size(record: Record) -> int:
    size = len(record.value or b"") + len(record.key or b"") + 1
    if record.headers:
        size += sum(len(name) + len(content or b"") for name, content in record.headers)
    return size
