"""``stream-dedup top`` on a terminal: keys, signals, sizes, endpoints that come and go."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator

import pytest

from tests.models.exposition import AFTER
from tests.services.answering import Server
from tests.services.process import free_ports

COMMAND = [sys.executable, "-c", "from stream_dedup.cli.main import main; main()", "top"]


@pytest.fixture
def server() -> Iterator[Server]:
    """A worker's metrics."""
    found = Server()
    found.answer = lambda _path, _headers: (200, {}, AFTER.encode())
    yield found
    found.close()


@pytest.fixture
def terminal(server: Server) -> Iterator[Terminal]:
    found = Terminal(server.place, "--interval=500ms")
    yield found
    found.close()


def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, check=False, timeout=60
    )


def test_nothing_there_is_told() -> None:
    (port,) = free_ports(1)

    done = ran(f"127.0.0.1:{port}", "--once")

    assert done.returncode == 69
    assert done.stderr == (
        f"Error: 127.0.0.1:{port}: It does not answer (Connection refused). "
        "Start a worker, or name the address of its metrics.\n"
    )


def test_two_sources_are_refused() -> None:
    done = ran("127.0.0.1:1", "--prometheus", "http://127.0.0.1:2")

    assert done.returncode == 2
    assert "Leave one of them out" in done.stderr


@pytest.mark.parametrize("interval", ["soon", "1ms", "2h"])
def test_an_interval_is_checked(interval: str) -> None:
    assert ran("--interval", interval).returncode == 2


class Terminal:
    """A terminal, and the program on it."""

    def __init__(self, *arguments: str, width: int = 80, height: int = 24) -> None:
        self._own, other = pty.openpty()
        self.before = termios.tcgetattr(other)
        self.size(width, height)
        environment = os.environ | {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
        environment.pop("COLUMNS", None)
        environment.pop("LINES", None)
        self.process = subprocess.Popen(
            [*COMMAND, *arguments],
            stdin=other,
            stdout=other,
            stderr=other,
            env=environment,
            start_new_session=True,
        )
        self._other = other
        self.shown = ""

    def size(self, width: int, height: int) -> None:
        fcntl.ioctl(self._own, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self._own, keys.encode())

    def until(self, pattern: str, seconds: float = 30) -> None:
        """Read until what was written since the last time has a pattern."""
        deadline = time.monotonic() + seconds
        new = ""
        while not re.search(pattern, re.sub(r"\x1b\[[\d;]*m", "", new)):
            assert time.monotonic() < deadline, new
            if select.select([self._own], [], [], 0.2)[0]:
                read = os.read(self._own, 65536).decode(errors="replace")
                new += read
                self.shown += read

    def end(self) -> int:
        """Read on until the program has ended; return its exit code."""
        deadline = time.monotonic() + 60
        while self.process.poll() is None or select.select([self._own], [], [], 0.2)[0]:
            assert time.monotonic() < deadline
            if select.select([self._own], [], [], 0.2)[0]:
                self.shown += os.read(self._own, 65536).decode(errors="replace")
        return self.process.returncode

    def is_as_before(self) -> bool:
        """Tell whether the terminal is as the program found it."""
        switched = (self.shown.rfind("\x1b[?1049h"), self.shown.rfind("\x1b[?1049l"))
        return termios.tcgetattr(self._other) == self.before and 0 <= switched[0] < switched[1]

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._own)
        os.close(self._other)


@pytest.mark.parametrize("keys", ["q", "Q", "\x1b", "\x1b[Aq"])
def test_a_key_ends_it_and_leaves_the_terminal_as_it_was(terminal: Terminal, keys: str) -> None:
    terminal.until("of 3 partitions behind")
    terminal.press("x\x1b[B")  # these do not

    terminal.until("of 3 partitions behind")
    terminal.press(keys)

    assert terminal.end() == 0
    assert terminal.is_as_before()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_and_leaves_the_terminal_as_it_was(
    terminal: Terminal, number: signal.Signals, code: int
) -> None:
    terminal.until("of 3 partitions behind")

    os.kill(terminal.process.pid, number)

    assert terminal.end() == code
    assert terminal.is_as_before()


def test_it_follows_the_size_and_goes_on_when_the_worker_is_gone(
    server: Server, terminal: Terminal
) -> None:
    terminal.until("● ready")
    terminal.until("─ latency ─+╮╭─ index")  # two panels side by side

    terminal.size(200, 40)
    terminal.until("─ documents ─+╮╭─ lag ─+╮╭─ index")  # three
    server.answer = lambda _path, _headers: (503, {}, b"")
    terminal.until("● no answer")
    terminal.until("It answers with the HTTP status 503")
    server.answer = lambda _path, _headers: (200, {}, AFTER.encode())
    terminal.until("● ready")
    terminal.press("q")

    assert terminal.end() == 0


def test_without_a_keyboard_it_goes_on_until_a_signal(server: Server) -> None:
    own, other = pty.openpty()
    running = subprocess.Popen(
        [*COMMAND, server.place], stdin=subprocess.DEVNULL, stdout=other, stderr=other
    )
    try:
        written = ""
        while "documents" not in written:
            written += os.read(own, 65536).decode(errors="replace")
    finally:
        running.send_signal(signal.SIGTERM)
        code = running.wait(60)
        os.close(own)
        os.close(other)

    assert code == 143
