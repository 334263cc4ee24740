"""What a source of documents gives to the window."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from stream_dedup.review.seen import Seen
from stream_dedup.types import DocumentId


class Part(NamedTuple):
    """Some documents, read together.

    Attributes:
        seen: the documents, in their order.
        passed_over: how many others were passed over, by reason.
        forgotten: ids that tombstones name, each with how many of the documents came before it.
        facts: what is to be noted with them.
        caught_up: whether this was all that there is for now.
    """

    seen: list[Seen]
    passed_over: Counter[str]
    forgotten: list[tuple[int, DocumentId]]
    facts: Mapping[str, object] = {}
    caught_up: bool = False

    @property
    def tells(self) -> bool:
        """Whether there is anything to write."""
        return bool(self.seen or self.passed_over or self.forgotten or self.facts)


class Source(Protocol):
    """Where documents come from."""

    @property
    def name(self) -> str:
        """What is read, in words."""

    @property
    def identity(self) -> str:
        """What is read, so that nothing else has the same identity."""

    def begin(self, facts: Mapping[str, object]) -> bool:
        """Make ready to read.

        Args:
            facts: what is noted in a window that was filled from the same source; empty in another.

        Returns:
            Whether reading goes on where it was; else it begins anew.
        """

    def read(self) -> Iterator[Part]:
        """Read on from where the last call ended, some documents at a time.

        Raises:
            InputError: what was read is damaged.
            ServiceError: the source is out of reach; the same call can be made again.
        """
