"""Files of real text, whole processes from file to file, beside peers: ``real_text FILE...``.

A file holds JSON lines with ``id`` and ``text`` (also .gz); a folder, all such files in it. Nothing
of them is kept. Every process reads the file, decides each line in order, and writes it with what
it decided; its start is part of it.
"""

from __future__ import annotations

import argparse
import gzip
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import msgspec

from benchmarks.embedded import run_file
from benchmarks.peers import PeerFigure, command, installed, least, package
from benchmarks.processes import children_cpu, one_cpu
from benchmarks.report import Report, Row, Table, arguments, columns, progress, run

PEERS = ("gaoya", "rensa", "datasketch")
#: What peers do on several cores.
PARALLEL = ("gaoya-bulk", "rensa")
JOBS = 2
#: Texts that say whether a file's script has spaces.
_LOOKED_AT = 200
_NO_SPACES = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]")


class Whole(NamedTuple):
    """One process from file to file.

    Attributes:
        cpu: user and system time in seconds, start included.
        seconds: the same by the clock.
        documents: how many.
        duplicates: how many were found.
        version: of a peer.
    """

    cpu: float
    seconds: float
    documents: int
    duplicates: int
    version: str = ""

    @property
    def micros(self) -> float:
        """Microseconds of CPU time for a document."""
        return self.cpu / self.documents * 1e6


class Case(NamedTuple):
    """A file, and how it is cut.

    Attributes:
        name: of the file.
        path: of it, unpacked.
        shingle: the setting of ours; nothing for the default.
        peers: what peers are given.
    """

    name: str
    path: Path
    shingle: str
    peers: str

    @property
    def title(self) -> str:
        """Return what rows call it."""
        return f"{self.name}, {self.shingle}" if self.shingle else self.name


def cost_of_cpu(done: Whole | None) -> float:
    """Return the CPU time of a run."""
    return 0.0 if done is None else done.cpu


def cost_of_clock(done: Whole | None) -> float:
    """Return the time of a run by the clock."""
    return 0.0 if done is None else done.seconds


def cases(paths: Sequence[Path], folder: Path) -> Iterator[Case]:
    """Yield what to measure; packed files are unpacked into a folder one at a time."""
    for path in paths:
        name = path.name.partition(".")[0]
        plain = path
        if path.suffix == ".gz":
            plain = folder / "unpacked.jsonl"
            with gzip.open(path) as packed, plain.open("wb") as unpacked:
                shutil.copyfileobj(packed, unpacked)
        yield Case(name, plain, "", "space:3")
        if _without_spaces(plain):
            yield Case(name, plain, "char:3", "char:3")


def _without_spaces(path: Path) -> bool:
    """Say whether most characters of a file are of scripts without spaces."""
    with path.open("rb") as lines:
        decoded = (msgspec.json.decode(line)["text"] for line in islice(lines, _LOOKED_AT))
        text = "".join("".join(one.split()) for one in decoded)
    return len(_NO_SPACES.findall(text)) > len(text) / 2


def ours(case: Case, output: Path, jobs: int = 1) -> Whole:
    """Run ``stream-dedup run``."""
    done = run_file(case.path, output, jobs=jobs, shingle=case.shingle)
    found = done.summary
    return Whole(
        done.cpu, done.seconds, found.documents, found.exact_duplicates + found.near_duplicates
    )


def theirs(peer: str, case: Case, output: Path, *, alone: bool = True) -> Whole | None:
    """Run a peer's program, on one CPU or on all."""
    if not installed(peer):
        return None
    before, began = children_cpu(), time.perf_counter()
    more = ("--output", str(output), "--shingle", case.peers)
    with one_cpu() if alone else nullcontext():
        done = subprocess.run(
            command(peer, "annotate", case.path, *more), check=True, stdout=subprocess.PIPE
        )
    seconds, cpu = time.perf_counter() - began, children_cpu() - before
    figure = msgspec.json.decode(done.stdout, type=PeerFigure)
    return Whole(cpu, seconds, figure.documents, figure.duplicates, figure.version)


