"""``stream-dedup run --jobs``: the same bytes, errors and endings as in one process."""

from __future__ import annotations

import gzip
import os
import pickle
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner, Result

from stream_dedup.cli import run as command
from stream_dedup.cli.main import cli
from stream_dedup.errors import WorkerError
from stream_dedup.generate import StreamShape, generate
from stream_dedup.index.revisions import Answers
from stream_dedup.settings import Settings
from stream_dedup.stream import jobs as module
from stream_dedup.stream.files import CHUNK_LINES, Chunk
from stream_dedup.stream.jobs import JobPool
from stream_dedup.stream.slots import Slots
from stream_dedup.stream.stages import Claimed, LineStages, Prepared

PROGRAM = [sys.executable, "-W", "error", "-c", "from stream_dedup.cli.main import main; main()"]
EXAMPLES = Path(__file__).parents[2] / "examples" / "documents.jsonl"
DEADLINE_SECONDS = 60

SHAPE = StreamShape(
    documents=6 * CHUNK_LINES, duplicate_share=0.5, words=80, edits=1, viral=2, seed=5
)

pytestmark = pytest.mark.usefixtures("alone")


@pytest.fixture(scope="module")
def lines() -> list[bytes]:
    return [msgspec.json.encode(document) for document in generate(SHAPE)]


@pytest.fixture(params=["by the workers", "by all"])
def beginning(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers carry out all batches, or let this process take some, the first among them."""
    if request.param == "by the workers":
        monkeypatch.setattr(module, "OWN_DEPTH", 0)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["run", *map(str, arguments)])


def outcome(jobs: int, *arguments: object) -> tuple[Any, ...]:
    """Run with so many jobs; return all that a user sees of it but the time."""
    result = run(*arguments, "--jobs", jobs, "-o", "out", "--dead-letters", "letters", "--json")
    summary = {}
    if result.exit_code == 0:
        summary = msgspec.json.decode(result.stdout_bytes)
        del summary["seconds"], summary["documents_per_second"]
    written = [Path(name).read_bytes() for name in ("out", "letters") if Path(name).exists()]
    return result.exit_code, summary, written, result.stderr


@pytest.mark.usefixtures("beginning")
class TestSameBytes:
    @pytest.mark.parametrize("jobs", [0, 2, 3])
    def test_many_batches_with_bad_lines(self, lines: list[bytes], jobs: int) -> None:
        mixed = [b"bad" if n % 700 == 0 else line for n, line in enumerate(lines)]
        mixed[10:10] = [b"", b"[]", '{"text": "é"}'.encode("latin-1")]
        Path("in").write_bytes(b"\r\n".join(mixed))

        assert outcome(jobs, "in") == outcome(1, "in")

    def test_many_small_files(self, lines: list[bytes]) -> None:
        names = []
        for start in range(0, 2400, 300):
            names.append(f"{start}.gz")
            Path(names[-1]).write_bytes(gzip.compress(b"\n".join(lines[start : start + 300])))

        assert outcome(2, *names, names[0]) == outcome(1, *names, names[0])

    def test_lines_of_text_by_simhash(self, lines: list[bytes]) -> None:
        Path("in").write_bytes(b"\n".join(lines))

        flags = ("in", "--format", "text", "--method", "simhash", "--shingle", "char:5")
        assert outcome(2, *flags) == outcome(1, *flags)

    @pytest.mark.parametrize("revisions", ["off", "replace"])
    def test_tombstones_revisions_and_what_expires(
        self, lines: list[bytes], revisions: str
    ) -> None:
        documents: list[bytes] = []
        for number, line in enumerate(lines):
            document = msgspec.json.decode(line)
            documents.append(msgspec.json.encode({**document, "id": number % 900, "at": number}))
            if number % 50 == 0:
                documents.append(b'{"id": %d, "text": null, "n": 1.0}' % (number // 3))
        Path("in").write_bytes(b"\n".join(documents))
        flags = ("--time-field", "at", "--window", "1500s", "--lateness", "200s")

        alone, together = (
            outcome(jobs, "in", *flags, "--revisions", revisions, "--state", f"{jobs}.db")
            for jobs in (1, 2)
        )

        assert together == alone
        summary = alone[1]
        assert summary["tombstones"] == len(documents) - len(lines)
        assert summary["late"] == 0
        written = alone[2][0].splitlines()
        assert written.count(documents[1]) == 1
        assert (b'"revises"' in alone[2][0]) == (revisions == "replace")

    def test_nothing_at_all(self) -> None:
        Path("in").write_bytes(b"\n\n")

        assert outcome(2, "in") == outcome(1, "in")

    def test_what_has_no_room_in_a_slot(
        self, lines: list[bytes], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        long = msgspec.json.encode({"text": "many words " * 40_000})
        Path("in").write_bytes(b"\n".join([*lines, long, *lines]))
        expected = outcome(1, "in")

        # Batches of lines, then fingerprints and annotated lines, then the long line alone.
        for size in (1 << 12, 450_000, 1 << 20):
            monkeypatch.setattr(module, "_SLOT_BYTES", size)
            assert outcome(2, "in") == expected


@pytest.mark.usefixtures("beginning")
class TestErrors:
    @pytest.mark.parametrize("place", [3, CHUNK_LINES + 3, 4 * CHUNK_LINES])
    def test_a_bad_line_ends_the_run_after_all_before_it(
        self, lines: list[bytes], place: int
    ) -> None:
        Path("in").write_bytes(b"\n".join([*lines[:place], b"bad", *lines[place:]]))

        alone, together = (run("in", "-q", "--jobs", jobs) for jobs in (1, 2))

        assert alone.exit_code == together.exit_code == 65
        assert f"in:{place + 1} is not a document" in together.stderr
        assert together.stderr == alone.stderr
        assert together.stdout_bytes == alone.stdout_bytes

    def test_a_damaged_file_ends_the_run_after_all_before_the_damage(
        self, lines: list[bytes]
    ) -> None:
        Path("in").write_bytes(gzip.compress(b"\n".join(lines))[:-100])

        alone, together = (run("in", "-q", "--jobs", jobs) for jobs in (1, 2))

        assert together.exit_code == 65
        assert (together.stdout_bytes, together.stderr) == (alone.stdout_bytes, alone.stderr)
        assert together.stdout_bytes

    def test_a_document_without_a_time_is_named(self, lines: list[bytes]) -> None:
        Path("in").write_bytes(b'{"text": "a", "id": "timeless"}')

        assert outcome(2, "in", "--window", "1d") == outcome(1, "in", "--window", "1d")

    @pytest.mark.parametrize("moment", ["prepare", "claim"])
    def test_a_worker_that_is_killed_is_told(self, lines: list[bytes], moment: str) -> None:
        batches = [[Chunk(lines[:100], "in", "/in", 1)]] * 50
        make = partial(command._stages, Settings(), "jsonl", set_aside=False)

        def claim(prepared: Prepared) -> Claimed:
            if moment == "claim":
                kill()
            return Claimed(Answers([None] * len(prepared.batch)))

        with JobPool(3, make) as pool:

            def kill() -> None:
                pool._workers[1].process.kill()
                pool._workers[1].process.join()

            if moment == "prepare":
                kill()
            with pytest.raises(WorkerError, match=r"ended \(signal 9\)"):
                list(pool.walk(batches, claim))


def start(*arguments: object) -> subprocess.Popen[bytes]:
    program = [*PROGRAM, "run", *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        program,
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        bufsize=0,
        # Programs in the background of a script do not hear an interrupt, nor do theirs.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )


def children_of(pid: int) -> set[int]:
    """Return a process's descendants."""
    found = set()
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, path.read_text().split()):
            found |= {child, *children_of(child)}
    return found


