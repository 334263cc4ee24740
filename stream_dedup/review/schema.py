"""The window's database: its tables, and opening it to write or to read."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from pathlib import Path

from stream_dedup.errors import StateError
from stream_dedup.review.database import Kind, prepare

#: Pages that the writer keeps in memory, in KiB: the tables that each document changes.
_CACHE_KIB = 128 * 1024
#: Pages of the log from which on it is carried over into the database.
_LOG_PAGES = 10_000
#: Bytes that readers map into memory instead of reading them.
_MAPPED = 1 << 30

_SCHEMA = """
CREATE TABLE documents (
    row INTEGER PRIMARY KEY, id TEXT NOT NULL, duplicate_id TEXT NOT NULL,
    original_id TEXT NOT NULL, status INTEGER NOT NULL, similarity REAL, hamming_distance INTEGER,
    measure TEXT, method TEXT NOT NULL, configuration TEXT NOT NULL, at INTEGER NOT NULL,
    source TEXT NOT NULL, link TEXT NOT NULL, place TEXT NOT NULL) STRICT;
CREATE INDEX documents_by_id ON documents (id);
CREATE INDEX documents_by_nearness
    ON documents (duplicate_id, COALESCE(similarity, -hamming_distance, -1000), row);
CREATE INDEX documents_by_time ON documents (duplicate_id, at, row);
CREATE TABLE texts (row INTEGER PRIMARY KEY, text ANY NOT NULL) STRICT;
CREATE TABLE groups (
    duplicate_id TEXT PRIMARY KEY, original_row INTEGER, documents INTEGER NOT NULL,
    exact INTEGER NOT NULL, near INTEGER NOT NULL, first_at INTEGER NOT NULL,
    last_at INTEGER NOT NULL, recent INTEGER NOT NULL DEFAULT 0) STRICT, WITHOUT ROWID;
CREATE INDEX groups_by_size ON groups (documents) WHERE documents > 1;
CREATE INDEX groups_by_time ON groups (last_at) WHERE documents > 1;
CREATE INDEX groups_by_growth ON groups (recent) WHERE recent > 0;
CREATE TABLE minutes (
    minute INTEGER, status INTEGER, documents INTEGER NOT NULL,
    PRIMARY KEY (minute, status)) STRICT, WITHOUT ROWID;
CREATE TABLE hours (
    hour INTEGER, status INTEGER, documents INTEGER NOT NULL,
    PRIMARY KEY (hour, status)) STRICT, WITHOUT ROWID;
CREATE TABLE days (
    day INTEGER, status INTEGER, documents INTEGER NOT NULL,
    PRIMARY KEY (day, status)) STRICT, WITHOUT ROWID;
CREATE TABLE distances (
    distance INTEGER, status INTEGER, documents INTEGER NOT NULL,
    PRIMARY KEY (distance, status)) STRICT, WITHOUT ROWID;
CREATE TABLE similarities (
    bin INTEGER, status INTEGER, documents INTEGER NOT NULL,
    PRIMARY KEY (bin, status)) STRICT, WITHOUT ROWID;
CREATE TABLE sources (
    source TEXT PRIMARY KEY, documents INTEGER NOT NULL, duplicates INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
CREATE INDEX sources_by_documents ON sources (documents);
CREATE TABLE growth (
    minute INTEGER, duplicate_id TEXT, documents INTEGER NOT NULL,
    PRIMARY KEY (minute, duplicate_id)) STRICT, WITHOUT ROWID;
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
"""

_WINDOW = Kind(
    application=0x73645257,  # "sdRW"
    version=1,
    tables=_SCHEMA,
    pragmas={
        "synchronous": "NORMAL",
        "secure_delete": "ON",  # what was forgotten must not stand in free pages
        "cache_size": -_CACHE_KIB,
        "wal_autocheckpoint": _LOG_PAGES,
    },
    refusal="is another database than a window. Name another file with --review-file.",
)


class Lock:
    """Keeps a second program from writing the same window."""

    def __init__(self, path: Path) -> None:
        """Lock a window.

        Raises:
            StateError: another program has it, or a file cannot be made beside it.
        """
        # Not the database itself: to close a file gives up what SQLite has locked in it.
        self._path = path.with_name(path.name + ".lock")
        try:
            self._file = os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600)
        except OSError as error:
            msg = f"{path} cannot be made: {error.strerror}. Name another file with --review-file."
            raise StateError(msg) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            msg = f"{path} is in use by another process. Wait for it, or name another file."
            raise StateError(msg) from error

    def release(self) -> None:
        """Give the lock back."""
        os.close(self._file)


def open_writer(path: Path) -> sqlite3.Connection:
    """Open a window to be written; make it if there is none.

    Raises:
        StateError: the file cannot be used, or is another database.
    """
    try:
        path.touch(0o600)  # it has the texts of documents
        database = sqlite3.connect(path, timeout=5.0, isolation_level=None, check_same_thread=False)
        try:
            prepare(database, path, _WINDOW)
        except BaseException:
            database.close()
            raise
    except (sqlite3.Error, OSError) as error:
        msg = f"{path} cannot be used as a window: {error}. Name another file with --review-file."
        raise StateError(msg) from error
    return database


def tables_of(database: sqlite3.Connection) -> list[str]:
    """Return the names of all tables."""
    found = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return [name for (name,) in found]


def open_reader(path: Path) -> sqlite3.Connection:
    """Open a window to be read."""
    place = f"{path.absolute().as_uri()}?mode=ro"
    database = sqlite3.connect(
        place, timeout=5.0, isolation_level=None, check_same_thread=False, uri=True
    )
    database.row_factory = sqlite3.Row
    database.execute("PRAGMA query_only = ON")
    database.execute(f"PRAGMA mmap_size = {_MAPPED}")
    return database
