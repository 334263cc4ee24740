"""What the pages ask of the window. Each is answered from an index, however large the window is."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

from stream_dedup.review.window import unpacked, written_id
from stream_dedup.types import DocumentId, ids_meant_by

#: Milliseconds of a slot of each table of counts over time, and the table, the finest first.
_LEVELS = ((60_000, "minutes"), (3_600_000, "hours"), (86_400_000, "days"))
#: Steps of time that people count in, in milliseconds.
_STEPS = tuple(
    minutes * 60_000
    for minutes in (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 7200, 10080, 20160)
)
_STATUSES = 3

#: How near a document is to its original, in a form that SQLite has an index of.
_NEARNESS = "COALESCE(similarity, -hamming_distance, -1000)"
#: Sorts after the last member of a group, and before the first.
_END = 9_000_000_000_000_000_000


class Sort(StrEnum):
    """The order of a group's members."""

    NEAREST = "nearest"
    FARTHEST = "farthest"
    NEWEST = "newest"
    OLDEST = "oldest"

    @property
    def expression(self) -> str:
        """What is sorted by, in SQL."""
        return _NEARNESS if self in {Sort.NEAREST, Sort.FARTHEST} else "at"

    @property
    def descends(self) -> bool:
        """Whether the largest comes first."""
        return self in {Sort.NEAREST, Sort.NEWEST}


class Totals(NamedTuple):
    """How many documents of the window are what."""

    originals: int
    exact: int
    near: int

    @property
    def documents(self) -> int:
        """All of them."""
        return sum(self)

    @property
    def duplicates(self) -> int:
        """Those that have an original."""
        return self.exact + self.near


class OverTime(NamedTuple):
    """Documents of each step of time.

    Attributes:
        begin: when the first step begins, in milliseconds since the epoch.
        step: milliseconds of a step.
        counts: for each step, how many documents were what.
    """

    begin: int
    step: int
    counts: list[Totals]


class Place(NamedTuple):
    """A place in the members of a group: after the member that has these."""

    value: float
    row: int


class Members(NamedTuple):
    """A page of a group's members.

    Attributes:
        rows: the members.
        before: where the page before this one ends, None on the first page.
        after: where the next page begins, None on the last page.
    """

    rows: list[sqlite3.Row]
    before: Place | None
    after: Place | None


def totals(window: sqlite3.Connection) -> Totals:
    """Count the documents of the window."""
    rows = window.execute("SELECT status, sum(documents) FROM days GROUP BY status")
    found = dict(rows.fetchall())
    return Totals(*(found.get(status, 0) for status in range(_STATUSES)))


