"""The state file: what a memory index holds, kept between runs.

An SQLite database in WAL mode. Each claimed batch that registered originals is one row, written in
one transaction, so a process killed at any moment leaves a file that holds a prefix of the stream's
batches and nothing else. ``meta`` holds the format and the fingerprint configuration.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stream_dedup.errors import ConfigurationMismatch, StateError
from stream_dedup.fingerprint.fingerprinter import Fingerprints
from stream_dedup.index.base import IndexBatch
from stream_dedup.index.description import sentence
from stream_dedup.index.state_reading import Reading
from stream_dedup.types import DocumentId

_FORMAT = "1"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS originals (batch INTEGER PRIMARY KEY, columns BLOB NOT NULL) STRICT;
"""


class _Columns(msgspec.Struct, array_like=True):
    """One batch of originals as it is stored; arrays are little-endian, row by row."""

    ids: list[DocumentId]
    identities: bytes
    times: bytes
    digests: bytes
    keys: bytes
    sketches: bytes


class _Extended(_Columns, array_like=True):
    """The same with what only some configurations keep; in a file without it, it is empty."""

    payloads: list[bytes] = []
    ranks: bytes = b""


class StateFile:
    """Originals on disk, for one fingerprint configuration and one process at a time."""

    def __init__(
        self,
        path: Path,
        configuration: str,
        *,
        keeps_ranks: bool = False,
        described: str = "{}",
        reading: Reading | None = None,
    ) -> None:
        """Open the file, or make it; with ``reading`` it must be there and is only read.

        Args:
            path: the file.
            configuration: version of the fingerprint configuration.
            keeps_ranks: whether the ranks of originals are kept.
            described: the settings behind the configuration (see ``description``).
            reading: opens the file for reading.

        Raises:
            StateError: the file cannot be opened, is in use, or is not a state file.
            ConfigurationMismatch: it was made with other fingerprint settings.
        """
        self.path = path
        self._keeps_ranks = keeps_ranks
        try:
            if reading is None:
                self._database = sqlite3.connect(path, timeout=2.0, isolation_level=None)
            else:
                self._database = reading.connect()
        except sqlite3.Error as error:
            raise StateError(self._sentence(error)) from error
        try:
            stored = self._stored() if reading else self._open(configuration, described)
            self._check(stored, configuration, described)
        except BaseException:
            self._database.close()
            raise

    def load(self) -> Iterator[IndexBatch]:
        """Read the batches of originals in the order in which they were registered."""
        decoder = msgspec.msgpack.Decoder(_Extended)
        try:
            for (blob,) in self._database.execute("SELECT columns FROM originals ORDER BY batch"):
                columns = decoder.decode(blob)
                if columns.ids:  # a first version also wrote batches without any original
                    yield _unpack(columns)
        except (sqlite3.Error, msgspec.MsgspecError, ValueError) as error:
            raise StateError(self._sentence(error)) from error

    def append(self, batches: Sequence[IndexBatch]) -> None:
        """Add the originals of one claimed batch, in one transaction."""
        try:
            self._database.execute("BEGIN IMMEDIATE")
            for batch in batches:
                blob = msgspec.msgpack.encode(self._pack(batch))
                self._database.execute("INSERT INTO originals (columns) VALUES (?)", (blob,))
            self._database.execute("COMMIT")
        except sqlite3.Error as error:
            raise StateError(self._sentence(error)) from error

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _stored(self) -> dict[str, str]:
        """Return what the file tells of itself."""
        try:
            self._refuse_foreign()
            return dict(self._database.execute("SELECT name, value FROM meta").fetchall())
        except sqlite3.Error as error:
            raise StateError(self._sentence(error)) from error

    def _open(self, configuration: str, described: str) -> dict[str, str]:
        """Lock the file; return what it tells of itself, which a new one is told first."""
        try:
            self._database.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._refuse_foreign()
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = NORMAL")
            self._database.execute("BEGIN IMMEDIATE")
            for statement in _SCHEMA.split(";"):
                self._database.execute(statement)
            stored = dict(self._database.execute("SELECT name, value FROM meta").fetchall())
            if not stored:
                stored = {
                    "format": _FORMAT,
                    "configuration": configuration,
                    "settings": described,
                }
                self._database.executemany("INSERT INTO meta VALUES (?, ?)", stored.items())
            self._database.execute("COMMIT")
        except sqlite3.Error as error:
            raise StateError(self._sentence(error)) from error
        return stored

    def _check(self, stored: dict[str, str], configuration: str, described: str) -> None:
        if stored.get("format") != _FORMAT:
            msg = (
                f"{self.path} was made by another version of stream-dedup. Use a new --state file."
            )
            raise StateError(msg)
        if stored.get("configuration") != configuration:
            differing = sentence(stored.get("settings"), described)
            msg = (
                f"{self.path} was made with other fingerprint settings (configuration "
                f"{stored.get('configuration')}, now {configuration}).{differing} Run with the "
                f"settings it was made with, or make a new --state file: stream-dedup rebuild."
            )
            raise ConfigurationMismatch(msg)

    def _refuse_foreign(self) -> None:
        """Leave the database of another program as it is."""
        names = "SELECT name FROM sqlite_master WHERE type = 'table'"
        tables = {name for (name,) in self._database.execute(names)}
        if tables and not {"meta", "originals"} <= tables:
            msg = f"{self.path} is not a state file but another database. Use a new --state file."
            raise StateError(msg)

    def _pack(self, batch: IndexBatch) -> _Columns:
        columns: dict[str, Any] = {
            "ids": batch.ids,
            "identities": batch.identities.astype("<u8").tobytes(),
            "times": batch.times.astype("<f8").tobytes(),
            "digests": b"".join(batch.prints.digests),
            "keys": batch.prints.keys.astype("<u8").tobytes(),
            "sketches": batch.prints.sketches.tobytes(),
        }
        if not batch.prints.payloads and not self._keeps_ranks:
            return _Columns(**columns)
        ranks = batch.ranks.astype("<f8").tobytes() if self._keeps_ranks else b""
        return _Extended(**columns, payloads=list(batch.prints.payloads), ranks=ranks)

    def _sentence(self, error: Exception) -> str:
        if "locked" in str(error):
            return f"{self.path} is in use by another process. Wait for it, or use another file."
        return (
            f"{self.path} cannot be used as a state file: {error}. Name another one with --state."
        )


def _unpack(columns: _Extended) -> IndexBatch:
    count = len(columns.ids)
    ranks = np.frombuffer(columns.ranks, "<f8") if columns.ranks else np.full(count, np.inf)
    digests = columns.digests
    return IndexBatch(
        ids=columns.ids,
        identities=np.frombuffer(columns.identities, "<u8"),
        times=np.frombuffer(columns.times, "<f8"),
        prints=Fingerprints(
            empty=np.zeros(count, np.bool_),
            digests=[digests[start : start + 16] for start in range(0, 16 * count, 16)],
            keys=np.frombuffer(columns.keys, "<u8").reshape(count, -1),
            sketches=np.frombuffer(columns.sketches, np.uint8).reshape(count, -1),
            payloads=columns.payloads,
        ),
        ranks=ranks,
    )
