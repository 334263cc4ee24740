"""What a worker process does about its attempt when it ends."""

from __future__ import annotations

from typing import Any

import pytest
from stream_dedup_workers import process

from stream_dedup.errors import ServiceError, StreamDedupError
from stream_dedup.settings import Settings


class Pulse:
    """Hears nothing."""

    stage = None

    def beat(self, *_: object) -> None:
        """Say nothing."""


class Transport:
    """Notes what is called."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def unmark(self) -> None:
        self.calls.append("unmark")

    def close(self) -> None:
        self.calls.append("close")


def calls_at(end: BaseException | None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    transport = Transport()
    monkeypatch.setattr(process, "open_transport", lambda *_, **__: transport)
    monkeypatch.setattr(process, "calm", lambda _documents: None)
    pulse: Any = Pulse()

    def live() -> None:
        with process.transport_of(Settings(), "worker-0", pulse, lambda: False):
            if end is not None:
                raise end

    if end is None:
        live()
    else:
        with pytest.raises(type(end)):
            live()
    return transport.calls


@pytest.mark.parametrize("end", [None, ServiceError("Redis is gone"), StreamDedupError("x")])
def test_an_orderly_end_is_not_blamed_on_the_batch(
    end: BaseException | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert calls_at(end, monkeypatch) == ["unmark", "close"]


@pytest.mark.parametrize("end", [MemoryError(), RecursionError(), KeyError("x"), SystemExit(1)])
def test_any_other_error_is_a_death(end: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    assert calls_at(end, monkeypatch) == ["close"]
