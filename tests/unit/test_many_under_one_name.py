"""Very many originals under one id, or with one text: what a document costs does not grow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from stream_dedup.deduplicator import Deduplicator
from stream_dedup.index.memory import MemoryIndex
from stream_dedup.index.table import PrefixTable
from stream_dedup.settings import Settings
from stream_dedup.types import Document, DocumentId, Revisions, Status

WORDS = "one two three four five six seven eight nine ten"


class Counted(list[Any]):
    """A list that counts how often something is taken from it."""

    taken = 0

    def __getitem__(self, at: Any) -> Any:
        """Take something."""
        Counted.taken += 1
        return super().__getitem__(at)

    def __iter__(self) -> Iterator[Any]:
        """Take one after another."""
        return map(self.__getitem__, range(len(self)))

    def __reversed__(self) -> Iterator[Any]:
        """Take one after another, from the end."""
        return map(self.__getitem__, range(len(self) - 1, -1, -1))


def test_a_revision_looks_at_the_latest_text_of_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    named = MemoryIndex.named

    def counted(self: MemoryIndex, ids: Sequence[DocumentId]) -> list[Any]:
        return [Counted(one) for one in named(self, ids)]

    monkeypatch.setattr(MemoryIndex, "named", counted)
    monkeypatch.setattr(Counted, "taken", 0)
    revised = 0
    with Deduplicator(Settings(revisions=Revisions.LINK)) as deduplicator:
        for start in range(0, 2000, 200):
            texts = [" ".join(f"w{n}x{i}" for i in range(9)) for n in range(start, start + 200)]
            decisions = deduplicator.decide([Document("same", text) for text in texts])
            revised += sum(decision.revises is not None for decision in decisions)

    # Those of the first batch were not there before each other.
    assert revised >= 1800
    # About each other in a batch; 2 million before.
    assert Counted.taken < 2000 * 200


def test_equal_texts_outside_of_windows_are_no_more_than_max_candidates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    most: list[int] = []
    find = PrefixTable.find

    def measured(self: PrefixTable, *args: Any) -> Any:
        found = find(self, *args)
        most.append(len(found[0]))
        return found

    monkeypatch.setattr(PrefixTable, "find", measured)
    settings = Settings(window=60, lateness=365 * 86_400, max_candidates=16)
    with Deduplicator(settings) as deduplicator:
        for start in range(0, 1500, 100):
            decisions = deduplicator.decide(
                [Document(n, WORDS, time=1.5e9 + 61.0 * n) for n in range(start, start + 100)]
            )

            assert {decision.status for decision in decisions} == {Status.ORIGINAL}

    # 100 documents with up to 16 of each of 16 keys.
    assert max(most) <= 100 * 16 * 16
