"""From file to file on one core: rate, share of each stage, one and more jobs."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import NamedTuple, ParamSpec, TypeVar
from unittest import mock

import msgspec

from benchmarks import documents
from benchmarks.processes import children_cpu, one_cpu
from benchmarks.report import Report, Row, Table, arguments, columns, progress, run
from stream_dedup.deduplicator import Deduplicator
from stream_dedup.generate import GeneratedDocument, Kind
from stream_dedup.settings import Settings
from stream_dedup.stream.embedded import Here, Run, Summary
from stream_dedup.stream.files import open_output, read_chunks
from stream_dedup.stream.lines import JsonLines
from stream_dedup.stream.stages import LineStages
from stream_dedup.types import Decision, Method, Status

P = ParamSpec("P")
R = TypeVar("R")

#: As many times as many documents are given to jobs.
_LONG = 5
STAGES = ("read", "decode", "fingerprint", "index", "decide", "annotate", "write", "the rest")

FOUND = (
    "*Found* is the share of true duplicates that were attached to their original, *near found* "
    "the same of near copies alone, *wrong* the share of attached documents that went"
    " to a stranger."
)
FOUND_COLUMNS = columns("found|.2%", "near found|.2%", "wrong|.2%")


class Annotated(msgspec.Struct):
    """What is read of an annotated line."""

    dedup: Decision


class FileRun(NamedTuple):
    """One ``stream-dedup run``.

    Attributes:
        cpu: user and system time of its process in seconds, start-up included.
        seconds: the same by the clock.
        summary: what it found.
    """

    cpu: float
    seconds: float
    summary: Summary


def run_file(
    source: Path, output: Path, method: Method = Method.MINHASH, jobs: int = 1, shingle: str = ""
) -> FileRun:
    """Annotate a file with the command line: on one CPU, or with more jobs on all of them.

    The CPU time of jobs is not in that of their run.
    """
    program = Path(sys.executable).with_name("stream-dedup")
    command: list[str | Path] = [
        program,
        "run",
        source,
        "--output",
        output,
        "--method",
        method,
        "--json",
        "--jobs",
        str(jobs),
    ]
    if shingle:
        command += ["--shingle", shingle]
    before, began = children_cpu(), time.perf_counter()
    with one_cpu() if jobs == 1 else nullcontext():
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    seconds, cpu = time.perf_counter() - began, children_cpu() - before
    return FileRun(cpu, seconds, msgspec.json.decode(done.stdout, type=Summary))


def found_in(output: Path, stream: Sequence[GeneratedDocument]) -> documents.Found:
    """Compare the annotations of a file with the truth."""
    decode = msgspec.json.Decoder(Annotated).decode
    with output.open("rb") as lines:
        return documents.score(stream, [original_of(decode(line).dedup) for line in lines])


def original_of(decision: Decision) -> str | None:
    """Return the id of the original of a duplicate."""
    return None if decision.status is Status.ORIGINAL else str(decision.original_id)


class Clocks:
    """Time spent in functions, by stage."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(STAGES, 0.0)

    def around(self, stage: str, function: Callable[P, R]) -> Callable[P, R]:
        """Return the function with a clock around it."""

        def timed(*args: P.args, **kwargs: P.kwargs) -> R:
            began = time.perf_counter()
            result = function(*args, **kwargs)
            self.seconds[stage] += time.perf_counter() - began
            return result

        return timed

    @contextmanager
    def on(self, owner: object, **methods: str) -> Iterator[None]:
        """Time methods of an object (name=stage) within the block."""
        with ExitStack() as stack:
            for name, stage in methods.items():
                timed = self.around(stage, getattr(owner, name))
                stack.enter_context(mock.patch.object(owner, name, timed))
            yield

    def each(self, stage: str, values: Iterator[R]) -> Iterator[R]:
        """Yield values, timing what produces them."""
        following = self.around(stage, values.__next__)
        with suppress(StopIteration):
            while True:
                yield following()


