"""Calls into a Kafka client that may wait for longer than they were told to, or for ever.

kafka-python's ``commit_transaction`` and ``send_offsets_to_transaction`` take no time limit. That
of librdkafka's ``send_offsets_to_transaction`` is not kept: with a broker that came back as another
object of the client, it waits for a change of state of the old one (librdkafka issues 5456, 5511).

So such a call is made by a thread of its own. When time is up, the thread is left behind with the
call, and the caller throws the client away. What the call still does then, if ever, is refused:
the next producer of the same transactional id fences the one that was left.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from stream_dedup.errors import ServiceError

#: What calls may still take once the worker is asked to stop, s: far below the supervisor's grace.
STOP_SECONDS = 3.0
#: Calls left behind with which the process goes on; each holds its client with all its threads.
MOST_LEFT = 8
#: Time between two looks at whether to stop.
_LOOK_SECONDS = 0.1

_Result = TypeVar("_Result")
_left: list[threading.Thread] = []


class OverdueError(Exception):
    """A call did not return in time. Its client must not be used any more."""


def bounded(
    name: str, call: Callable[[], _Result], seconds: float, stopping: Callable[[], bool]
) -> _Result:
    """Return or raise what the call does, if it does so in time.

    Args:
        name: what it is called in messages.
        call: may be left behind in a thread; must then do no harm.
        seconds: time for it.
        stopping: tells whether to end; then there are ``STOP_SECONDS`` left at most.

    Raises:
        OverdueError: the call is still waiting.
        ServiceError: too many calls are.
    """
    _left[:] = [thread for thread in _left if thread.is_alive()]
    if len(_left) >= MOST_LEFT:
        msg = (
            f"{len(_left)} calls of the Kafka client are stuck. "
            "The process is to be started again; check the brokers if that does not help."
        )
        raise ServiceError(msg)
    outcome: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
    awaited = True

    def run() -> None:
        try:
            outcome.put((call(), None))
        except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
            # It refers to the client, and to this frame, which refers to the outcome: a circle, if
            # nobody is there to take it.
            if awaited:
                outcome.put((None, error))

    thread = threading.Thread(target=run, name=f"call-{name}", daemon=True)
    thread.start()
    try:
        result, error = _within(outcome, seconds, stopping)
    except Empty:
        awaited = False
        _left.append(thread)
        msg = f"{name} did not return in time"
        raise OverdueError(msg) from None
    if error is not None:
        try:
            raise error
        finally:
            # It refers to this frame: a circle, which would keep the client.
            del error
    returned: _Result = result
    return returned


def leave_behind(name: str, call: Callable[[], object]) -> None:
    """Let a client be taken down by a thread of its own, for as long as it takes."""
    thread = threading.Thread(target=call, name=f"call-{name}", daemon=True)
    thread.start()
    _left.append(thread)


def _within(outcome: SimpleQueue[Any], seconds: float, stopping: Callable[[], bool]) -> Any:
    deadline = time.monotonic() + seconds
    asked = False
    while True:
        if not asked and stopping():
            asked = True
            deadline = min(deadline, time.monotonic() + STOP_SECONDS)
        remaining = deadline - time.monotonic()
        try:
            return outcome.get(timeout=max(0.0, min(remaining, _LOOK_SECONDS)))
        except Empty:
            if remaining <= 0:
                raise
