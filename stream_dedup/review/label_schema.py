"""The database of labels: its tables, and opening it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from stream_dedup.errors import StateError
from stream_dedup.review.database import Kind, prepare

_TABLES = """
CREATE TABLE draws (
    id INTEGER PRIMARY KEY, at INTEGER NOT NULL, configuration TEXT NOT NULL, seed INTEGER NOT NULL,
    settings TEXT NOT NULL, originals INTEGER NOT NULL, asked INTEGER NOT NULL,
    held INTEGER NOT NULL, of INTEGER NOT NULL, found TEXT NOT NULL) STRICT;
CREATE TABLE documents (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, digest BLOB NOT NULL, text BLOB NOT NULL,
    at INTEGER NOT NULL, source TEXT NOT NULL, place INTEGER NOT NULL,
    UNIQUE (name, digest)) STRICT;
CREATE TABLE pairs (
    id INTEGER PRIMARY KEY, draw INTEGER NOT NULL REFERENCES draws, configuration TEXT NOT NULL,
    stratum TEXT NOT NULL, taken INTEGER NOT NULL, score REAL NOT NULL,
    earlier INTEGER NOT NULL REFERENCES documents, later INTEGER NOT NULL REFERENCES documents,
    shared INTEGER NOT NULL, UNIQUE (configuration, earlier, later)) STRICT;
CREATE INDEX pairs_by_later ON pairs (later);
CREATE TABLE labels (
    id INTEGER PRIMARY KEY, pair INTEGER NOT NULL REFERENCES pairs, labeller TEXT NOT NULL,
    label INTEGER NOT NULL, at INTEGER NOT NULL, undone_at INTEGER) STRICT;
CREATE UNIQUE INDEX label_in_force ON labels (pair, labeller) WHERE undone_at IS NULL;
CREATE INDEX labels_by_labeller ON labels (labeller, id) WHERE undone_at IS NULL;
"""

_LABELS = Kind(
    application=0x7364524C,  # "sdRL"
    version=1,
    tables=_TABLES,
    # A label is somebody's work: it is on the disk before the next pair is shown.
    pragmas={"synchronous": "FULL"},
    refusal="is another database than one of labels. Name another with --review-labels.",
)


def open_labels(path: Path) -> sqlite3.Connection:
    """Open a database of labels, or make it; for several threads, one at a time.

    Raises:
        StateError: the file cannot be used, or is another database.
    """
    try:
        database = sqlite3.connect(path, timeout=5.0, isolation_level=None, check_same_thread=False)
        database.row_factory = sqlite3.Row
        try:
            prepare(database, path, _LABELS)
        except BaseException:
            database.close()
            raise
    except sqlite3.Error as error:
        msg = f"{path} cannot be used for labels: {error}. Name another file with --review-labels."
        raise StateError(msg) from error
    return database
