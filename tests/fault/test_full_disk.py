"""Files on a disk that is full, over quota or broken for a moment, at each call in turn."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar
from unittest.mock import patch

import msgspec
import pytest

from stream_dedup.cli.main import cli
from stream_dedup.deduplicator import Deduplicator
from stream_dedup.errors import StateError
from stream_dedup.index.memory import MemoryIndex
from stream_dedup.index.state_rows import pack
from stream_dedup.settings import Settings
from stream_dedup.stream import embedded, files
from stream_dedup.types import Decision, Document, Revisions
from tests.services import faulty_disk
from tests.services.faulty_disk import Walked, walk

Result = TypeVar("Result")

#: Small rows, so that there are few calls; everything that changes a state file happens.
SETTINGS = Settings(
    method="simhash",
    window=400.0,
    lateness=1.0,
    renew=True,
    revisions=Revisions.REPLACE,
    time_field="time",
)
FLAGS = (
    *("--method", "simhash", "--window", "400s", "--lateness", "1s", "--renew"),
    *("--revisions", "replace", "--time-field", "time"),
)


def documents() -> Iterator[Document]:
    for number in range(36):
        words = " ".join(f"{number % 13}.{place}" for place in range(7))
        yield Document(number % 20, words, 25.0 * number)


BATCHES = [list(documents())[start : start + 9] for start in range(0, 36, 9)]


def held(state: Path) -> list[bytes]:
    """Return what a state file holds when it is opened again."""
    with Deduplicator(SETTINGS, state=state) as deduplicator:
        return [pack(batch, keeps_ranks=True) for batch in deduplicator.index.read_originals()]


def once_more(act: Callable[[], Result]) -> Result:
    """Do something; when the state file cannot be written make room, and do the same again."""
    try:
        return act()
    except StateError as error:
        assert "damaged" not in str(error)
        assert str(error).endswith(".")
        assert faulty_disk.disk is not None
        faulty_disk.disk.mend()
        return act()


class Library:
    """A program that uses the library, and does again what failed."""

    def prepare(self, calm: Path) -> None:
        self.attempt(calm)

    def attempt(self, folder: Path) -> None:
        state = folder / "state.db"
        deduplicator = once_more(lambda: Deduplicator(SETTINGS, state=state))
        decided: list[Sequence[Decision]] = []
        for number, batch in enumerate(BATCHES):
            decided.append(once_more(lambda batch=batch: deduplicator.decide(batch)))
            if number == 1:
                once_more(lambda: deduplicator.forget([2, 11]))
            once_more(deduplicator.settle)
            # What is in memory is what is in the file: a copy belongs to the same originals.
            decided.append(once_more(lambda batch=batch: deduplicator.decide(batch)))
        once_more(deduplicator.sweep)
        assert isinstance(deduplicator.index, MemoryIndex)
        late = deduplicator.index.late
        try:
            deduplicator.close()
        except StateError:
            faulty_disk.disk.mend()
            Deduplicator(SETTINGS, state=state).close()
        if faulty_disk.disk is not None:
            faulty_disk.disk.mend()  # the answers are not what this is about
        (folder / "answers").write_bytes(msgspec.json.encode([decided, late]))

    def check(self, folder: Path, calm: Path, code: int, stderr: str) -> None:
        assert code == 0, stderr
        assert (folder / "answers").read_bytes() == (calm / "answers").read_bytes()
        assert held(folder / "state.db") == held(calm / "state.db")


def report(walked: Walked) -> str:
    """Show the first of what was wrong."""
    cases = "\n".join([*walked.wrong][:20])
    first = next(iter(walked.wrong.values()), "")
    return f"{len(walked.wrong)} of {walked.failed} cases went wrong:\n{cases}\n{first}"


def test_the_library_does_again_what_failed(tmp_path: Path) -> None:
    walked = walk("tests.fault.test_full_disk:Library", tmp_path)

    assert not walked.wrong, report(walked)
    assert walked.calls > 50
