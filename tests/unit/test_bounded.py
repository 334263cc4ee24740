"""Calls with a bound around them."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Iterator
from unittest import mock

import pytest

from stream_dedup.errors import ServiceError
from stream_dedup.stream import bounded as module
from stream_dedup.stream.bounded import OverdueError, bounded, leave_behind


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Something to wait for; opened at the end."""
    event = threading.Event()
    with mock.patch.object(module, "_left", []):
        yield event
        event.set()


def never() -> bool:
    return False


def test_what_comes_in_time_is_returned_or_raised() -> None:
    assert bounded("add", lambda: 1 + 1, 5, never) == 2
    with pytest.raises(ZeroDivisionError):
        bounded("divide", lambda: 1 / 0, 5, never)


def test_what_does_not_come_is_left_behind(gate: threading.Event) -> None:
    began = time.monotonic()

    with pytest.raises(OverdueError, match="commit did not return in time"):
        bounded("commit", gate.wait, 0.2, never)

    assert 0.2 <= time.monotonic() - began < 2
    assert [thread.name for thread in module._left] == ["call-commit"]


def test_the_limits_are_far_below_those_of_the_supervisor() -> None:
    assert (module.STOP_SECONDS, module.MOST_LEFT) == (3.0, 8)


def test_threads_do_not_keep_the_process(gate: threading.Event) -> None:
    leave_behind("close", gate.wait)

    (thread,) = module._left
    assert thread.daemon
    assert thread.name == "call-close"


def test_who_is_to_end_waits_no_longer(gate: threading.Event) -> None:
    began = time.monotonic()

    with mock.patch.object(module, "STOP_SECONDS", 0.3), pytest.raises(OverdueError):
        bounded("commit", gate.wait, 60, lambda: time.monotonic() - began > 0.2)

    assert time.monotonic() - began < 5


def test_who_is_not_to_end_has_all_the_time(gate: threading.Event) -> None:
    began = time.monotonic()

    with mock.patch.object(module, "STOP_SECONDS", 0.05), pytest.raises(OverdueError):
        bounded("commit", gate.wait, 0.5, never)

    assert time.monotonic() - began >= 0.5


def test_with_too_many_left_behind_the_process_ends(gate: threading.Event) -> None:
    for _ in range(module.MOST_LEFT):
        leave_behind("close", gate.wait)
    with pytest.raises(ServiceError, match="stuck"):
        bounded("commit", lambda: None, 5, never)

    gate.set()
    for thread in list(module._left):
        thread.join(5)
    assert bounded("commit", lambda: 1, 5, never) == 1


class Client:
    """What a call is made with."""


def test_a_call_that_fails_when_nobody_waits_any_more_lets_go_of_its_client(
    gate: threading.Event,
) -> None:
    def start() -> weakref.ref[Client]:
        client = Client()

        def call() -> None:
            gate.wait()
            raise ConnectionError(client)

        with pytest.raises(OverdueError):
            bounded("commit", call, 0.1, never)
        return weakref.ref(client)

    gc.disable()
    try:
        client = start()
        gate.set()
        module._left[0].join(5)
        assert client() is None
    finally:
        gc.enable()
