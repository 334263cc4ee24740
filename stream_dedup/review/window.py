"""The documents that the page shows: a bounded number of them, in an SQLite database.

One thread writes; any number read, each from a state between two batches. Beside the documents
stand the counts that the pages show, kept up with each document that comes or goes, so that no page
has to look through all of them.
"""

from __future__ import annotations

import queue
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from stream_dedup.review.database import transaction
from stream_dedup.review.schema import Lock, open_reader, open_writer, tables_of
from stream_dedup.review.seen import CODES, Seen
from stream_dedup.review.tally import Counted, count_in, count_out, forget_growth
from stream_dedup.types import DocumentId

#: Seconds that the queries of one page may take.
DEADLINE = 2.0
#: Steps of SQLite's machine between two looks at the clock.
_STEPS = 10_000
#: Bytes from which on a text is compressed.
_COMPRESSED_FROM = 1024

_COUNTED = "row, duplicate_id, status, similarity, at, source, hamming_distance"
_encode = msgspec.json.Encoder().encode


def written_id(identity: DocumentId) -> str:
    """Write a document id as the window does, as JSON: 5 and "5" are two."""
    return _encode(identity).decode()


class Window:
    """A bounded number of documents, the latest.

    Attributes:
        path: the database.
    """

    def __init__(self, path: Path, most: int) -> None:
        """Open the window (see ``open``)."""
        self.path = path
        self._most = most
        self._lock = Lock(path)
        try:
            self._database = open_writer(path)
        except BaseException:
            self._lock.release()
            raise
        self._writing = threading.Lock()
        self._readers: queue.SimpleQueue[sqlite3.Connection] = queue.SimpleQueue()
        execute = self._database.execute
        self._last: int = execute("SELECT ifnull(max(row), 0) FROM documents").fetchone()[0]
        self._count: int = execute("SELECT count(*) FROM documents").fetchone()[0]
        self._clock: int = execute("SELECT ifnull(max(minute), 0) FROM minutes").fetchone()[0]

    @classmethod
    def open(cls, path: Path, most: int) -> Window:
        """Open a window, or make it.

        Args:
            path: the database.
            most: documents that it holds, at most.

        Raises:
            StateError: the file cannot be used, is in use, or is another database.
        """
        return cls(path, most)

    def add(
        self,
        seen: Sequence[Seen],
        facts: Mapping[str, object] | None = None,
        forgotten: Sequence[tuple[int, DocumentId]] = (),
    ) -> None:
        """Add documents, drop the oldest beyond the bound, and note facts, all or nothing.

        Args:
            seen: the documents, in their order.
            facts: by name, values that JSON can write.
            forgotten: ids whose documents are removed, each with how many of ``seen`` came before.
        """
        dropped = 0
        with self._transaction():
            start = 0
            for end, identity in forgotten:
                self._insert(seen[start:end])
                dropped += self._drop("id = ?", [written_id(identity)])
                start = end
            self._insert(seen[start:])
            beyond = max(0, self._count + len(seen) - dropped - self._most)
            dropped += self._drop("1 ORDER BY row LIMIT ?", [beyond])
            forget_growth(self._database, self._clock)
            self._database.executemany(
                "INSERT OR REPLACE INTO facts VALUES (?, ?)",
                [(name, _encode(value).decode()) for name, value in (facts or {}).items()],
            )
        self._count += len(seen) - dropped

    def clear(self) -> None:
        """Remove everything."""
        with self._transaction():
            for table in tables_of(self._database):
                self._database.execute(f"DELETE FROM {table}")  # noqa: S608 - written there
        self._count = self._clock = 0

    def facts(self) -> dict[str, Any]:
        """Return what is noted about the window."""
        with self.reader() as database:
            found = database.execute("SELECT name, value FROM facts").fetchall()
        return {name: msgspec.json.decode(value) for name, value in found}

    @contextmanager
    def reader(self, seconds: float = DEADLINE) -> Iterator[sqlite3.Connection]:
        """Give a connection that reads one state of the window, for one thread.

        Args:
            seconds: time for all queries; then ``sqlite3.OperationalError`` says interrupted.
        """
        try:
            database = self._readers.get_nowait()
        except queue.Empty:
            database = open_reader(self.path)
        deadline = time.monotonic() + seconds
        database.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
        try:
            database.execute("BEGIN")
            yield database
        finally:
            with suppress(sqlite3.OperationalError):  # an interrupted one may have ended by itself
                database.execute("ROLLBACK")
            self._readers.put(database)

    def text(self, row: int) -> str:
        """Return the text of a row; empty where it is unknown."""
        with self.reader() as database:
            found = database.execute("SELECT text FROM texts WHERE row = ?", [row]).fetchone()
        return "" if found is None else unpacked(found[0])

    def close(self) -> None:
        """Close all connections that are not in use."""
        with suppress(queue.Empty):
            while True:
                self._readers.get_nowait().close()
        with self._writing:
            self._database.close()
        self._lock.release()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._writing:
            last, clock = self._last, self._clock
            try:
                with transaction(self._database):
                    yield
            except BaseException:
                self._last, self._clock = last, clock
                raise

    def _insert(self, seen: Sequence[Seen]) -> None:
        if not seen:
            return
        numbered = list(enumerate(seen, self._last + 1))
        self._database.executemany(
            "INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [_columns(row, one) for row, one in numbered],
        )
        self._database.executemany(
            "INSERT INTO texts VALUES (?, ?)",
            [(row, _packed(one.text)) for row, one in numbered if one.text is not None],
        )
        counted = [
            Counted(
                row,
                one.duplicate_id,
                CODES[one.status],
                one.similarity,
                one.at,
                one.source,
                one.hamming_distance,
            )
            for row, one in numbered
        ]
        self._last += len(seen)
        self._clock = max(self._clock, *(one.minute for one in counted))
        count_in(self._database, counted, self._clock)

    def _drop(self, which: str, values: Sequence[object]) -> int:
        """Drop rows, told as SQL does, from all tables; return how many."""
        query = f"SELECT {_COUNTED} FROM documents WHERE {which}"  # noqa: S608 - written here
        gone = [Counted(*row) for row in self._database.execute(query, values)]
        if not gone:
            return 0
        rows = [(one.row,) for one in gone]
        self._database.executemany("DELETE FROM documents WHERE row = ?", rows)
        self._database.executemany("DELETE FROM texts WHERE row = ?", rows)
        count_out(self._database, gone, self._clock)
        return len(gone)


def _columns(row: int, one: Seen) -> tuple[object, ...]:
    return (
        row,
        written_id(one.id),
        one.duplicate_id,
        written_id(one.original_id),
        CODES[one.status],
        one.similarity,
        one.hamming_distance,
        one.measure,
        one.method,
        one.configuration,
        one.at,
        one.source,
        one.link,
        one.place,
    )


def _packed(text: str) -> str | bytes:
    if len(text) < _COMPRESSED_FROM:
        return text
    return zstandard.compress(text.encode(), 1)


def unpacked(value: str | bytes) -> str:
    """Return the text of a column ``texts.text``."""
    return value if isinstance(value, str) else zstandard.decompress(value).decode()
