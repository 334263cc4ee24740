"""Reading a compacted topic: only what brings it nearer to the end is progress."""

from __future__ import annotations

from typing import Any

import pytest

from stream_dedup import Settings
from stream_dedup.stream import compacted


class Consumer:
    """Gives nothing for some polls, then one offset at a time."""

    def __init__(self, silent: int) -> None:
        self._silent, self._position = silent, 0

    def assign(self, _places: Any) -> None:
        """Take all."""

    def position(self, _place: Any) -> int:
        """Return the next offset."""
        return self._position

    def poll(self, *_arguments: Any, **_options: Any) -> dict[str, list[int]]:
        """Return a record, in the end."""
        if self._silent:
            self._silent -= 1
            return {}
        self._position += 1
        return {"place": [self._position]}

    def close(self) -> None:
        """Close it."""


def test_polls_that_give_nothing_are_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compacted, "_ends", lambda *_: {"place": 3})
    monkeypatch.setattr(compacted, "open_reader", lambda *_: Consumer(silent=50))
    beats: list[None] = []

    read: list[Any] = list(compacted.read_all(Settings(), "groups", lambda: beats.append(None)))

    assert read == [[1], [2], [3]]
    assert len(beats) <= 4
