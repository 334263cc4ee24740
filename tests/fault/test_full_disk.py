"""Files on a disk that is full, over quota or broken for a moment, at each call in turn."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import cache, partial
from pathlib import Path
from typing import TypeVar
from unittest.mock import patch

import msgspec
import pytest

from stream_dedup.cli.main import cli
from stream_dedup.deduplicator import Deduplicator
from stream_dedup.errors import StateError
from stream_dedup.index import registry
from stream_dedup.index.memory import MemoryIndex
from stream_dedup.index.state_rows import pack
from stream_dedup.review.database import transaction
from stream_dedup.review.label_schema import open_labels
from stream_dedup.settings import Settings
from stream_dedup.stream import embedded, files
from stream_dedup.types import Decision, Document, Method, Revisions
from tests.services import faulty_disk
from tests.services.faulty_disk import Scenario, Walked, walk

Result = TypeVar("Result")

PROGRAM = "from stream_dedup.cli.main import main; main()"

#: Small rows, so that there are few calls; everything that changes a state file happens.
SETTINGS = Settings(
    method=Method.SIMHASH,
    window=400.0,
    lateness=1.0,
    renew=True,
    revisions=Revisions.REPLACE,
    time_field="time",
)
FINGERPRINT = ("--method", "simhash", "--window", "400s", "--renew", "yes")
INPUT = ("in.jsonl", "--time-field", "time")
RUN = (
    *("run", *INPUT, *FINGERPRINT, "-q", "--jobs", "1", "--lateness", "1s"),
    *(
        "--revisions",
        "replace",
        "--state",
        "s.db",
        "-o",
        "out.jsonl",
        "--dead-letters",
        "bad.jsonl",
    ),
)


def documents() -> Iterator[Document]:
    for number in range(27):
        words = " ".join(f"{number % 13}.{place}" for place in range(7))
        yield Document(number % 20, words, 25.0 * number)


BATCHES = [list(documents())[start : start + 9] for start in range(0, 27, 9)]


def held(state: Path) -> list[bytes]:
    """Return what a state file holds when it is opened again."""
    with Deduplicator(SETTINGS, state=state) as deduplicator:
        return [pack(batch, keeps_ranks=True) for batch in deduplicator.index.read_originals()]


held_by_the_calm = cache(held)


def mend() -> None:
    """Make room on the disk."""
    if faulty_disk.disk is not None:
        faulty_disk.disk.mend()


def once_more(act: Callable[[], Result]) -> Result:
    """Do something; when the state file cannot be written make room, and do the same again."""
    try:
        return act()
    except StateError as error:
        if "damaged" in str(error) or not str(error).endswith("."):
            raise
    mend()
    return act()


class Library:
    """A program that uses the library, and does again what failed."""

    failures = tuple(faulty_disk.FAILURES)

    def begin(self, folder: Path) -> None:
        pass

    @patch.object(registry, "_MIN_ROWS", 4)
    def attempt(self, folder: Path) -> None:
        state = folder / "state.db"
        deduplicator = once_more(lambda: Deduplicator(SETTINGS, state=state))
        assert isinstance(deduplicator.index, MemoryIndex)
        decided: list[Sequence[Decision]] = []
        for number, batch in enumerate(BATCHES):
            decided.append(once_more(partial(deduplicator.decide, batch)))
            if number == 1:
                once_more(partial(deduplicator.forget, [2, 11]))
            once_more(deduplicator.settle)
            # What is in memory is what is in the file: a copy belongs to the same originals.
            decided.append(once_more(partial(deduplicator.decide, batch)))
        once_more(deduplicator.sweep)
        late = deduplicator.index.late
        try:
            deduplicator.close()
        except StateError:
            mend()
            Deduplicator(SETTINGS, state=state).close()
        mend()  # the answers are not what this is about
        (folder / "answers").write_bytes(msgspec.json.encode([decided, late]))

    def check(self, folder: Path, calm: Path, code: int, stderr: str) -> None:
        assert code == 0, stderr
        assert (folder / "answers").read_bytes() == (calm / "answers").read_bytes()
        assert held(folder / "state.db") == held_by_the_calm(calm / "state.db")


class Labels:
    """The database of labels, in which each row is somebody's work."""

    failures = Library.failures

    def begin(self, folder: Path) -> None:
        pass

    def attempt(self, folder: Path) -> None:
        database = once_more(partial(open_labels, folder / "labels.db"))
        for number in range(4):
            once_more(partial(self._add, database, number))
        database.close()

    def check(self, folder: Path, calm: Path, code: int, stderr: str) -> None:
        assert code == 0, stderr
        with closing(open_labels(folder / "labels.db")) as database:
            rows = database.execute("SELECT id FROM draws").fetchall()
        assert [tuple(row) for row in rows] == [(number,) for number in range(4)]

    @staticmethod
    def _add(database: sqlite3.Connection, number: int) -> None:
        try:
            with transaction(database):
                row = (number, 0, "", 0, "", 0, 0, 0, 0, "")
                database.execute(f"INSERT INTO draws VALUES ({', '.join('?' * 10)})", row)
        except sqlite3.Error as error:
            msg = f"{error}."
            raise StateError(msg) from error


