"""What the review page's SQLite files have in common: each knows what it is a file of."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from stream_dedup.errors import StateError


class Kind(NamedTuple):
    """A kind of database.

    Attributes:
        application: marks a file as one of this kind (``PRAGMA application_id``).
        version: of its tables.
        tables: the SQL that makes them.
        pragmas: how a connection that writes is set up.
        refusal: what is said of a database of another kind or version, after its path.
    """

    application: int
    version: int
    tables: str
    pragmas: Mapping[str, object]
    refusal: str


def prepare(database: sqlite3.Connection, path: Path, kind: Kind) -> None:
    """Set up a connection that writes; make the tables where there are none.

    Raises:
        StateError: it is another database.
    """
    tables = database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    marks = tuple(
        database.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("application_id", "user_version")
    )
    if tables and marks != (kind.application, kind.version):
        msg = f"{path} {kind.refusal}"
        raise StateError(msg)
    database.execute("PRAGMA journal_mode = WAL")
    for name, value in kind.pragmas.items():
        database.execute(f"PRAGMA {name} = {value}")
    with transaction(database):
        # Another program may have made them since.
        if not database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            for statement in kind.tables.split(";"):
                database.execute(statement)
            database.execute(f"PRAGMA application_id = {kind.application}")
            database.execute(f"PRAGMA user_version = {kind.version}")


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    """Change a database, or nothing of it.

    In WAL mode a full disk is often noticed at COMMIT, and the transaction may be over then.
    """
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise
