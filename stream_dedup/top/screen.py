"""The terminal of the live view: an alternative screen that is drawn anew, and keys."""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from stream_dedup.top.monitor import Monitor, View
from stream_dedup.top.view import draw

#: Seconds between two looks at the keyboard; the clock and the terminal's size are followed so.
_TICK = 0.25
#: What ends the view: q, Ctrl-C where it is no signal, Ctrl-D, Escape.
_END_KEYS = re.compile("[qQ\x03\x04\x1b]")
#: What keys without a character send, such as arrows; it begins with Escape, too.
_SEQUENCE = re.compile(r"\x1b[\[O][0-9;]*[A-Za-z~]")
_HINT = "q ends"


def watch(monitor: Monitor, console: Console, interval: float) -> None:
    """Show the view until a key ends it, or Ctrl-C.

    Args:
        monitor: looked through in a thread, so that an endpoint that hangs holds up no key.
        console: a terminal.
        interval: seconds from the beginning of one look to that of the next.
    """
    view: View | None = None
    # Ended by a signal, too, the terminal is left as it was.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))
    with (
        ThreadPoolExecutor(1, "top") as pool,
        _keys() as pressed,
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        pending, due = pool.submit(monitor.look), time.monotonic() + interval
        while True:
            drawn: RenderableType = Text("Looking …", style="dim")
            if view is not None:
                width, height = console.size
                drawn = draw(view, width=width, height=height, now=time.time(), hint=_HINT)
            live.update(drawn, refresh=True)
            if _END_KEYS.search(_SEQUENCE.sub("", pressed(_TICK))):
                return
            if pending.done():
                view = pending.result()
                if time.monotonic() >= due:
                    pending, due = pool.submit(monitor.look), time.monotonic() + interval


@contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Have keys read as they are pressed; yield what waits for some and returns them."""
    if not sys.stdin.isatty():
        yield _wait
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)

    def read(seconds: float) -> str:
        found, _, _ = select.select([descriptor], [], [], seconds)
        return os.read(descriptor, 64).decode(errors="replace") if found else ""

    try:
        yield read
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _wait(seconds: float) -> str:
    time.sleep(seconds)
    return ""