class Commands:
    """Commands, of which one ends by an error; then there is room, and they are given again."""

    #: What is done before on a disk that works, and what is done on the faulty one.
    failures: Sequence[str] = ("full",)
    given: Sequence[Sequence[str]] = ()
    commands: Sequence[Sequence[str]] = ()
    #: Files that are written, and state files among them.
    written: Sequence[str] = ()
    states: Sequence[str] = ()

    def begin(self, folder: Path) -> None:
        lines = [b'{"id": 3, "text": null}', b"{}"]
        lines[:0] = [msgspec.json.encode(document) for document in documents()]
        (folder / "in.jsonl").write_bytes(b"\n".join(lines))
        for command in self.given:
            self._command(folder, command)

    def attempt(self, folder: Path) -> None:
        for command in self.commands:
            self._command(folder, command)

    def check(self, folder: Path, calm: Path, code: int, stderr: str) -> None:
        if code:
            said = stderr.splitlines()[-1]
            assert code in {2, 65, 73}, stderr
            assert said.startswith("Error: "), stderr
            assert said.endswith("."), stderr
            assert "Traceback" not in stderr
            assert "damaged" not in stderr
            for name in self.written:
                if (folder / name).exists():  # whole, or it would be taken for what it is not
                    assert (folder / name).read_bytes() == (calm / name).read_bytes()
            for command in self.commands:
                self._again(folder, command)
        for name in self.written:
            assert (folder / name).read_bytes() == (calm / name).read_bytes()
        for name in self.states:
            assert held(folder / name) == held_by_the_calm(calm / name)
        assert not [*folder.glob("*.partial*"), *folder.glob("*.lock")]

    def _again(self, folder: Path, command: Sequence[str]) -> None:
        try:
            self._command(folder, command)
        except SystemExit as end:  # a file that must be new was written by the first time
            assert end.code in {2, 73}  # noqa: PT017

    def _command(self, folder: Path, command: Sequence[str]) -> None:
        os.chdir(folder)
        few = patch.object(files, "CHUNK_LINES", 9), patch.object(embedded, "CHUNK_LINES", 9)
        with few[0], few[1], patch.object(registry, "_MIN_ROWS", 4):
            try:
                cli(command, prog_name="stream-dedup")
            except SystemExit as end:
                if end.code:
                    raise


class Run(Commands):
    failures = Library.failures
    commands = (RUN,)
    written = ("out.jsonl", "bad.jsonl")
    states = ("s.db",)


class Forget(Commands):
    given = (RUN,)
    commands = (("forget", "7", "12", "--state", "s.db", "--sweep", *FINGERPRINT),)
    states = ("s.db",)


class Rebuild(Commands):
    given = (RUN,)
    commands = (
        ("rebuild", "out.jsonl", "--state", "new.db", "--time-field", "time", *FINGERPRINT),
    )
    states = ("new.db",)


class Export(Commands):
    failures = ("full", "bad block")
    given = (RUN,)
    commands = (("export", "file.parquet", "--state", "s.db", *FINGERPRINT),)
    written = ("file.parquet",)


