"""Tombstones within a batch: documents before one know what it names, those after it do not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from stream_dedup.types import DocumentId


class Tombstone(NamedTuple):
    """Says that a document is gone.

    Attributes:
        after: documents of the batch that come before it.
        ids: what the document may be called.
    """

    after: int
    ids: Sequence[DocumentId]


def cut(count: int, tombstones: Sequence[Tombstone]) -> Iterator[tuple[slice, list[DocumentId]]]:
    """Cut a batch: yield some of its documents, the ids to be forgotten after them, and so on.

    Args:
        count: documents of the batch.
        tombstones: its tombstones, in order.
    """
    start = 0
    for end, same in groupby(tombstones, key=attrgetter("after")):
        yield slice(start, end), [one for tombstone in same for one in tombstone.ids]
        start = end
    yield slice(start, count), []