def over_time(window: sqlite3.Connection, most: int) -> OverTime | None:
    """Count the documents of each step of time.

    Args:
        window: what is asked.
        most: steps, at most; as many as make a step that people count in.

    Returns:
        None for an empty window.
    """
    # Two queries, since SQLite looks through the whole table for both ends at once.
    first, last = (
        window.execute(f"SELECT {end}(minute) FROM minutes").fetchone()[0]  # noqa: S608
        for end in ("min", "max")
    )
    if first is None:
        return None
    span = (last - first + 1) * 60_000
    days = -(-span // (most - 1) // _LEVELS[-1][0])
    step = next((step for step in _STEPS if step * (most - 1) >= span), days * _LEVELS[-1][0])
    size, table = next(level for level in reversed(_LEVELS) if step % level[0] == 0)
    begin = first * 60_000 // step * step
    found = window.execute(
        # The names are those of the constant above.
        f"SELECT ({table[:-1]} * ? - ?) / ?, status, sum(documents) FROM {table}"  # noqa: S608
        f" WHERE {table[:-1]} >= ? GROUP BY 1, 2",
        [size, begin, step, begin // size],
    )
    counts = [[0] * _STATUSES for _ in range((last * 60_000 - begin) // step + 1)]
    for slot, status, documents in found:
        counts[slot][status] += documents
    return OverTime(begin, step, [Totals(*one) for one in counts])


def similarities(window: sqlite3.Connection) -> dict[int, tuple[int, int]]:
    """Count the duplicates by similarity in percent, rounded down: (exact, near)."""
    return _pairs(window.execute("SELECT bin, status, documents FROM similarities WHERE status"))


def distances(window: sqlite3.Connection) -> dict[int, tuple[int, int]]:
    """Count the duplicates that have a Hamming distance only by it: (exact, near)."""
    return _pairs(window.execute("SELECT distance, status, documents FROM distances WHERE status"))


def _pairs(rows: sqlite3.Cursor) -> dict[int, tuple[int, int]]:
    found: dict[int, tuple[int, int]] = {}
    for value, status, documents in rows:
        exact, near = found.get(value, (0, 0))
        found[value] = (exact + documents * (status == 1), near + documents * (status != 1))
    return {value: counts for value, counts in found.items() if any(counts)}


def largest_groups(window: sqlite3.Connection, most: int) -> list[sqlite3.Row]:
    """Return the groups with the most documents, these first."""
    return _groups(window, "documents > 1 ORDER BY documents DESC", most)


def growing_groups(window: sqlite3.Connection, most: int) -> list[sqlite3.Row]:
    """Return the groups that got the most documents lately, these first."""
    return _groups(window, "recent > 0 ORDER BY recent DESC", most)


def _groups(window: sqlite3.Connection, which: str, most: int) -> list[sqlite3.Row]:
    return window.execute(
        # What is put in is one of the two above.
        "SELECT g.*, d.id AS original_id, d.source FROM"  # noqa: S608
        f" (SELECT * FROM groups WHERE {which} LIMIT ?) AS g"
        " LEFT JOIN documents AS d ON d.row = g.original_row",
        [most],
    ).fetchall()


def frequent_sources(window: sqlite3.Connection, most: int) -> list[sqlite3.Row]:
    """Return the sources that most documents come from, these first."""
    return window.execute(
        "SELECT * FROM sources WHERE documents > 0 AND source <> ''"
        " ORDER BY documents DESC LIMIT ?",
        [most],
    ).fetchall()


def facts(window: sqlite3.Connection) -> dict[str, str]:
    """Return what is known of the window itself."""
    return dict(window.execute("SELECT name, value FROM facts").fetchall())


def group(window: sqlite3.Connection, duplicate_id: str) -> sqlite3.Row | None:
    """Return the counts of a group, None if no document of it is in the window."""
    found: sqlite3.Row | None = window.execute(
        "SELECT * FROM groups WHERE duplicate_id = ?", [duplicate_id]
    ).fetchone()
    return found


def document(window: sqlite3.Connection, row: int) -> sqlite3.Row | None:
    """Return a document without its text."""
    found: sqlite3.Row | None = window.execute(
        "SELECT * FROM documents WHERE row = ?", [row]
    ).fetchone()
    return found


def members(
    window: sqlite3.Connection,
    duplicate_id: str,
    sort: Sort,
    most: int,
    *,
    after: Place | None = None,
    before: Place | None = None,
    without: int | None = None,
) -> Members:
    """Return a page of a group's members.

    Args:
        window: what is asked.
        duplicate_id: the group.
        sort: their order.
        most: members of a page.
        after: where the page before ended; the first page without.
        before: where the next page begins; then the page that ends there.
        without: row of a member to leave out: the original.
    """
    backwards = before is not None
    place = before or after
    down = sort.descends != backwards
    sign, order = ("<", "DESC") if down else (">", "ASC")
    if place is None:
        place = Place(_END if down else -_END, _END if down else -_END)
    rows = window.execute(
        # What is put in are the constants above.
        f"SELECT *, {sort.expression} AS value FROM documents"  # noqa: S608
        f" WHERE duplicate_id = ? AND ({sort.expression}, row) {sign} (?, ?) AND row IS NOT ?"
        f" ORDER BY {sort.expression} {order}, row {order} LIMIT ?",
        [duplicate_id, *place, without, most + 1],
    ).fetchall()
    more, rows = len(rows) > most, rows[:most]
    if backwards:
        rows.reverse()
    first, last = (
        [Place(rows[at]["value"], rows[at]["row"]) for at in (0, -1)] if rows else [None] * 2
    )
    return Members(
        rows,
        before=first if (more if backwards else after is not None) else None,
        after=last if (True if backwards else more) else None,
    )


def with_id(window: sqlite3.Connection, word: str, most: int) -> list[sqlite3.Row]:
    """Return documents that have an id, the latest first; digits stand for text and number."""
    return _with_ids(window, ids_meant_by(word), most)


def _with_ids(
    window: sqlite3.Connection, ids: Sequence[DocumentId], most: int
) -> list[sqlite3.Row]:
    spelled = [written_id(one) for one in ids]
    holes = ", ".join("?" * len(spelled))
    return window.execute(
        f"SELECT * FROM documents WHERE id IN ({holes}) ORDER BY row DESC LIMIT ?",  # noqa: S608
        [*spelled, most],
    ).fetchall()


def beginning_with(window: sqlite3.Connection, word: str, most: int) -> list[sqlite3.Row]:
    """Return documents whose id is text that begins with a word, in the order of their ids."""
    begin = written_id(word)[:-1]
    return window.execute(
        "SELECT * FROM documents WHERE id > ? AND id < ? ORDER BY id, row LIMIT ?",
        [begin + '"', begin + "\U0010ffff", most],
    ).fetchall()


def read_id(spelled: str) -> DocumentId:
    """Return an id that the window has written."""
    return msgspec.json.decode(spelled, type=str | int)


def text(window: sqlite3.Connection, row: int) -> str | None:
    """Return the text of a document; None if it is not known, or the document has gone."""
    found = window.execute("SELECT text FROM texts WHERE row = ?", [row]).fetchone()
    return None if found is None else unpacked(found[0])


def oldest(window: sqlite3.Connection, duplicate_id: str) -> sqlite3.Row | None:
    """Return the oldest document of a group that is in the window."""
    found = members(window, duplicate_id, Sort.OLDEST, 1).rows
    return found[0] if found else None


def texts_after(window: sqlite3.Connection, row: int, most: int) -> list[sqlite3.Row]:
    """Return row, id, status and packed text of the documents that came after one."""
    return window.execute(
        "SELECT d.row, d.id, d.status, t.text FROM documents AS d LEFT JOIN texts AS t"
        " ON t.row = d.row WHERE d.row > ? ORDER BY d.row LIMIT ?",
        [row, most],
    ).fetchall()


def group_begun_by(window: sqlite3.Connection, name: DocumentId) -> str | None:
    """Return the duplicate id of an original with an id, the latest; None if it is not there."""
    found = window.execute(
        "SELECT duplicate_id FROM documents WHERE id = ? AND status = 0 ORDER BY row DESC LIMIT 1",
        [written_id(name)],
    ).fetchone()
    return None if found is None else str(found[0])