class Import(Commands):
    given = (*Export.given, *Export.commands)
    commands = (("import", "file.parquet", "--state", "new.db", *FINGERPRINT),)
    states = ("new.db",)


class Others(Commands):
    """All other files that commands write."""

    failures = Export.failures
    commands = (
        ("learn", "frequencies", *INPUT, "-o", "frequencies", "--skip", "--cell-bits", "12"),
        ("learn", "boilerplate", "documents.jsonl", "-o", "boilerplate"),
        ("plan", "--documents", "1e6", "--write", "planned.toml"),
        ("generate", "--documents", "20", "-o", "generated.jsonl.zst"),
        ("sample", "documents.jsonl", "-o", "pairs.jsonl"),
    )
    given = (("generate", "--documents", "20", "-o", "documents.jsonl"),)
    written = ("frequencies", "boilerplate", "planned.toml", "generated.jsonl.zst", "pairs.jsonl")


@pytest.mark.parametrize(
    "command",
    [
        ("run", "in.jsonl"),
        ("run", "in.jsonl", "-o", "out", "--json"),
        ("settings",),
        ("run", "--help"),
        ("--version",),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_standard_output_ends_a_command_with_a_sentence(
    tmp_path: Path, command: Sequence[str], unbuffered: str
) -> None:
    (tmp_path / "in.jsonl").write_bytes(b'{"text": "one two three"}\n' * 9000)
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *command],
            cwd=tmp_path,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )

    assert done.returncode in {1, 65}
    *_, reported = done.stderr.decode().splitlines()
    assert "cannot be written: No space left on device." in reported
    assert b"Traceback" not in done.stderr


def test_a_closed_standard_output_ends_a_run_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(b'{"text": "one two three"}\n')
    command = f"exec {sys.executable} -c '{PROGRAM}' run in.jsonl >&-"

    done = subprocess.run(
        ["sh", "-c", command], cwd=tmp_path, stderr=subprocess.PIPE, timeout=60, check=False
    )

    assert done.returncode == 65
    assert done.stderr.startswith(b"Error: Standard output cannot be written: it is closed.")


@pytest.mark.parametrize(
    ("command", "code", "reported"),
    [
        ("run in.jsonl -o out --json >&-", 1, "Error: Standard input or output is closed."),
        ("settings >&-", 1, "Error: Standard input or output is closed."),
        ("run - -o out <&-", 65, "Error: - cannot be read"),
        ("forget - --state state <&-", 1, "Error: Standard input or output is closed."),
        ("run in.jsonl -o out 2>&-", 0, ""),
    ],
)
def test_a_closed_standard_stream_is_no_traceback_and_no_silence(
    tmp_path: Path, command: str, code: int, reported: str
) -> None:
    (tmp_path / "in.jsonl").write_bytes(b'{"text": "one two three"}\n')
    program = f"{sys.executable} -c '{PROGRAM}'"
    made = f"{program} run in.jsonl -q --state state -o made && exec {program} {command}"

    done = subprocess.run(
        ["sh", "-c", made], cwd=tmp_path, capture_output=True, timeout=60, check=False
    )

    assert (done.returncode, done.stderr.decode()[: len(reported)]) == (code, reported)
    assert b"Traceback" not in done.stderr


def report(walked: Walked) -> str:
    """Show the first of what was wrong."""
    cases = "\n".join([*walked.wrong][:20])
    first = next(iter(walked.wrong.values()), "")
    return f"{len(walked.wrong)} of {walked.failed} cases went wrong:\n{cases}\n{first}"


@pytest.mark.parametrize(
    ("scenario", "calls"),
    [
        (Library, 60),
        (Labels, 20),
        (Run, 60),
        (Forget, 5),
        (Rebuild, 20),
        (Export, 5),
        (Import, 20),
        (Others, 15),
    ],
)
def test_what_failed_can_be_done_again(scenario: type[Scenario], calls: int) -> None:
    walked = walk(f"{__name__}:{scenario.__name__}")

    assert not walked.wrong, report(walked)
    assert walked.calls >= calls
    assert walked.failed >= walked.calls * len(scenario.failures)
