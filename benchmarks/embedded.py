"""From file to file on one core: rate, share of each stage, and peers with what they find."""

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
from itertools import product
from pathlib import Path
from typing import NamedTuple, ParamSpec, TypeVar
from unittest import mock

import msgspec

from benchmarks import documents
from benchmarks.documents import Found
from benchmarks.peers import PeerFigure, ask
from benchmarks.processes import children_cpu, one_cpu
from benchmarks.report import Report, Row, Table, arguments, columns, progress, run
from stream_dedup.deduplicator import Deduplicator
from stream_dedup.generate import GeneratedDocument, Kind, Language
from stream_dedup.settings import Settings
from stream_dedup.stream.embedded import Here, Run, Summary
from stream_dedup.stream.files import CHUNK_LINES, open_output, read_chunks
from stream_dedup.stream.lines import JsonLines
from stream_dedup.stream.stages import LineStages
from stream_dedup.types import Decision, Document, Method, Status

P = ParamSpec("P")
R = TypeVar("R")

#: Peers, and whether one is fast enough to be given all documents.
PEERS = {"gaoya": True, "rensa": True, "datasketch": False, "simhash": False}
#: Kinds of documents on which the fast peers are asked once more.
LANGUAGES: tuple[Language, ...] = ("en", "ko")
LENGTHS = (15, 150, 1500)
#: As many times as many documents are given to jobs.
_LONG = 5
STAGES = ("read", "decode", "fingerprint", "index", "decide", "annotate", "write", "the rest")

_FOUND = (
    "*Found* is the share of true duplicates that were attached to their original, *near found* "
    "the same of near copies alone, *wrong* the share of attached documents that went"
    " to a stranger."
)
_FOUND_COLUMNS = columns("found|.2%", "near found|.2%", "wrong|.2%")
_PEER_NOTE = (
    "Fingerprint, look up and insert in memory, without reading and writing, one CPU, threshold .8 "
    "(simhash: 64 bits, k = 3): documents per second of CPU time, and how many times the peer's "
    "rate ours is on the same documents with the method of the same kind. Peers take one document "
    f"at a time; slow ones get the first part of the stream only. {_FOUND}"
)


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


class Answers(NamedTuple):
    """Decisions about generated documents, and the CPU time that they took."""

    cpu: float
    found: Found


def run_file(source: Path, output: Path, method: Method = Method.MINHASH, jobs: int = 1) -> FileRun:
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
    before, began = children_cpu(), time.perf_counter()
    with one_cpu() if jobs == 1 else nullcontext():
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    seconds, cpu = time.perf_counter() - began, children_cpu() - before
    return FileRun(cpu, seconds, msgspec.json.decode(done.stdout, type=Summary))


def found_in(output: Path, stream: Sequence[GeneratedDocument]) -> Found:
    """Compare the annotations of a file with the truth."""
    decode = msgspec.json.Decoder(Annotated).decode
    with output.open("rb") as lines:
        return documents.score(stream, [_original(decode(line).dedup) for line in lines])


def _original(decision: Decision) -> str | None:
    return None if decision.status is Status.ORIGINAL else str(decision.original_id)


def in_memory(stream: Sequence[GeneratedDocument], method: Method) -> Answers:
    """Decide documents that are in memory already, as peers do."""
    batch = [Document(document.id, document.text) for document in stream]
    decisions: list[Decision] = []
    with one_cpu(), Deduplicator(Settings(method=method)) as deduplicator:
        began = time.process_time()
        for start in range(0, len(batch), CHUNK_LINES):
            decisions += deduplicator.decide(batch[start : start + CHUNK_LINES])
        cpu = time.process_time() - began
    return Answers(cpu, documents.score(stream, [_original(decision) for decision in decisions]))


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
    """Measure the command line, its stages and the peers on one stream."""
    stream = documents.stream(options.documents)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = folder / "documents.jsonl"
        documents.write(source, stream)
        tables = [_file_table(stream, source), _jobs_table(folder, options.documents)]
        tables.append(_stage_table(source))
        table, versions = _peer_table(stream, source, options.slow)
        tables.append(table)
        tables.append(_kind_table(folder, options.characters))
        if options.data is not None:
            tables.append(_own_table(options.data, folder / "annotated.jsonl"))
    return Report("Embedded, from file to file", tables, versions)


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
        f"{_FOUND}"
    )
    header = columns("method", "documents/s of CPU|,.0f", "by the clock|,.0f", "MB/s of CPU|,.1f")
    return Table("`stream-dedup run`", note, [*header, *_FOUND_COLUMNS], rows)


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