def stage_shares(source: Path, output: Path, method: Method) -> list[float]:
    """Do what ``stream-dedup run`` does, with clocks around each stage; return their shares."""
    clocks, settings = Clocks(), Settings(method=method)
    lines = JsonLines(settings)
    with one_cpu(), Deduplicator(settings) as deduplicator, open_output(output) as file:
        stages = LineStages(deduplicator, lines, set_aside=False)
        job = Run(deduplicator.index, Here(stages), clocks.around("write", file.write))
        with (
            clocks.on(lines, decode="decode", encode="annotate"),
            clocks.on(deduplicator.fingerprinter, fingerprint="fingerprint"),
            clocks.on(deduplicator.index, claim="index"),
            clocks.on(deduplicator, prepare="decide", decisions="decide"),
        ):
            began = time.perf_counter()
            job.annotate(clocks.each("read", read_chunks(source, 0, 1 << 30, lambda _read: None)))
            total = time.perf_counter() - began
    # It happens while documents are prepared; what is left is to name them and to decide.
    clocks.seconds["decide"] -= clocks.seconds["fingerprint"]
    clocks.seconds["the rest"] = total - sum(clocks.seconds.values())
    return [clocks.seconds[stage] / total for stage in STAGES]


def measure(options: argparse.Namespace) -> Report:
    """Measure the command line and its stages on one stream."""
    stream = documents.stream(options.documents)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = folder / "documents.jsonl"
        documents.write(source, stream)
        tables = [_file_table(stream, source), _jobs_table(folder, options.documents)]
        tables.append(_stage_table(source))
    return Report("Embedded, from file to file", tables)


def _file_table(stream: Sequence[GeneratedDocument], source: Path) -> Table:
    rows: list[Row] = []
    for method in Method:
        progress(f"{method}: {len(stream)} documents from file to file")
        output = source.with_name("annotated.jsonl")
        done = run_file(source, output, method)
        rate, megabytes = len(stream) / done.cpu, source.stat().st_size / 1e6
        found = found_in(output, stream)
        rows.append([method, rate, len(stream) / done.seconds, megabytes / done.cpu, *found])
    note = (
        f"{len(stream):,} documents of 150 words ({source.stat().st_size / len(stream):,.0f} "
        f"bytes a line), {_copies(stream)}: `stream-dedup run` on one CPU, start-up included. "
        f"{FOUND}"
    )
    header = columns("method", "documents/s of CPU|,.0f", "by the clock|,.0f", "MB/s of CPU|,.1f")
    return Table("`stream-dedup run`", note, [*header, *FOUND_COLUMNS], rows)


def _jobs_table(folder: Path, count: int) -> Table:
    source, output = folder / "long.jsonl", folder / "annotated.jsonl"
    for seed in range(_LONG):
        documents.write(source, documents.stream(count, seed=100 + seed), append=True)
    rows: list[Row] = []
    alone = 0.0
    for jobs in sorted({1, 2, os.cpu_count() or 1}):
        progress(f"{jobs} jobs")
        done = run_file(source, output, jobs=jobs)
        rate = done.summary.documents / done.summary.seconds
        alone = alone or rate
        rows.append([str(jobs), rate, rate / alone])
    note = (
        f"{count * _LONG:,} documents with `--jobs`, MinHash, so that the start of processes, half "
        "a second, is a small part: documents per second by the clock of the run itself, and how "
        "many times the rate of one job that is. One job has one CPU, more have the "
        f"{os.cpu_count()} of the machine. Needs a quiet machine."
    )
    return Table("Jobs", note, columns("jobs", "documents/s|,.0f", "times one job|.2f"), rows)


def _stage_table(source: Path) -> Table:
    rows: list[Row] = []
    for method in Method:
        progress(f"{method}: stages")
        rows.append([method, *stage_shares(source, source.with_name("staged.jsonl"), method)])
    note = (
        "Share of the time of the same work, done in one process with clocks around the "
        "library's own functions; without the start-up of the interpreter. *Decide* is what "
        "identities and decisions cost beside fingerprint and index."
    )
    header = columns("method", *(f"{stage}|.0%" for stage in STAGES))
    return Table("Stages of a run", note, header, rows)


def _copies(stream: Sequence[GeneratedDocument]) -> str:
    kinds = Counter(documents.truth_of(document).kind for document in stream)
    exact, near = (kinds[kind] / len(stream) for kind in (Kind.EXACT, Kind.NEAR))
    return f"{exact:.0%} exact and {near:.0%} near copies of resemblance .85 and above"


def main() -> None:
    """Run from the command line."""
    parser = arguments(__doc__)
    parser.add_argument("--documents", type=int, default=100_000, help="documents of the stream")
    run(parser, measure)


if __name__ == "__main__":
    main()
