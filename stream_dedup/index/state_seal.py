"""The seal of a state file: one sum over all that is in it, so that damage does not go unnoticed.

SQLite notices damage to its own structures, but not in what they hold: a flipped bit in a row would
be another fingerprint. Each row has a hash that depends on its table and place, too, and the seal
is their sum, so that it follows each row that is written or removed without reading the others. A
row that got lost, or came from elsewhere, breaks it like one that was changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import xxhash

#: Name of the seal among what the file tells of itself.
SEAL = "seal"
_MASK = (1 << 64) - 1
_TABLES = ("originals", "changes")


class Seal:
    """The sum over the rows of a file.

    Attributes:
        rows: the sum of the hashes of rows, 64 bits.
    """

    def __init__(self, rows: int = 0) -> None:
        self.rows = rows

    def add(self, table: str, rows: Iterable[tuple[int, bytes]]) -> None:
        """Take note of rows, each with its place, that are written to a table.

        Raises:
            ValueError: one has no content.
        """
        for place, value in rows:
            self.rows = (self.rows + _hash(table, place, value)) & _MASK

    def remove(self, table: str, rows: Iterable[tuple[int, bytes]]) -> None:
        """Take note of rows that are removed from it."""
        for place, value in rows:
            self.rows = (self.rows - _hash(table, place, value)) & _MASK

    def over(self, meta: Mapping[str, str]) -> str:
        """Return the seal of a file with these rows that tells this of itself."""
        told = sorted(item for item in meta.items() if item[0] != SEAL)
        return f"{xxhash.xxh3_64_intdigest(msgspec.json.encode(told), self.rows):016x}"


def _hash(table: str, place: int, value: bytes) -> int:
    if not isinstance(value, bytes):
        msg = "a row has no content"
        raise ValueError(msg)  # noqa: TRY004 - what a file holds, not what a caller gave
    seed = (place * len(_TABLES) + _TABLES.index(table)) & _MASK
    return xxhash.xxh3_64_intdigest(value, seed)