def _kind_table(folder: Path, characters: int) -> Table:
    rows: list[Row] = []
    for language, words in product(LANGUAGES, LENGTHS):
        stream = documents.stream(
            max(200, characters // (6 * words)), language=language, words=words
        )
        progress(f"{language}, {words} words, {len(stream)} documents")
        path = folder / "kind.jsonl"
        documents.write(path, stream)
        own = in_memory(stream, Method.MINHASH)
        kind = f"{language}, {words} words: "
        first = len(rows)
        rows.append([f"{kind}stream-dedup", len(stream), len(stream) / own.cpu, None, *own.found])
        for peer, is_fast in PEERS.items():
            if is_fast:
                row = _peer_row(peer, ask(peer, "decide", path), stream, own)
                rows.append([f"{kind}{peer}", *row[1:]])
        if words < documents.NEAR_WORDS:
            rows[first:] = [[*row[:5], None, row[6]] for row in rows[first:]]
    note = (
        f"As above, with the peers that are fast enough, by language and length. {_FOUND} "
        f"Documents of less than {documents.NEAR_WORDS} words have exact copies only."
    )
    header = columns("documents", "number|,d", "documents/s of CPU|,.0f", "ours / peer|.1f")
    return Table("Beside peers, by kind of document", note, [*header, *_FOUND_COLUMNS], rows)


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


def _peer_table(
    stream: Sequence[GeneratedDocument], source: Path, slow: int
) -> tuple[Table, dict[str, str]]:
    few = source.with_name("few.jsonl")
    documents.write(few, stream[:slow])
    progress("in memory")
    own = {
        (method, count): in_memory(stream[:count], method)
        for method in Method
        for count in (slow, len(stream))
    }
    rows: list[Row] = [
        [f"stream-dedup, {method}", count, count / answers.cpu, None, *answers.found]
        for (method, count), answers in own.items()
    ]
    versions = {}
    for peer, is_fast in PEERS.items():
        figure = ask(peer, "decide", source if is_fast else few)
        method = Method.SIMHASH if peer == "simhash" else Method.MINHASH
        rows.append(_peer_row(peer, figure, stream, own[method, len(stream) if is_fast else slow]))
        if figure is not None:
            versions[peer] = figure.version
    header = columns("library", "documents|,d", "documents/s of CPU|,.0f", "ours / peer|.1f")
    return Table("Beside peers", _PEER_NOTE, [*header, *_FOUND_COLUMNS], rows), versions


def _peer_row(
    peer: str, figure: PeerFigure | None, stream: Sequence[GeneratedDocument], own: Answers
) -> Row:
    if figure is None:
        return [peer, "not installed", *[None] * 5]
    taken = stream[: figure.documents]
    attached = [None if at is None else stream[at].id for at in figure.attached]
    found = documents.score(taken, attached)
    return [peer, len(taken), len(taken) / figure.cpu, figure.cpu / own.cpu, *found]


def _own_table(folder: Path, output: Path) -> Table:
    rows: list[Row] = []
    for path in documents.own_files(folder):
        progress(path.name)
        done = run_file(path, output)
        found = done.summary
        kinds = (found.originals, found.exact_duplicates, found.near_duplicates)
        rows.append([path.name, found.documents, found.documents / done.cpu, *kinds])
    note = "Files of your own (`--data`), with MinHash; start-up included."
    header = columns("file", "documents|,d", "documents/s of CPU|,.0f", "originals|,d")
    return Table("Own files", note, [*header, *columns("exact|,d", "near|,d")], rows)


def _copies(stream: Sequence[GeneratedDocument]) -> str:
    kinds = Counter(documents.truth_of(document).kind for document in stream)
    exact, near = (kinds[kind] / len(stream) for kind in (Kind.EXACT, Kind.NEAR))
    return f"{exact:.0%} exact and {near:.0%} near copies of resemblance .85 and above"


def main() -> None:
    """Run from the command line."""
    parser = arguments(__doc__)
    parser.add_argument("--documents", type=int, default=100_000, help="documents of the stream")
    parser.add_argument(
        "--slow", type=int, default=15_000, help="of these, documents for the slow peers"
    )
    parser.add_argument(
        "--characters", type=int, default=6_000_000, help="text of each other kind, about so long"
    )
    parser.add_argument("--data", type=Path, help="folder of JSON lines to measure as well")
    run(parser, measure)


if __name__ == "__main__":
    main()
