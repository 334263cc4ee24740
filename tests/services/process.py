"""A server as a local process that cannot outlive the tests."""

from __future__ import annotations

import atexit
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.services.errors import ServiceError

#: Below the range that systems take outgoing ports from. A client that keeps calling a stopped
#: server on a port of that range may end up connected to itself, and then holds the port.
_PORTS = range(20_000, 32_000)
#: Test processes side by side take every so-many-th port, so that none takes what another was given
#: and does not listen on yet.
_SHARE = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_SHARES = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_OWN_PORTS = _PORTS[_SHARE::_SHARES]
_untried = iter(random.sample(_OWN_PORTS, k=len(_OWN_PORTS)))
_STOP_SECONDS = 20.0
_LOG_LINES = 30


def free_ports(count: int) -> list[int]:
    """Return ``count`` ports of 127.0.0.1 that nobody listens on; none is returned twice."""
    ports: list[int] = []
    while len(ports) < count:
        port = next(_untried)
        with suppress(OSError), socket.socket() as listener:
            listener.bind(("127.0.0.1", port))
            ports.append(port)
    return ports


def find_program(*names: str) -> str:
    """Return the first of ``names`` that is installed.

    Raises:
        ServiceError: none is; the message says what to do.
    """
    for name in names:
        found = shutil.which(name)
        if found:
            return found
    msg = f"{' or '.join(names)} is not installed; run `make services`."
    raise ServiceError(msg)


def compile_library(source: Path, folder: Path) -> Path:
    """Compile a library that is preloaded (LD_PRELOAD) from C into a folder.

    Raises:
        ServiceError: it cannot be; the message says what to do.
    """
    library = folder / source.with_suffix(".so").name
    command = [find_program("cc"), "-shared", "-fPIC", "-O1", "-o", str(library), str(source)]
    done = subprocess.run([*command, "-ldl"], capture_output=True, text=True, check=False)
    if done.returncode:
        msg = f"{source} cannot be compiled: {done.stderr}"
        raise ServiceError(msg)
    return library


class Process:
    """One program in a process group of its own, so that Ctrl-C reaches the tests only."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._command = [*_die_with_parent(), *command]
        self._log = log
        self._popen: subprocess.Popen[bytes] | None = None
        atexit.register(self.kill)

    @property
    def is_alive(self) -> bool:
        """Whether the program runs (or is paused)."""
        return self._popen is not None and self._popen.poll() is None

    def start(self) -> None:
        """Start the program; its output is added to the log file."""
        if self.is_alive:
            return
        with self._log.open("ab") as log:
            self._popen = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
                # SIGXFSZ stays ignored: past ``limit_files`` writing fails, as on a full disk.
                restore_signals=False,
            )

    def terminate(self) -> None:
        """Ask the program to end, without waiting."""
        self._signal(signal.SIGTERM)
        self.resume()  # a paused program would not see the signal

    def wait(self, seconds: float) -> int | None:
        """Wait until the program has ended; return its exit code, None when it still runs."""
        if self._popen is not None:
            with suppress(subprocess.TimeoutExpired):
                return self._popen.wait(seconds)
        return None

    def stop(self) -> None:
        """Ask the program to end; kill it when it does not."""
        self.terminate()
        if self._popen is not None:
            with suppress(subprocess.TimeoutExpired):
                self._popen.wait(_STOP_SECONDS)
        self.kill()

    def kill(self) -> None:
        """End the program as a crash would."""
        self._signal(signal.SIGKILL)
        if self._popen is not None:
            self._popen.wait()

    def pause(self) -> None:
        """Freeze the program; its connections stay open and nothing answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused program go on."""
        self._signal(signal.SIGCONT)

    def limit_files(self, size: int | None) -> None:
        """Let writing beyond so many bytes of a file fail, until a limit of None or the next life.

        The soft limit of a process may be raised again without any privilege.
        """
        if self._popen is not None and self.is_alive:
            pid = self._popen.pid
            _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            soft = hard if size is None else size
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))

    def log(self) -> str:
        """Return the last lines that the program wrote."""
        if not self._log.is_file():
            return ""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-_LOG_LINES:])

    def close(self) -> None:
        """Stop the program for good."""
        self.stop()
        atexit.unregister(self.kill)

    def _signal(self, number: signal.Signals) -> None:
        if self._popen is not None and self._popen.poll() is None:
            os.killpg(self._popen.pid, number)


def _die_with_parent() -> list[str]:
    """Make Linux kill the program even when the tests are killed and cannot.

    Linux means the *thread* that started it: start services in the main thread.
    """
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