def wait_for_workers(pid: int) -> set[int]:
    """Wait for the two workers, the process that they come from, and the resource tracker."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(children := children_of(pid)) < 4:
        assert time.monotonic() < deadline, "there are no workers"
        time.sleep(0.01)
    return children


def wait_until_gone(pids: set[int]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline, "processes are left behind"
        time.sleep(0.01)


class TestEndings:
    def test_an_interrupt_ends_all_quietly(self, lines: list[bytes]) -> None:
        with start("-", "--jobs", 3) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            children = wait_for_workers(process.pid)
            # Less than a batch: nobody reads what would be written about it.
            process.stdin.write(b"\n".join(lines[: CHUNK_LINES // 2]))
            for pid in (process.pid, *children):
                os.kill(pid, signal.SIGINT)
            process.stdin.close()
            process.stdout.read()
            complaint = process.stderr.read()

        assert (complaint, process.returncode) == (b"", 130)
        wait_until_gone(children)

    def test_a_reader_that_has_seen_enough_is_no_error(self, lines: list[bytes]) -> None:
        Path("in").write_bytes(b"\n".join(lines))
        with start("in", "-q", "--jobs", 3) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.read(1000)
            process.stdout.close()
            complaint = process.stderr.read()

        assert (complaint, process.returncode) == (b"", 0)

    def test_workers_end_with_a_run_that_is_killed(self, lines: list[bytes]) -> None:
        with start("-", "-q", "--jobs", 3) as process:
            assert process.stdin is not None
            children = wait_for_workers(process.pid)
            # Less than a batch: nobody reads what would be written about it.
            process.stdin.write(b"\n".join(lines[: CHUNK_LINES // 2]))
            process.kill()

        wait_until_gone(children)


class TestSlots:
    def test_a_value_comes_back_as_it_was(self) -> None:
        slots = Slots(2, 4096)
        value = ([b"a", "b", None], np.arange(7), np.zeros((0, 3)), np.ones(5, np.bool_))

        other = slots.put(0, [1, 2])
        sizes = slots.put(1, value)

        assert sizes is not None
        back = slots.get(1, sizes)
        assert back[0] == value[0]
        for array, expected in zip(back[1:], value[1:], strict=True):
            assert array.dtype == expected.dtype
            np.testing.assert_array_equal(array, expected)
        assert other is not None
        assert slots.get(0, other) == [1, 2]
        slots.close_handle()

    def test_what_has_no_room_is_left_out(self) -> None:
        slots = Slots(2, 4096)

        kept = slots.put(1, "next")
        assert slots.put(0, np.zeros(4000, np.uint8)) is None

        assert kept is not None
        assert slots.get(1, kept) == "next"
        slots.close_handle()


def test_the_stages_are_made_in_each_process() -> None:
    make = partial(command._stages, Settings(), "jsonl", set_aside=True)

    again = pickle.loads(pickle.dumps(make))

    assert isinstance(again(), LineStages)
