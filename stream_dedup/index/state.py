"""The state file: what a memory index holds, kept between runs.

An SQLite database in WAL mode. ``originals`` has one row for each claimed batch that registered
originals (``state_rows``), written in one transaction, so a process killed at any moment leaves a
file that holds a prefix of the stream's batches and nothing else. ``changes`` has, in the same
sequence of numbers, what became of originals later: which were forgotten, which were renewed.
``purge`` carries changes out in the rows and leaves out what has expired. ``meta`` holds the
format, the fingerprint configuration, the watermark, and the session that has not ended, if any.

A *session* is all that one run over its input does to the file. What was there before it began
stays until it ends, so a run that was killed and is made again can begin where the first one did:
then it gives the same answers, although the first one may have forgotten originals and let others
expire. Sessions can be told by their first document only, so only a run over files asks for one.

A file of an earlier version of this format has no ``changes`` and opens as one that has none.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np

from stream_dedup.errors import ConfigurationMismatch, StateError
from stream_dedup.index.base import IndexBatch
from stream_dedup.index.description import sentence
from stream_dedup.index.expiry import NEVER
from stream_dedup.index.state_changes import Changes, forgetting, renewal_keys
from stream_dedup.index.state_reading import Reading
from stream_dedup.index.state_rows import pack, unpack
from stream_dedup.types import DocumentId

_FORMAT = "1"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS originals (batch INTEGER PRIMARY KEY, columns BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS changes (place INTEGER PRIMARY KEY, change BLOB NOT NULL) STRICT;
"""


class Session(msgspec.Struct, frozen=True):
    """A session that has not ended.

    Attributes:
        first: names its first document.
        baseline: the last place that was taken before it.
        watermark: the watermark before it; None for ``NEVER``.
    """

    first: str
    baseline: int
    watermark: float | None


