"""Checks of this machine: the port of the worker's HTTP server, files, room."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from stream_dedup.doctor.findings import Finding, Level, check, error, hint, ok, warning
from stream_dedup.doctor.words import readable_bytes as size
from stream_dedup.errors import SettingsError
from stream_dedup.settings import Settings
from stream_dedup.tokens import is_open

_TIMEOUT = 2.0
#: Files and connections of the supervisor, and of each worker process: brokers, nodes of Redis,
#: metrics, files of code.
_FILES, _FILES_EACH = 256, 128
#: Bytes that metrics files and temporary files of a worker may take.
_ROOM = 100_000_000


@dataclass(frozen=True)
class MachineFacts:
    """What is known of this machine.

    Attributes:
        taken: why the address of the HTTP server cannot be bound; empty if it can.
        ours: whether what answers there is a worker.
        files: files that a process may have open.
        scratch: directory of temporary files.
        writable: whether it takes files.
        free: bytes that are free there.
        cores: processors that this process may use.
    """

    taken: str
    ours: bool
    files: int
    scratch: str
    writable: bool
    free: int
    cores: int


def look(settings: Settings) -> MachineFacts:
    """Look at this machine; the port is bound for a moment, and let go."""
    taken = _taken(settings.http_host, settings.http_port)
    scratch = tempfile.gettempdir() if _has_scratch() else "/tmp"  # noqa: S108 - where it would be
    return MachineFacts(
        taken=taken,
        ours=bool(taken) and _is_worker(settings.http_host, settings.http_port),
        files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        scratch=scratch,
        writable=_has_scratch(),
        free=shutil.disk_usage(scratch).free if Path(scratch).is_dir() else 0,
        cores=len(os.sched_getaffinity(0)),
    )


def _has_scratch() -> bool:
    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        return False
    return True


def _taken(host: str, port: int) -> str:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((host, port))
        except OSError as problem:
            return problem.strerror or str(problem)
    return ""


def _is_worker(host: str, port: int) -> bool:
    """Tell whether what listens answers as a worker's /healthz does."""
    named = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)  # noqa: S104 - what is bound
    try:
        with urlopen(f"http://{named}:{port}/healthz", timeout=_TIMEOUT) as answer:
            return bool(answer.read(16) == b"ok\n")
    except HTTPError as problem:
        return problem.code == 503 and problem.read(16).startswith(b"No progress")
    except (URLError, HTTPException, OSError):
        return False


@check("http.port", Level.ERROR, remedy="another `--http-port`", failure=SettingsError)
def port(facts: MachineFacts, settings: Settings) -> Iterator[Finding]:
    """The port of the worker's HTTP server is free, or a worker has it."""
    address = f"{settings.http_host}:{settings.http_port}"
    if facts.ours:
        yield ok(f"A worker answers on {address}.")
    elif facts.taken:
        yield error(
            f"The address {address} for /metrics cannot be bound: {facts.taken}.",
            "Give another one, or 0 for a free one",
            "http_port = 0",
        )
    else:
        yield ok(f"{address} is free." if settings.http_port else "Any free port is taken.")


@check("http.token", Level.WARNING, remedy="`http_token_file`, or listen on 127.0.0.1")
def token(facts: MachineFacts, settings: Settings) -> Iterator[Finding]:
    """What listens beyond this machine wants a token."""
    problems = []
    for name in ("http", "serve"):
        host = getattr(settings, f"{name}_host")
        has = getattr(settings, f"{name}_token_file") or getattr(settings, f"{name}_token")
        if is_open(host, "set" if has else ""):
            found = f"Anybody who reaches {host} may ask this machine's {name} port."
            command = f"{name}_token_file = /run/secrets/{name}_token"
            problems.append(warning(found, "Name a file with a token in it", command))
    yield from problems or [ok("Nothing listens beyond this machine without a token.")]


@check("machine.files", Level.WARNING, remedy="`ulimit -n`")
def files(facts: MachineFacts, settings: Settings) -> Iterator[Finding]:
    """Processes may have as many files and connections open as they need."""
    wanted = _FILES + _FILES_EACH * settings.processes
    if 0 <= facts.files < wanted:
        yield warning(
            f"A process may have {facts.files} files open; {settings.processes} worker(s) may need "
            f"{wanted}.",
            "Raise the limit where workers are started",
            f"ulimit -n {wanted}",
        )
    else:
        yield ok(f"A process may have {facts.files} files open.")


@check("machine.scratch", Level.WARNING, Level.ERROR, remedy="a writable TMPDIR with room")
def scratch(facts: MachineFacts, settings: Settings) -> Iterator[Finding]:
    """There is room for temporary files, which keep the metrics of the processes."""
    if not facts.writable:
        yield error(
            f"{facts.scratch} takes no files, and the metrics of worker processes are kept there.",
            "Mount an empty directory that this user may write to, and name it",
            "export TMPDIR=/path",
        )
    elif facts.free < _ROOM:
        yield warning(
            f"{facts.scratch} has {size(facts.free)} left.",
            "Make room, or name another directory",
            "export TMPDIR=/path",
        )
    else:
        yield ok(f"{facts.scratch} has {size(facts.free)} left.")


@check("machine.cores", Level.HINT, remedy="`--processes`, more machines")
def cores(facts: MachineFacts, settings: Settings) -> Iterator[Finding]:
    """There are not more worker processes than processors."""
    if settings.processes > facts.cores:
        yield hint(
            f"{settings.processes} processes share {facts.cores} processor(s).",
            "Start as many as there are, and the others on other machines",
            f"processes = {facts.cores}",
        )
    else:
        yield ok(f"{facts.cores} processor(s) for {settings.processes} process(es).")


CHECKS = (port, token, files, scratch, cores)
