"""Reads annotated files."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from stream_dedup.review.reading.annotated import AnnotatedDecoder, PassedOver, Place
from stream_dedup.review.reading.source import Part
from stream_dedup.settings import Settings
from stream_dedup.stream.files import STANDARD, Chunk, read_chunks
from stream_dedup.stream.lines import line_bytes

#: Fact of a window that holds all of its files.
COMPLETE = "complete"


def identity_of(paths: Sequence[Path]) -> str:
    """Name files by their paths, sizes and times; standard input is never the same."""
    told = []
    for path in paths:
        if path == STANDARD:
            told.append([str(path), time.time_ns()])
        else:
            stat = path.stat()
            told.append([str(path.resolve()), stat.st_size, stat.st_mtime_ns])
    return msgspec.json.encode(told).decode()


def chunks_of(paths: Sequence[Path], settings: Settings) -> Iterator[Chunk]:
    """Read the lines of files, one file after another, some lines at a time.

    Raises:
        InputError: a file cannot be read, or is damaged.
    """
    for number, path in enumerate(paths):
        again = paths[:number].count(path)
        yield from read_chunks(path, again, line_bytes(settings), lambda _read: None)


class WholeFiles(ABC):
    """Files that are read once, from beginning to end.

    Args:
        paths: what is read, in this order.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._files = paths
        self._is_read = False

    @property
    def name(self) -> str:
        """What is read, in words."""
        return ", ".join(path.name for path in self._files)

    @property
    def identity(self) -> str:
        """The paths, sizes and times of the files."""
        return identity_of(self._files)

    def begin(self, facts: Mapping[str, object]) -> bool:
        """Say whether everything has been read already; a part of it would be read again."""
        self._is_read = bool(facts.get(COMPLETE))
        return self._is_read

    def read(self) -> Iterator[Part]:
        """Read everything, some documents at a time.

        Raises:
            InputError: a file cannot be read, or is damaged.
        """
        if self._is_read:
            return
        yield from self._parts()
        yield Part([], Counter(), [], {COMPLETE: True}, caught_up=True)

    @abstractmethod
    def _parts(self) -> Iterator[Part]:
        """Read everything."""


class Files(WholeFiles):
    """Annotated JSON lines, plain, gzip or zstd; what is no annotated document is passed over."""

    def __init__(self, settings: Settings, paths: Sequence[Path]) -> None:
        """Read these files, one after another."""
        super().__init__(paths)
        self._settings = settings
        self._decoder = AnnotatedDecoder(settings)

    def _parts(self) -> Iterator[Part]:
        return map(self._part, chunks_of(self._files, self._settings))

    def _part(self, chunk: Chunk) -> Part:
        part = Part([], Counter(), [])
        for line in chunk.parsed():
            try:
                part.seen.append(self._decoder.decode(line.value, Place(line.name, line.name)))
            except PassedOver as passed:
                if passed.forgotten is None:
                    part.passed_over[passed.reason] += 1
                else:
                    part.forgotten.append((len(part.seen), passed.forgotten))
        return part
