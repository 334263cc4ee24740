"""The files of a folder that can be measured."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import msgspec

from stream_dedup.stream.files import read_lines

#: Fields that may hold a gold group.
GROUP_FIELDS = ("cluster", "group")
_NAME = re.compile(r"(.+?)\.jsonl(\.gz)?")
_CHARACTERS = re.compile(r"char(\d+) shingles")


class Source(NamedTuple):
    """A file of documents.

    Attributes:
        name: its name without endings.
        path: where it is.
        group_field: field with the gold group; None without one.
        reference: its list of reference pairs; None without one.
        shingle: what the reference was computed with; ``word:3`` where nothing says otherwise.
    """

    name: str
    path: Path
    group_field: str | None
    reference: Path | None
    shingle: str


def find_sources(folder: Path, only: Sequence[str] | None) -> list[Source]:
    """Return the files that have a truth, by size, the smallest first."""
    found = []
    for path in sorted(folder.iterdir(), key=lambda path: path.stat().st_size):
        match = _NAME.fullmatch(path.name)
        if match and (only is None or match[1] in only):
            source = _source(match[1], path)
            if source.group_field or source.reference:
                found.append(source)
    return found


def _source(name: str, path: Path) -> Source:
    beside = (path.with_name(f"{name}.jaccard.tsv{ending}") for ending in ("", ".gz"))
    reference = next((one for one in beside if one.is_file()), None)
    lines = [msgspec.json.decode(line) for line in _head(path, 100)]
    field = next((one for one in GROUP_FIELDS if any(one in line for line in lines)), None)
    match = None
    if reference is not None:
        match = _CHARACTERS.search(b"".join(_head(reference, 1)).decode())
    return Source(name, path, field, reference, f"char:{match[1]}" if match else "word:3")


def _head(path: Path, lines: int) -> list[bytes]:
    return [line.value for line in islice(read_lines(path, 0, 1 << 30), lines)]