class StateFile:
    """Originals on disk, for one fingerprint configuration and one process at a time.

    Attributes:
        watermark: the largest event time that the file knows of.
    """

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
        self.watermark = NEVER
        self._keeps_ranks = keeps_ranks
        self._session: Session | None = None
        self._place = 0
        with self._errors():
            if reading is None:
                self._database = sqlite3.connect(path, timeout=2.0, isolation_level=None)
            else:
                self._database = reading.connect()
        try:
            with self._errors():
                meta = self._open(configuration, described) if reading is None else self._stored()
                self._check(meta, configuration, described)
                self._read(meta)
        except BaseException:
            self._database.close()
            raise

    def load(self) -> Iterator[IndexBatch]:
        """Read the batches of originals in the order in which they were registered."""
        with self._errors():
            forgotten = self.changes().forgotten
            for place, row in self._database.execute("SELECT * FROM originals ORDER BY batch"):
                batch = unpack(row)
                if forgotten:
                    batch = batch.rows(np.flatnonzero(~forgotten.marks(batch, place)))
                if len(batch):  # a first version also wrote batches without any original
                    yield batch

    def changes(self) -> Changes:
        """Read what became of originals after they were registered."""
        if not self._has_changes():
            return Changes([])
        query = "SELECT place, change FROM changes ORDER BY place"
        return Changes(self._database.execute(query))

    def append(self, batches: Sequence[IndexBatch], watermark: float, renewed: bytes = b"") -> None:
        """Add the originals of one claimed batch, and those that it renewed, in one transaction."""
        with self._transaction():
            for batch in batches:
                row = pack(batch, keeps_ranks=self._keeps_ranks)
                self._insert("originals", row)
            if renewed:
                self._insert("changes", renewed)
            self._advance(watermark)

    def forget(self, ids: Sequence[DocumentId], digests: Sequence[bytes] | None) -> None:
        """Note that the originals with these ids, and with these texts if given, are forgotten."""
        with self._transaction():
            self._insert("changes", forgetting(ids, digests))

    def begin(self, first: str | None) -> bool:
        """Begin a session, or begin once more the one that has not ended.

        Args:
            first: names the first document; None for what is no session.

        Returns:
            Whether it is the one that has not ended: then nothing of it is left.
        """
        again = self._session is not None and self._session.first == first
        with self._transaction():
            if again:
                self._undo()
            else:
                before = None if self.watermark == NEVER else self.watermark
                self._session = None if first is None else Session(first, self._place, before)
                self._write_session()
        return again

    def purge(self, watermark: float, expires_before: float) -> None:
        """Remove what was forgotten, and what expired before this event time, from the file.

        During a session only its own originals go.
        """
        baseline = 0 if self._session is None else self._session.baseline
        with self._transaction():
            self._advance(watermark)
            changes = self.changes()
            query = "SELECT batch FROM originals WHERE batch > ? ORDER BY batch"
            for (place,) in self._database.execute(query, [baseline]).fetchall():
                self._purge_row(place, changes, expires_before)
            self._database.execute("DELETE FROM changes WHERE place > ?", [baseline])
            kept = changes.kept(baseline, self._ids_until(baseline), expires_before)
            self._database.executemany("INSERT INTO changes VALUES (?, ?)", kept)
        with self._errors():
            self._database.execute("PRAGMA incremental_vacuum").fetchall()

    def finish(self, watermark: float, expires_before: float) -> None:
        """End the session, and remove what had to stay for as long as it lasted."""
        if self._session is not None:
            with self._transaction():
                self._session = None
                self._write_session()
        self.purge(watermark, expires_before)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _undo(self) -> None:
        """Take back what the session did."""
        assert self._session is not None  # noqa: S101 - for the type checker
        for query in ("originals WHERE batch > ?", "changes WHERE place > ?"):
            self._database.execute(f"DELETE FROM {query}", [self._session.baseline])  # noqa: S608
        before = self._session.watermark
        self.watermark = NEVER if before is None else before
        self._write_meta("watermark", repr(self.watermark))

    def _purge_row(self, place: int, changes: Changes, expires_before: float) -> None:
        query = "SELECT columns FROM originals WHERE batch = ?"
        batch = unpack(self._database.execute(query, [place]).fetchone()[0])
        gone = changes.forgotten.marks(batch, place)
        if expires_before != NEVER:
            keys = renewal_keys(batch.identities, batch.digest_words())
            gone |= changes.renewed.of(keys, batch.times) < expires_before
        if not gone.any() and len(batch):
            return
        stays = batch.rows(np.flatnonzero(~gone))
        if not len(stays):
            self._database.execute("DELETE FROM originals WHERE batch = ?", [place])
            return
        row = pack(stays, keeps_ranks=self._keeps_ranks)
        self._database.execute("UPDATE originals SET columns = ? WHERE batch = ?", [row, place])

    def _ids_until(self, baseline: int) -> set[DocumentId]:
        """Return the ids of originals that were there before the session."""
        ids: set[DocumentId] = set()
        query = "SELECT columns FROM originals WHERE batch <= ?"
        for (row,) in self._database.execute(query, [baseline]):
            ids.update(unpack(row).ids)
        return ids

    def _insert(self, table: str, value: bytes) -> None:
        self._place += 1
        self._database.execute(f"INSERT INTO {table} VALUES (?, ?)", [self._place, value])  # noqa: S608

    def _advance(self, watermark: float) -> None:
        if watermark > self.watermark:
            self.watermark = watermark
            self._write_meta("watermark", repr(watermark))

    def _write_session(self) -> None:
        if self._session is None:
            self._database.execute("DELETE FROM meta WHERE name = 'session'")
        else:
            self._write_meta("session", msgspec.json.encode(self._session).decode())

    def _write_meta(self, name: str, value: str) -> None:
        self._database.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", [name, value])

    def _stored(self) -> dict[str, str]:
        """Return what the file tells of itself."""
        self._is_new()
        return dict(self._database.execute("SELECT name, value FROM meta").fetchall())

    def _open(self, configuration: str, described: str) -> dict[str, str]:
        """Lock the file; return what it tells of itself, which a new one is told first."""
        execute = self._database.execute
        execute("PRAGMA locking_mode = EXCLUSIVE")
        if self._is_new():
            execute("PRAGMA auto_vacuum = INCREMENTAL")
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = NORMAL")
        execute("PRAGMA secure_delete = ON")  # what was forgotten must not stand in free pages
        with self._transaction():
            for statement in _SCHEMA.split(";"):
                execute(statement)
            meta = dict(execute("SELECT name, value FROM meta").fetchall())
            if not meta:
                meta = {
                    "format": _FORMAT,
                    "configuration": configuration,
                    "settings": described,
                }
                self._database.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
        return meta

    def _check(self, meta: dict[str, str], configuration: str, described: str) -> None:
        if meta.get("format") != _FORMAT:
            msg = (
                f"{self.path} was made by another version of stream-dedup. Use a new --state file."
            )
            raise StateError(msg)
        if meta.get("configuration") != configuration:
            differing = sentence(meta.get("settings"), described)
            msg = (
                f"{self.path} was made with other fingerprint settings (configuration "
                f"{meta.get('configuration')}, now {configuration}).{differing} Run with the "
                f"settings it was made with, or make a new --state file: stream-dedup rebuild."
            )
            raise ConfigurationMismatch(msg)

    def _read(self, meta: dict[str, str]) -> None:
        self.watermark = float(meta.get("watermark", NEVER))
        if "session" in meta:
            self._session = msgspec.json.decode(meta["session"], type=Session)
        places = "SELECT max(batch) FROM originals"
        if self._has_changes():
            places += " UNION SELECT max(place) FROM changes"
        self._place = max(place or 0 for (place,) in self._database.execute(places))
        if self._session is not None:
            self._place = max(self._place, self._session.baseline)

    def _has_changes(self) -> bool:
        """Say whether there is a table of changes; not in a first version that is only read."""
        query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'changes'"
        return self._database.execute(query).fetchone() is not None

    def _is_new(self) -> bool:
        """Say whether there is nothing yet; leave the database of another program as it is."""
        names = "SELECT name FROM sqlite_master WHERE type = 'table'"
        tables = {name for (name,) in self._database.execute(names)}
        if tables and not {"meta", "originals"} <= tables:
            msg = f"{self.path} is not a state file but another database. Use a new --state file."
            raise StateError(msg)
        return not tables

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._errors():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._database.execute("ROLLBACK")
                raise
            self._database.execute("COMMIT")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn what can go wrong with the file into a sentence."""
        try:
            yield
        except (sqlite3.Error, msgspec.MsgspecError, ValueError) as error:
            raise StateError(self._sentence(error)) from error

    def _sentence(self, error: Exception) -> str:
        if "locked" in str(error):
            return f"{self.path} is in use by another process. Wait for it, or use another file."
        return (
            f"{self.path} cannot be used as a state file: {error}. Name another one with --state."
        )
