"""The state file: what a memory index holds, kept between runs.

An SQLite database in WAL mode. ``originals`` has one row for each claimed batch that registered
originals (``state_rows``), written in one transaction, so a process killed at any moment leaves a
file that holds a prefix of the stream's batches and nothing else. ``changes`` has, in the same
sequence of numbers, what became of originals later: which were forgotten, which were renewed.
``purge`` carries changes out in the rows and leaves out what has expired. ``meta`` holds the
format, the fingerprint configuration, the watermark, the session that has not ended, if any, and
the seal over everything (``state_seal``), which is checked before any row is used.

A *session* is all that one run over its input does to the file. What was there before it began
stays until it ends, so a run that was killed and is made again can begin where the first one did:
then it gives the same answers, although the first one may have forgotten originals and let others
expire. Sessions can be told by their first document only, so only a run over files asks for one.

A file of format 1 has no seal, and gets one when it is opened to be written; one of its first
version has no ``changes`` either, and opens as one that has none.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
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
from stream_dedup.index.state_seal import SEAL, Seal
from stream_dedup.replacing import replacing
from stream_dedup.types import DocumentId

_FORMAT = "2"
_UNSEALED = "1"
#: All that a file may tell of itself.
_TOLD = {"format", "configuration", "settings", "watermark", "session", SEAL}
#: What SQLite reports when nothing can be written; of a quota it knows only that a write failed.
_NO_ROOM = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE}
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


@contextmanager
def new_state_file(path: Path) -> Iterator[Path]:
    """Give a path to make a state file at, which gets its name at the end if all goes well.

    Raises:
        FileExistsError: there is one already.
        OSError: it cannot be made, or another process is making it.
    """
    with replacing(path, new=True) as partial:
        try:
            yield partial
            if _logs(partial)[0].exists():
                msg = "its log could not be written to it"
                raise OSError(msg)
            # A log that outlived its file would be read as this one's.
            for log in _logs(Path(os.path.realpath(path))):
                log.unlink(missing_ok=True)
        finally:
            for log in _logs(partial):
                log.unlink(missing_ok=True)


def _logs(path: Path) -> list[Path]:
    """Return the files that SQLite keeps beside its own."""
    return [path.with_name(path.name + suffix) for suffix in ("-wal", "-shm", "-journal")]


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
        self._meta: dict[str, str] = {}
        self._seal = Seal()
        with self._errors():
            if reading is not None:
                self._database = reading.connect()
            else:
                self._make(configuration, described)
                self._database = sqlite3.connect(path, timeout=2.0, isolation_level=None)
        try:
            with self._errors():
                self._process, self._file = os.getpid(), path.stat()
                self._open(configuration, described, writes=reading is None)
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
                self._insert("originals", pack(batch, keeps_ranks=self._keeps_ranks))
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
        with self._transaction():
            self._purge(watermark, expires_before)

    def finish(self, watermark: float, expires_before: float) -> None:
        """End the session, and remove what had to stay for as long as it lasted.

        All or nothing: a session that has ended cannot be made again.
        """
        with self._transaction():
            if self._session is not None:
                self._session = None
                self._write_session()
            self._purge(watermark, expires_before)

    def close(self) -> None:
        """Close the file, unless it is that of the process that this one was forked from."""
        if os.getpid() == self._process:
            self._database.close()

    def _undo(self) -> None:
        """Take back what the session did."""
        assert self._session is not None  # noqa: S101 - for the type checker
        for rows in ("originals WHERE batch > ?", "changes WHERE place > ?"):
            self._remove(rows, self._session.baseline)
        before = self._session.watermark
        self.watermark = NEVER if before is None else before
        self._write_meta("watermark", repr(self.watermark))

    def _purge(self, watermark: float, expires_before: float) -> None:
        baseline = 0 if self._session is None else self._session.baseline
        self._advance(watermark)
        changes = self.changes()
        query = "SELECT batch FROM originals WHERE batch > ? ORDER BY batch"
        for (place,) in self._database.execute(query, [baseline]).fetchall():
            self._purge_row(place, changes, expires_before)
        kept = changes.kept(baseline, self._ids_until(baseline), expires_before)
        self._remove("changes WHERE place > ?", baseline)
        for place, change in kept:
            self._write("changes", place, change)
        self._database.execute("PRAGMA incremental_vacuum").fetchall()

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
        self._remove("originals WHERE batch = ?", place)
        if len(stays):
            self._write("originals", place, pack(stays, keeps_ranks=self._keeps_ranks))

    def _ids_until(self, baseline: int) -> set[DocumentId]:
        """Return the ids of originals that were there before the session."""
        ids: set[DocumentId] = set()
        query = "SELECT columns FROM originals WHERE batch <= ?"
        for (row,) in self._database.execute(query, [baseline]):
            ids.update(unpack(row).ids)
        return ids

    def _insert(self, table: str, value: bytes) -> None:
        self._place += 1
        self._write(table, self._place, value)

    def _write(self, table: str, place: int, value: bytes) -> None:
        self._seal.add(table, [(place, value)])
        self._database.execute(f"INSERT INTO {table} VALUES (?, ?)", [place, value])  # noqa: S608

    def _remove(self, rows: str, place: int) -> None:
        """Remove rows of a table, both named as in SQL."""
        gone = self._database.execute(f"SELECT * FROM {rows}", [place])  # noqa: S608
        self._seal.remove(rows.partition(" ")[0], gone)
        self._database.execute(f"DELETE FROM {rows}", [place])  # noqa: S608

    def _advance(self, watermark: float) -> None:
        if watermark > self.watermark:
            self.watermark = watermark
            self._write_meta("watermark", repr(watermark))

    def _write_session(self) -> None:
        if self._session is None:
            self._meta.pop("session", None)
            self._database.execute("DELETE FROM meta WHERE name = 'session'")
        else:
            self._write_meta("session", msgspec.json.encode(self._session).decode())

    def _write_meta(self, name: str, value: str) -> None:
        self._meta[name] = value
        self._database.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", [name, value])

    def _open(self, configuration: str, described: str, *, writes: bool) -> None:
        """See that the file is what it should be, and read what it tells of itself."""
        if self.path.is_file() and not self._file.st_size:
            # SQLite would take it for new, and everything that was in it would be too.
            msg = f"{self.path} is empty: it lost what it held. Remove it to begin a new one."
            raise StateError(msg)
        if self._file.st_nlink > 1:
            # Beside each name SQLite would look for another log, and take what it finds for all.
            msg = f"{self.path} has another name, a hard link. Remove one, or use a symbolic link."
            raise StateError(msg)
        if writes:
            self._lock()
        self._meta = self._stored()
        self._check(self._meta, configuration, described)
        self._check_seal()
        if writes and SEAL not in self._meta:
            with self._transaction():
                self._write_meta("format", _FORMAT)
        self._read(self._meta)

    def _stored(self) -> dict[str, str]:
        """Return what the file tells of itself; leave the database of another program alone."""
        names = "SELECT name FROM sqlite_master WHERE type = 'table'"
        tables = {name for (name,) in self._database.execute(names)}
        if not {"meta", "originals"} <= tables:
            msg = f"{self.path} is not a state file but another database. Use a new --state file."
            raise StateError(msg)
        meta = self._database.execute("SELECT name, value FROM meta").fetchall()
        return msgspec.convert(dict(meta), dict[str, str])

    def _make(self, configuration: str, described: str) -> None:
        """Make a new file, which appears whole: one without a byte is always one that lost them."""
        place = Path(os.path.realpath(self.path))
        if place.exists() or place.is_symlink():  # a link that leads nowhere but to itself
            return
        meta = {"format": _FORMAT, "configuration": configuration, "settings": described}
        meta[SEAL] = Seal().over(meta)
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as made:
            made.execute("PRAGMA auto_vacuum = INCREMENTAL")
            made.executescript(_SCHEMA)
            made.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
            content = made.serialize()
        # Who comes second finds the file that the first one made, which is locked or not.
        with suppress(FileExistsError), new_state_file(place) as partial:
            partial.write_bytes(content)

    def _lock(self) -> None:
        """Lock the file and see that it has all tables."""
        execute = self._database.execute
        self._stored()
        execute("PRAGMA locking_mode = EXCLUSIVE")
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = NORMAL")
        execute("PRAGMA secure_delete = ON")  # what was forgotten must not stand in free pages
        execute("BEGIN IMMEDIATE")
        for statement in _SCHEMA.split(";"):
            execute(statement)
        execute("COMMIT")

    def _check_seal(self) -> None:
        """See that everything is as it was written."""
        for table in ("originals", "changes")[: 1 + self._has_changes()]:
            self._seal.add(table, self._database.execute(f"SELECT * FROM {table}"))  # noqa: S608
        unsealed = SEAL not in self._meta and self._meta.get("format") == _UNSEALED
        if self._meta.keys() - _TOLD or not (
            unsealed or self._meta.get(SEAL) == self._seal.over(self._meta)
        ):
            msg = (
                f"{self.path} is damaged: what it holds is not what was written to it. Put a copy "
                "in its place, or remove it to begin a new one."
            )
            raise StateError(msg)

    def _check(self, meta: dict[str, str], configuration: str, described: str) -> None:
        if meta.get("format") not in {_FORMAT, _UNSEALED}:
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

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Change the file, and what is known of it here, or neither.

        In WAL mode a full disk is often noticed at COMMIT, and the transaction may be over then.
        """
        with self._errors():
            self._check_place()
            seal, known = Seal(self._seal.rows), (dict(self._meta), self.watermark)
            session, place = self._session, self._place
            try:
                self._database.execute("BEGIN IMMEDIATE")
                yield
                self._write_meta(SEAL, self._seal.over(self._meta))
                self._database.execute("COMMIT")
            except BaseException:
                (self._meta, self.watermark), self._seal = known, seal
                self._session, self._place = session, place
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise

    def _check_place(self) -> None:
        """See that what is written will be found: by this process, and under this name.

        Raises:
            StateError: it will not.
        """
        if os.getpid() != self._process:
            msg = f"{self.path} was opened before this process was forked. Open it anew in one."
            raise StateError(msg)
        with suppress(FileNotFoundError):
            if os.path.samestat(self.path.stat(), self._file):
                return
        msg = (
            f"{self.path} was removed or replaced while it was in use: nothing more can be kept in "
            "it. Put it back, or begin a new one, and do the same again."
        )
        raise StateError(msg)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn what can go wrong with the file into a sentence."""
        try:
            yield
        except (sqlite3.Error, msgspec.MsgspecError, ValueError, OSError) as error:
            raise StateError(self._sentence(error)) from error

    def _sentence(self, error: Exception) -> str:
        if "locked" in str(error):
            return f"{self.path} is in use by another process. Wait for it, or use another file."
        if getattr(error, "sqlite_errorcode", None) in _NO_ROOM:
            return f"{self.path} cannot be written: {error}. Make room, and do the same again."
        return (
            f"{self.path} cannot be used as a state file: {error}. Name another one with --state."
        )
