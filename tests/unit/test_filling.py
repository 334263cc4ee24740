"""How many records a batch may still take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from stream_dedup.settings import Settings
from stream_dedup.stream.filling import Filling

SETTINGS = Settings(batch_documents=1000, batch_bytes=1_000_000, max_document_bytes=100_000)


class Message(NamedTuple):
    topic: str = "documents"
    partition: int = 0
    offset: int = 0
    timestamp: int = 0
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()


def filled(sizes: Sequence[int], settings: Settings = SETTINGS) -> list[int]:
    """Return how many records each part of a batch takes of records of these sizes."""
    filling = Filling(settings, settings.batch_documents)
    left = list(sizes)
    parts = []
    while left and (wanted := filling.wanted()):
        taken, left = left[:wanted], left[wanted:]
        filling.add(Message(value=b"x" * size) for size in taken)
        parts.append(len(taken))
    return parts


def test_small_records_fill_a_batch_by_number() -> None:
    parts = filled([500] * 5000)

    assert sum(parts) == 1000
    assert len(parts) < 30


@pytest.mark.parametrize("size", [3_000, 30_000, 99_000])
def test_large_records_fill_a_batch_by_bytes(size: int) -> None:
    assert 900_000 - size < sum(filled([size] * 5000)) * size <= 1_000_000


def test_records_that_become_larger_go_beyond_the_bytes_by_one_part_at_most() -> None:
    sizes = [100] * 200 + [100_000] * 5000
    count = sum(filled(sizes))

    assert sum(sizes[:count]) <= 5 * 1_000_000


def test_a_record_larger_than_the_batch_is_one_of_its_own() -> None:
    settings = SETTINGS.model_copy(update={"max_document_bytes": 5_000_000})

    assert filled([5_000_000] * 3, settings) == [1]


def test_keys_and_headers_count() -> None:
    filling = Filling(SETTINGS, SETTINGS.batch_documents)
    filling.add([Message(key=b"k" * 500_000, headers=[("h", b"x" * 499_000), ("none", None)])])

    assert filling.wanted() == 0
