"""A group's documents as a file, for spreadsheets and for programs."""

from __future__ import annotations

import csv
import io
import sqlite3
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

import msgspec

from stream_dedup.review import queries
from stream_dedup.review.queries import Place, Sort
from stream_dedup.review.seen import STATUSES
from stream_dedup.review.window import Window

#: Documents read at a time, each from a state of the window of its own.
_READ = 256
#: What spreadsheets take for the beginning of a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
#: Says to spreadsheets that a file is UTF-8; before its first line.
MARK = "\ufeff"
#: Milliseconds beyond which there is no date.
_LAST = 253_402_300_799_000

COLUMNS = (
    "id",
    "status",
    "similarity",
    "hamming_distance",
    "measure",
    "method",
    "configuration",
    "time",
    "source",
    "link",
    "place",
    "text",
)


def as_csv(window: Window, duplicate_id: str) -> Iterator[str]:
    """Give a group's documents as CSV (RFC 4180), the oldest first.

    A cell that a spreadsheet would run as a formula begins with an apostrophe instead.
    """
    yield MARK + csv_line(COLUMNS)
    for record in _records(window, duplicate_id):
        yield csv_line(["" if value is None else str(value) for value in record.values()])


def as_jsonl(window: Window, duplicate_id: str) -> Iterator[str]:
    """Give a group's documents as JSON lines, the oldest first; what is unknown is left out."""
    for record in _records(window, duplicate_id):
        known = {name: value for name, value in record.items() if value not in (None, "")}
        yield msgspec.json.encode(known).decode() + "\n"


def _records(window: Window, duplicate_id: str) -> Iterator[dict[str, object]]:
    place: Place | None = None
    while True:
        with window.reader() as database:
            page = queries.members(database, duplicate_id, Sort.OLDEST, _READ, after=place)
            found = [_record(row, queries.text(database, row["row"])) for row in page.rows]
        yield from found
        if page.after is None:
            return
        place = page.after


def _record(row: sqlite3.Row, text: str | None) -> dict[str, object]:
    told = {name: row[name] for name in COLUMNS if name not in ("id", "status", "time", "text")}
    found = {
        "id": queries.read_id(row["id"]),
        "status": STATUSES[row["status"]].value,
        "time": _time(row["at"]),
        "text": text,
        **told,
    }
    return {name: found[name] for name in COLUMNS}


def _time(milliseconds: int) -> str | None:
    if not 0 <= milliseconds <= _LAST:
        return None
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def csv_line(cells: Iterable[str]) -> str:
    """Return a line of CSV in which no cell is a formula."""
    stream = io.StringIO()
    csv.writer(stream).writerow([_harmless(cell) for cell in cells])
    return stream.getvalue()


def _harmless(cell: str) -> str:
    return "'" + cell if cell.startswith(_FORMULA) else cell
