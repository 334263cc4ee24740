"""What all services have in common: start, wait until they answer, stop, break."""

from __future__ import annotations

import atexit
import shutil
import socket
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Protocol, Self

from tests.services.errors import ServiceError

_START_SECONDS = 60.0
_POLL_SECONDS = 0.05


class Runner(Protocol):
    """Where a server runs: a local process or a container."""

    @property
    def is_alive(self) -> bool:
        """Whether the server runs (or is paused)."""

    def start(self) -> None:
        """Start the server, with the data it had."""

    def stop(self) -> None:
        """Ask the server to end."""

    def kill(self) -> None:
        """End the server as a crash would."""

    def pause(self) -> None:
        """Freeze the server; its connections stay open and nothing answers."""

    def resume(self) -> None:
        """Let a paused server go on."""

    def limit_files(self, size: int | None) -> None:
        """Let writing beyond so many bytes of a file fail; None: no more."""

    def log(self) -> str:
        """Return the end of what the server wrote."""

    def close(self) -> None:
        """Stop the server for good."""


class Service(ABC):
    """A server under the control of a test.

    It starts as ``with service:`` does, keeps its address and its data over ``kill`` or ``stop``
    followed by ``start``, and is gone for good after ``close``.
    """

    #: What error messages call it.
    name: str
    #: None for a server that ran before the tests and is not theirs to stop.
    _runner: Runner | None = None

    @abstractmethod
    def is_ready(self) -> bool:
        """Whether the server answers."""

    def start(self) -> Self:
        """Start the server and wait until it answers.

        Raises:
            ServiceError: it ended or did not answer in time; the message holds the end of its log.
        """
        if self._runner is not None:
            self._runner.start()
        deadline = time.monotonic() + _START_SECONDS
        while not self.is_ready():
            self._check_start(deadline)
            time.sleep(_POLL_SECONDS)
        return self

    def stop(self) -> None:
        """Ask the server to end, and wait until it has."""
        self._own().stop()

    def kill(self) -> None:
        """End the server as a crash would."""
        self._own().kill()

    def pause(self) -> None:
        """Freeze the server; its connections stay open and nothing answers."""
        self._own().pause()

    def resume(self) -> None:
        """Let a paused server go on."""
        self._own().resume()

    def limit_files(self, size: int | None) -> None:
        """Let writing beyond so many bytes of a file fail, as on a full disk; None: no more."""
        self._own().limit_files(size)

    def launch(self) -> None:
        """Start the server without waiting until it answers."""
        self._own().start()

    def close(self) -> None:
        """Stop the server for good, unless it ran before the tests."""
        if self._runner is not None:
            self._runner.close()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def _own(self) -> Runner:
        if self._runner is None:
            msg = f"{self.name} ran before the tests; start one of your own to stop or break it."
            raise ServiceError(msg)
        return self._runner

    def _check_start(self, deadline: float) -> None:
        if self._runner is not None and not self._runner.is_alive:
            msg = f"{self.name} ended while it started. The end of its log:\n{self._runner.log()}"
            raise ServiceError(msg)
        if time.monotonic() > deadline:
            log = self._runner.log() if self._runner is not None else ""
            msg = f"{self.name} did not answer within {_START_SECONDS:.0f} s. {log}"
            raise ServiceError(msg)


def scratch_directory(name: str) -> Path:
    """Return a new directory that is removed when the tests end."""
    path = Path(tempfile.mkdtemp(prefix=f"stream-dedup-{name}-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def listens(port: int, host: str = "127.0.0.1") -> bool:
    """Whether somebody accepts connections on ``port``."""
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False
