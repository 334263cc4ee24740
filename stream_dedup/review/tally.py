"""What documents that come and go change in the window's counts."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

#: Minutes in which a group's growth is counted.
RECENT = 60
_MINUTE_MS = 60_000


class Counted(NamedTuple):
    """What is counted of one document; columns of ``documents``.

    Attributes:
        row: its row.
        duplicate_id: name of its group.
        status: 0 original, 1 exact duplicate, 2 near duplicate.
        similarity: 0 to 1, or None.
        at: milliseconds since the epoch.
        source: what it comes from.
        hamming_distance: differing fingerprint bits, or None.
    """

    row: int
    duplicate_id: str
    status: int
    similarity: float | None
    at: int
    source: str
    hamming_distance: int | None

    @property
    def minute(self) -> int:
        """Minutes since the epoch."""
        return self.at // _MINUTE_MS


class _Change:
    """What changes in one group."""

    __slots__ = ("documents", "exact", "first_at", "last_at", "near", "original_row")

    def __init__(self, at: int) -> None:
        self.documents = self.exact = self.near = 0
        self.original_row: int | None = None
        self.first_at = self.last_at = at


def count_in(database: sqlite3.Connection, documents: Sequence[Counted], clock: int) -> None:
    """Add documents to all counts.

    Args:
        database: the window, in a transaction.
        documents: which, the oldest first.
        clock: latest minute that the window has seen; growth before it by ``RECENT`` is not kept.
    """
    rows = [
        (name, one.original_row, one.documents, one.exact, one.near, one.first_at, one.last_at)
        for name, one in _changes(documents).items()
    ]
    database.executemany(
        "INSERT INTO groups VALUES (?, ?, ?, ?, ?, ?, ?, 0) ON CONFLICT DO UPDATE SET"
        " original_row = coalesce(excluded.original_row, original_row),"
        " documents = documents + excluded.documents, exact = exact + excluded.exact,"
        " near = near + excluded.near, first_at = min(first_at, excluded.first_at),"
        " last_at = max(last_at, excluded.last_at)",
        rows,
    )
    _count(database, documents, 1)
    _grow(database, _growth(documents, clock), 1)


def count_out(database: sqlite3.Connection, documents: Sequence[Counted], clock: int) -> None:
    """Take documents off all counts, after their rows have gone (see ``count_in``)."""
    _count(database, documents, -1)
    _grow(database, _growth(documents, clock), -1)
    changes = _changes(documents)
    database.executemany(
        "UPDATE groups SET original_row = nullif(original_row, ?), documents = documents - ?,"
        " exact = exact - ?, near = near - ? WHERE duplicate_id = ?",
        [
            (one.original_row, one.documents, one.exact, one.near, name)
            for name, one in changes.items()
        ],
    )
    names = [(name,) for name in changes]
    database.executemany("DELETE FROM groups WHERE duplicate_id = ? AND documents = 0", names)
    database.executemany(
        "UPDATE groups SET"
        " first_at = (SELECT min(at) FROM documents AS d WHERE d.duplicate_id = :name),"
        " last_at = (SELECT max(at) FROM documents AS d WHERE d.duplicate_id = :name)"
        " WHERE duplicate_id = :name",
        [{"name": name} for name in changes],
    )
    # An original that was decided twice may still be there once.
    database.executemany(
        "UPDATE groups SET original_row = (SELECT max(row) FROM documents AS d"
        " WHERE d.duplicate_id = :name AND d.status = 0)"
        " WHERE duplicate_id = :name AND original_row IS NULL",
        [{"name": name} for name, one in changes.items() if one.original_row is not None],
    )


def forget_growth(database: sqlite3.Connection, clock: int) -> None:
    """Take off the growth of minutes that are no longer recent."""
    old = database.execute(
        "SELECT duplicate_id, sum(documents) FROM growth WHERE minute <= ? GROUP BY duplicate_id",
        [clock - RECENT],
    ).fetchall()
    if old:
        database.executemany(
            "UPDATE groups SET recent = recent - ? WHERE duplicate_id = ?",
            [(documents, name) for name, documents in old],
        )
        database.execute("DELETE FROM growth WHERE minute <= ?", [clock - RECENT])


def _changes(documents: Iterable[Counted]) -> dict[str, _Change]:
    changes: dict[str, _Change] = {}
    for row, name, status, _similarity, at, _source, _distance in documents:
        change = changes.get(name)
        if change is None:
            change = changes[name] = _Change(at)
        change.documents += 1
        if status == 0:
            change.original_row = row
        elif status == 1:
            change.exact += 1
        else:
            change.near += 1
        if at < change.first_at:
            change.first_at = at
        elif at > change.last_at:
            change.last_at = at
    return changes


def _growth(documents: Iterable[Counted], clock: int) -> Counter[tuple[int, str]]:
    return Counter(
        (one.minute, one.duplicate_id)
        for one in documents
        if one.status and one.minute > clock - RECENT
    )


def _grow(database: sqlite3.Connection, growth: Counter[tuple[int, str]], sign: int) -> None:
    if not growth:
        return
    database.executemany(
        "INSERT INTO growth VALUES (?, ?, ?)"
        " ON CONFLICT DO UPDATE SET documents = documents + excluded.documents",
        [(*key, sign * documents) for key, documents in growth.items()],
    )
    database.executemany(
        "UPDATE groups SET recent = recent + ? WHERE duplicate_id = ?",
        [(sign * documents, name) for (_, name), documents in growth.items()],
    )
    if sign < 0:
        gone = "DELETE FROM growth WHERE minute = ? AND duplicate_id = ? AND documents = 0"
        database.executemany(gone, list(growth))


def _count(database: sqlite3.Connection, documents: Sequence[Counted], sign: int) -> None:
    """Add to, or take off, the counts that do not go by groups."""
    for table, key, counts in _simple(documents):
        database.executemany(
            f"INSERT INTO {table} VALUES (?, ?, ?)"  # noqa: S608 - both are written here
            " ON CONFLICT DO UPDATE SET documents = documents + excluded.documents",
            [(*at, sign * count) for at, count in counts.items()],
        )
        if sign < 0:
            database.executemany(
                f"DELETE FROM {table} WHERE {key} = ? AND status = ? AND documents = 0",  # noqa: S608
                list(counts),
            )
    _count_sources(database, documents, sign)


def _simple(
    documents: Sequence[Counted],
) -> Iterator[tuple[str, str, Counter[tuple[int, int]]]]:
    """Count in the tables that have a number and a status as key: (table, column, counts)."""
    minutes = Counter((one.minute, one.status) for one in documents)
    yield "minutes", "minute", minutes
    for table, column, size in (("hours", "hour", 60), ("days", "day", 1440)):
        counts: Counter[tuple[int, int]] = Counter()
        for (minute, status), number in minutes.items():
            counts[minute // size, status] += number
        yield table, column, counts
    duplicates = [one for one in documents if one.status]
    alike = Counter(
        (int(one.similarity * 100 + 1e-9), one.status)
        for one in duplicates
        if one.similarity is not None
    )
    yield "similarities", "bin", alike
    apart = Counter(
        (one.hamming_distance, one.status)
        for one in duplicates
        if one.similarity is None and one.hamming_distance is not None
    )
    yield "distances", "distance", apart


def _count_sources(database: sqlite3.Connection, documents: Sequence[Counted], sign: int) -> None:
    sources = Counter(one.source for one in documents if one.source)
    duplicates = Counter(one.source for one in documents if one.source and one.status)
    database.executemany(
        "INSERT INTO sources VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET"
        " documents = documents + excluded.documents,"
        " duplicates = duplicates + excluded.duplicates",
        [(name, sign * count, sign * duplicates[name]) for name, count in sources.items()],
    )
    if sign < 0:
        gone = "DELETE FROM sources WHERE source = ? AND documents = 0"
        database.executemany(gone, [(name,) for name in sources])
