"""A run with a state file, killed at any moment and made again, gives the same bytes."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec
import pytest

from stream_dedup.deduplicator import Deduplicator
from stream_dedup.generate import StreamShape, generate
from stream_dedup.index.memory import MemoryIndex
from stream_dedup.types import DocumentId

PROGRAM = [sys.executable, "-W", "error", "-c", "from stream_dedup.cli.main import main; main()"]
DOCUMENTS = 30_000
#: Kills while the program starts or reads its state, and kills while it writes.
EARLY_KILLS, LATE_KILLS = 2, 6
DEADLINE_SECONDS = 60

pytestmark = pytest.mark.usefixtures("alone")


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a stream in which every second document is a copy."""
    path = tmp_path_factory.mktemp("run") / "documents.jsonl"
    shape = StreamShape(documents=DOCUMENTS, duplicate_share=0.5, words=80, edits=1, seed=11)
    with path.open("wb") as file:
        for document in generate(shape):
            file.write(msgspec.json.encode(document) + b"\n")
    return path


def command(documents: Path, state: Path, output: Path, jobs: int = 1) -> list[str]:
    flags = ("-q", "--state", state, "-o", output, "--jobs", jobs)
    return [*PROGRAM, "run", *map(str, (documents, *flags))]


def originals(state: Path) -> list[DocumentId]:
    """Open a state file as the next run will, and return what it holds."""
    with Deduplicator(state=state) as deduplicator:
        assert isinstance(deduplicator.index, MemoryIndex)
        return list(deduplicator.index.originals.ids)


def kill_after(process: subprocess.Popen[bytes], written: Path, size: int, delay: float) -> bool:
    """Kill a run ``delay`` seconds after its output has this size; return whether it was alive."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while process.poll() is None and (written.stat().st_size if written.exists() else 0) < size:
        assert time.monotonic() < deadline, "the run makes no progress"
        time.sleep(0.002)
    time.sleep(delay)
    process.kill()
    return process.wait() == -9


@pytest.mark.parametrize(("seed", "jobs"), [(1, 1), (2, 1), (3, 3)])
def test_a_run_killed_again_and_again_ends_as_if_it_never_was(
    documents: Path, tmp_path: Path, seed: int, jobs: int
) -> None:
    subprocess.run(command(documents, tmp_path / "calm.db", tmp_path / "calm.jsonl"), check=True)
    expected = (tmp_path / "calm.jsonl").read_bytes()
    all_originals = originals(tmp_path / "calm.db")
    state, output = tmp_path / "killed.db", tmp_path / "killed.jsonl"
    written = output.with_name(output.name + ".partial")
    moments = random.Random(seed)
    kills = 0
    left = set()

    for attempt in range(EARLY_KILLS + LATE_KILLS):
        early = attempt < EARLY_KILLS
        size = 0 if early else moments.randrange(1, len(expected) * 9 // 10)
        delay = moments.uniform(0, 0.4 if early else 0.05)
        written.unlink(missing_ok=True)
        process = subprocess.Popen(command(documents, state, output, jobs))
        kills += kill_after(process, written, size, delay)
        held = originals(state) if state.exists() else []
        assert held == all_originals[: len(held)]
        left.add(len(held))
    subprocess.run(command(documents, state, output, jobs), check=True)

    assert kills >= 5
    # With jobs, claims run ahead of what is written, so fewer kills meet a half-filled state.
    assert len(left - {0, len(all_originals)}) >= (2 if jobs == 1 else 1)
    assert output.read_bytes() == expected
    assert originals(state) == all_originals
    assert not written.exists()


FORGETTING = ("--time-field", "at", "--window", "1200s", "--lateness", "300s")


def with_tombstones(documents: Path, count: int) -> Iterator[bytes]:
    """Give each document one of few ids and the time of its place, and let some be forgotten."""
    with documents.open("rb") as file:
        for number, line in enumerate(islice(file, count)):
            document = msgspec.json.decode(line)
            yield msgspec.json.encode({**document, "id": number % 700, "at": number})
            if number % 40 == 0:
                yield b'{"id": %d, "text": null}' % (number // 2 % 700)


@pytest.mark.parametrize("jobs", [1, 3])
def test_so_does_one_that_forgets(documents: Path, tmp_path: Path, jobs: int) -> None:
    lines = tmp_path / "lines.jsonl"
    lines.write_bytes(b"\n".join(with_tombstones(documents, 12_000)))
    flags = (*FORGETTING, "--revisions", "replace")
    calm, state = tmp_path / "calm.db", tmp_path / "killed.db"
    output = tmp_path / "killed.jsonl"
    written = output.with_name(output.name + ".partial")
    subprocess.run([*command(lines, calm, tmp_path / "calm.jsonl"), *flags], check=True)
    expected = (tmp_path / "calm.jsonl").read_bytes()
    moments = random.Random(jobs)

    for _ in range(3):
        size = moments.randrange(1, len(expected) * 9 // 10)
        written.unlink(missing_ok=True)
        process = subprocess.Popen([*command(lines, state, output, jobs), *flags])
        kill_after(process, written, size, moments.uniform(0, 0.05))
        if output.exists():  # it was done, and its session over
            assert output.read_bytes() == expected
            for file in (output, *tmp_path.glob("killed.db*")):
                file.unlink()
    subprocess.run([*command(lines, state, output, jobs), *flags], check=True)

    assert output.read_bytes() == expected
    assert b'"revises"' in expected
    assert state.stat().st_size == pytest.approx(calm.stat().st_size, rel=0.2)
