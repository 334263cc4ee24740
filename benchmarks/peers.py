"""Other libraries for the same work, each asked in a process of its own environment.

They are installed into ``.venv-peers`` when a benchmark first wants one. One that cannot be
installed is marked so in the tables; the rest goes on.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TypeVar

import msgspec

from benchmarks.peer_program import PACKAGES
from benchmarks.processes import one_cpu
from benchmarks.report import progress

T = TypeVar("T")

_ROOT = Path(__file__).parents[1]
_ENVIRONMENT = _ROOT / ".venv-peers"
_PYTHON = _ENVIRONMENT / "bin" / "python"
_PROGRAM = Path(__file__).with_name("peer_program.py")

_HASH, _JSON = "xxhash==4.1.0", "orjson==3.13.0"
#: What is installed for each peer: with what it is fastest, and what files are read with. Figures
#: are comparable only between the same releases.
PEERS = {
    "gaoya": ["gaoya==0.2.2", _JSON],
    "rensa": ["rensa==0.5.0", _JSON],
    "datasketch": ["datasketch==2.0.0", "redis==8.1.0", "hiredis==3.5.0", _HASH, _JSON],
    "simhash": ["simhash==2.1.2", _HASH, _JSON],
}


class PeerFigure(msgspec.Struct, frozen=True):
    """What a peer did.

    Attributes:
        version: of the peer.
        documents: documents that it took.
        cpu: its own CPU time in seconds, without start-up and reading the documents.
        seconds: the same by the clock.
        stages: the parts of ``cpu``.
        attached: for each document the number of the document it was found to copy.
        duplicates: how many were found, where ``attached`` is not given.
    """

    version: str
    documents: int
    cpu: float
    seconds: float
    stages: dict[str, float] = {}
    attached: list[int | None] = []
    duplicates: int = 0

    @property
    def micros(self) -> float:
        """Microseconds of CPU time for a document."""
        return self.cpu / self.documents * 1e6

    def stage(self, name: str) -> float:
        """Return microseconds of CPU time of a stage for a document."""
        return self.stages[name] / self.documents * 1e6


def ask(peer: str, task: str, documents: Path, *more: str) -> PeerFigure | None:
    """Let a peer do a task on a file of documents on one CPU; None if it cannot be installed."""
    if not installed(peer):
        return None
    progress(f"peer {peer}: {task}")
    with one_cpu():
        done = subprocess.run(
            command(peer, task, documents, *more), check=True, stdout=subprocess.PIPE
        )
    return msgspec.json.decode(done.stdout, type=PeerFigure)


def command(peer: str, task: str, documents: Path, *more: str) -> list[str | Path]:
    """Return how a peer's program is started."""
    return [_PYTHON, "-I", _PROGRAM, peer, task, documents, *more]


def least(
    rounds: int, runs: Mapping[str, Callable[[], T]], cost: Callable[[T], float]
) -> dict[str, T]:
    """Carry out runs in turn, some times, and return the cheapest of each.

    So whatever else the machine does meets all of them.
    """
    done: dict[str, list[T]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            done[name].append(run())
    return {name: min(results, key=cost) for name, results in done.items()}


def cpu_of(figure: PeerFigure | None) -> float:
    """Return the CPU time of a figure, for ``least``."""
    return 0.0 if figure is None else figure.cpu


def package(peer: str) -> str:
    """Return the package that a peer comes in."""
    return PACKAGES[peer]


@cache
def installed(peer: str) -> bool:
    """Whether the peer is in the environment; tries to install what is missing."""
    name = package(peer)
    wanted = "\n".join(PEERS[name])
    stamp = _ENVIRONMENT / f"{name}.stamp"
    if stamp.is_file() and stamp.read_text() == wanted:
        return True
    progress(f"installing {name} into {_ENVIRONMENT.name}")
    if not _PYTHON.exists():
        subprocess.run([sys.executable, "-m", "venv", _ENVIRONMENT], check=True)
        (_ENVIRONMENT / ".gitignore").write_text("*\n")
    pip: list[str | Path] = [
        _PYTHON,
        "-m",
        "pip",
        "--quiet",
        "--disable-pip-version-check",
        "--no-input",
    ]
    if subprocess.run([*pip, "install", *PEERS[name]], check=False).returncode:
        progress(f"{name} could not be installed and is left out")
        return False
    stamp.write_text(wanted)
    return True