def measure(options: argparse.Namespace) -> Report:
    """Measure every file."""
    paths = [one for path in options.files for one in _files(path)]
    rows: list[Row] = []
    parallel: list[Row] = []
    versions: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        started = _starts(folder, options.rounds)
        for case in cases(paths, folder):
            progress(f"== {case.title}")
            done = _alone(case, folder / "annotated.jsonl", options.rounds)
            own = done["stream-dedup"]
            assert own is not None
            rows.append([*_row(case, own), *_compared(done, own)])
            parallel.append(_parallel(case, folder / "annotated.jsonl", options.rounds))
            versions |= {
                package(peer): one.version for peer, one in done.items() if one and one.version
            }
    return Report("Real text", [_alone_table(rows, started), _parallel_table(parallel)], versions)


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted([*path.glob("*.jsonl"), *path.glob("*.jsonl.gz")])
    return [path]


def _starts(folder: Path, rounds: int) -> dict[str, Whole | None]:
    """Return what it takes to annotate a single document."""
    path = folder / "one.jsonl"
    path.write_text('{"id": "1", "text": "one document of a few words"}\n')
    return _alone(Case("one document", path, "", "space:3"), folder / "annotated.jsonl", rounds)


def _alone(case: Case, output: Path, rounds: int) -> dict[str, Whole | None]:
    runs: dict[str, Callable[[], Whole | None]] = {"stream-dedup": partial(ours, case, output)}
    runs |= {peer: partial(theirs, peer, case, output) for peer in PEERS}
    return least(rounds, runs, cost_of_cpu)


def _row(case: Case, own: Whole) -> Row:
    size = case.path.stat().st_size / own.documents
    return [case.title, own.documents, size, own.documents / own.cpu, own.micros]


def _compared(done: dict[str, Whole | None], own: Whole) -> Row:
    others = [done[peer] for peer in PEERS]
    ratios: Row = [None if one is None else one.cpu / own.cpu for one in others]
    found: Row = [None if one is None else one.duplicates for one in others]
    return [*ratios, own.duplicates, *found]


def _parallel(case: Case, output: Path, rounds: int) -> Row:
    runs: dict[str, Callable[[], Whole | None]] = {
        "one": partial(ours, case, output),
        "jobs": partial(ours, case, output, JOBS),
    }
    runs |= {peer: partial(theirs, peer, case, output, alone=False) for peer in PARALLEL}
    done = least(rounds, runs, cost_of_clock)
    jobs = done["jobs"]
    assert jobs is not None
    row: Row = [case.title, jobs.documents / jobs.seconds]
    for name in ("one", *PARALLEL):
        one = done[name]
        row.append(None if one is None else one.seconds / jobs.seconds)
    return row


def _alone_table(rows: list[Row], started: dict[str, Whole | None]) -> Table:
    starts = ", ".join(f"{name} {one.cpu:.2f} s" for name, one in started.items() if one)
    note = (
        "Whole processes from file to file on one CPU: start, reading JSON, shingles, fingerprint, "
        "look up, verify, insert, writing JSON. Documents per second of CPU time. *Times* is the "
        "CPU time of the peer's process beside that of `stream-dedup run`: **below 1, the peer is "
        "faster**. Threshold .8, the fastest documented way of each (`peer_program.py`), three "
        "words between white space; ours three tokens, where each character of scripts without "
        "spaces is a token, so those files are measured once more with three characters for all. "
        "Peers read and write with orjson, and write less: a flag and a line number. *Dups*: "
        "duplicates that each found, which differ in what a word is, and what is missed. "
        f"Of the CPU time start alone (a file of one document) takes: {starts}."
    )
    header = columns("file", "documents|,d", "bytes a line|,.0f", "documents/s|,.0f", "µs|.1f")
    header += columns(*(f"times {peer}|.2f" for peer in PEERS))
    header += columns(*(f"dups {name}|,d" for name in ("stream-dedup", *PEERS)))
    return Table("Real text", note, header, rows)


def _parallel_table(rows: list[Row]) -> Table:
    note = (
        f"The same by the clock with `--jobs {JOBS}`, beside one job, and beside peers that may "
        "use all cores: gaoya in bulk, rensa with batches (its shingles are cut by one). Needs a "
        "quiet machine. Below 1, the other is faster."
    )
    header = columns("file", "documents/s|,.0f", "times one job|.2f")
    header += columns(*(f"times {peer}|.2f" for peer in PARALLEL))
    return Table("Real text, two jobs", note, header, rows)


def main() -> None:
    """Run from the command line."""
    parser = arguments(__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="JSON lines, or folder")
    parser.add_argument("--rounds", type=int, default=3, help="turns of everybody; the best counts")
    run(parser, measure)


if __name__ == "__main__":
    main()
