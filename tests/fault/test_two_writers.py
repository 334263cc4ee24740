"""Two processes that write the same new file at once: one does, the other is refused."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from stream_dedup.deduplicator import Deduplicator
from stream_dedup.index.memory import MemoryIndex
from stream_dedup.types import DocumentId

#: Runs a command that waits before a file gets its name, until another file is there.
PAUSED = """
import pathlib, time
from stream_dedup.cli.main import main
replace = pathlib.Path.replace
def paused(self, target):
    pathlib.Path("paused").touch()
    end = time.monotonic() + 60
    while not pathlib.Path("go").exists() and time.monotonic() < end:
        time.sleep(.005)
    return replace(self, target)
pathlib.Path.replace = paused
main()
"""
PLAIN = "from stream_dedup.cli.main import main; main()"
DEADLINE_SECONDS = 60


def start(program: str, *command: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", program, *command], stderr=subprocess.PIPE)


def end(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    _, stderr = process.communicate(timeout=DEADLINE_SECONDS)
    return process.returncode, stderr.decode()


def write_documents(name: str, first: int) -> None:
    lines = [
        msgspec.json.encode({"id": first + n, "text": f"document {first + n} " * 9})
        for n in range(20)
    ]
    Path(name).write_bytes(b"\n".join(lines))


def held(state: str) -> set[DocumentId]:
    with Deduplicator(state=Path(state)) as deduplicator:
        assert isinstance(deduplicator.index, MemoryIndex)
        return set(deduplicator.index.originals.ids)


@pytest.fixture(autouse=True)
def _inputs(alone: None) -> None:
    write_documents("one", 100)
    write_documents("two", 200)


def run(name: str) -> tuple[str, ...]:
    return ("run", name, "-q", "--jobs", "1", "--state", "new.db", "-o", f"{name}.out")


COMMANDS = {
    "run --state": (run("one"), run("two"), 73, "new.db"),
    "run -o": (
        ("run", "one", "-q", "--jobs", "1", "-o", "out"),
        ("run", "two", "-q", "--jobs", "1", "-o", "out"),
        65,
        "out",
    ),
    "run beside a rebuild": (
        ("rebuild", "one", "--state", "new.db", "--json"),
        run("two"),
        73,
        "new.db",
    ),
    "plan --write": (
        ("plan", "--documents", "1e6", "--write", "new.toml"),
        ("plan", "--documents", "1e9", "--write", "new.toml"),
        2,
        "new.toml",
    ),
    "export": (
        ("export", "new.parquet", "--state", "a.db"),
        ("export", "new.parquet", "--state", "b.db"),
        65,
        "new.parquet",
    ),
}


@pytest.mark.parametrize("commands", COMMANDS.values(), ids=COMMANDS)
def test_while_one_process_makes_a_file_another_is_refused(
    commands: tuple[tuple[str, ...], tuple[str, ...], int, str],
) -> None:
    first, second, code, written = commands
    for name in ("a.db", "b.db"):
        Deduplicator(state=Path(name)).close()
    paused = start(PAUSED, *first)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not Path("paused").exists():
        assert paused.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)

    refused = end(start(PLAIN, *second))
    assert not Path(written).exists()
    Path("go").touch()
    done = end(paused)

    assert refused[0] == code, refused
    assert "another process" in refused[1]
    assert "Traceback" not in refused[1]
    assert done[0] == 0, done
    assert Path(written).exists()
    assert not [*Path().glob("*.lock"), *Path().glob("*.partial*")]
    if written == "new.db":
        assert held(written) == set(range(100, 120))
    assert end(start(PLAIN, *first))[0] in {0, code}  # nothing is locked any more


def test_no_document_of_a_run_that_succeeded_is_lost() -> None:
    for _ in range(2):
        Path("new.db").unlink(missing_ok=True)
        processes = [start(PLAIN, *run(name)) for name in ("one", "two")]

        ended = [end(process) for process in processes]

        expected: set[DocumentId] = set()
        for first, (code, stderr) in zip((100, 200), ended, strict=True):
            assert code == 0 or (code == 73 and "in use by another process" in stderr)
            expected |= set(range(first, first + 20)) if code == 0 else set()
        assert expected
        assert held("new.db") == expected


def test_a_log_that_outlived_its_state_file_is_not_read() -> None:
    assert end(start(PLAIN, *run("one")))[0] == 0
    # As a run that was killed leaves it.
    killed = """
import os
from pathlib import Path
from stream_dedup import Deduplicator, Document
deduplicator = Deduplicator(state=Path("new.db"))
deduplicator.decide([Document(1, "a document of a run that was killed")])
os._exit(9)
"""
    assert end(start(killed))[0] == 9
    assert Path("new.db-wal").exists()
    Path("new.db").unlink()

    assert end(start(PLAIN, *run("two"))) == (0, "")

    assert held("new.db") == set(range(200, 220))


def test_all_files_that_a_run_writes_differ() -> None:
    for flags in (
        ("--state", "x", "-o", "x"),
        ("--state", "x", "-o", "out", "--dead-letters", "./x"),
        ("--dead-letters", "x", "-o", "x"),
    ):
        code, stderr = end(start(PLAIN, "run", "one", "-q", *flags))

        assert code == 2
        assert "name the same file" in stderr
        assert not Path("x").exists()
