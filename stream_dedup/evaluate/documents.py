"""The documents of an evaluation, in the order in which they arrive, and their gold groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from stream_dedup.errors import InputError
from stream_dedup.evaluate.sets import Rows
from stream_dedup.settings import Settings
from stream_dedup.stream.files import STANDARD, read_lines
from stream_dedup.stream.lines import JsonLines, line_bytes
from stream_dedup.stream.poison import Poison
from stream_dedup.types import Document

#: Fields that hold a document's gold group, tried in this order when none is named.
GROUP_FIELDS = ("group", "cluster", "truth.group")


class Corpus(NamedTuple):
    """Documents in the order of arrival.

    Attributes:
        documents: the documents.
        groups: (documents,) int64 number of each one's gold group; None without a group field.
    """

    documents: list[Document]
    groups: Rows | None

    @property
    def texts(self) -> list[str]:
        """The texts."""
        return [document.text for document in self.documents]

    @property
    def origins(self) -> list[str]:
        """What each comes from."""
        return [document.origin for document in self.documents]

    def names(self) -> list[str]:
        """Return a name for each document, its id; ``id#2`` for the second of an id, and so on."""
        seen: Counter[str] = Counter()
        names = []
        for document in self.documents:
            plain = str(document.id)
            seen[plain] += 1
            names.append(plain if seen[plain] == 1 else f"{plain}#{seen[plain]}")
        return names

    def positions(self) -> dict[str, int]:
        """Return the position of each document by its name; ids go before names made of them."""
        places: dict[str, int] = {}
        for position, name in enumerate(self.names()):
            places.setdefault(name, position)
        for position, document in reversed([*enumerate(self.documents)]):
            places[str(document.id)] = position
        return places

    def take(self, positions: Rows) -> Corpus:
        """Return some of the documents, in the order of ``positions``."""
        chosen = [self.documents[position] for position in positions.tolist()]
        return Corpus(chosen, None if self.groups is None else self.groups[positions])


def read_corpus(
    paths: Sequence[Path], settings: Settings, group_field: str | None, *, groups: bool = False
) -> Corpus:
    """Read files of JSON lines, plain, gzip or zstd; ``-`` is standard input.

    Args:
        paths: the files, in the order of arrival.
        settings: names of the fields.
        group_field: field of the gold group; ``a.b`` is field b of the object a. A document
            without it, or with null, is a group of its own.
        groups: whether to look for one of ``GROUP_FIELDS`` when none is named.

    Raises:
        InputError: a file cannot be read, a line is not a document, or no document has a group.
    """
    documents: list[Document] = []
    found: list[Any] = []
    fields = [group_field] if group_field else [*GROUP_FIELDS] if groups else []
    for path, occurrence in _occurrences(paths):
        decode = JsonLines(settings).decode
        for line in read_lines(path, occurrence, line_bytes(settings)):
            try:
                documents.append(decode(line))
            except Poison as poison:
                msg = f"{line.name} is not a document: {poison.detail} Correct it or leave it out."
                raise InputError(msg) from poison
            if fields:
                value = msgspec.json.decode(line.value)
                found.append([_field(value, name) for name in fields])
    if not fields:
        return Corpus(documents, None)
    return Corpus(documents, _number(_column(found, fields)))


def _occurrences(paths: Iterable[Path]) -> Iterable[tuple[Path, int]]:
    seen: Counter[Path] = Counter()
    for path in paths:
        name = path if path == STANDARD else path.resolve()
        yield path, seen[name]
        seen[name] += 1


def _field(value: Any, name: str) -> Any:
    if isinstance(value, dict) and name in value:
        return value[name]
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _column(found: list[list[Any]], fields: list[str]) -> list[Any]:
    """Return the first column with a group in it."""
    for column in range(len(fields)):
        values = [row[column] for row in found]
        if any(value is not None for value in values):
            return values
    msg = (
        f"No document has a group in the field {' or '.join(fields)}. Name the field that holds "
        "the gold group with --group-field."
    )
    raise InputError(msg)


def _number(values: list[Any]) -> Rows:
    """Number the groups; each missing one is a group of its own."""
    numbers: dict[Any, int] = {}
    named = [
        (None, position) if value is None else msgspec.json.encode(value)
        for position, value in enumerate(values)
    ]
    return np.array([numbers.setdefault(name, len(numbers)) for name in named], np.int64)
