"""Other libraries for the same work, each asked in a process of its own environment.

They are installed into ``.venv-peers`` when a benchmark first wants one. One that cannot be
installed is told so in the tables; the rest goes on.
"""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import msgspec

from benchmarks.processes import one_cpu
from benchmarks.report import progress

_ROOT = Path(__file__).parents[1]
_ENVIRONMENT = _ROOT / ".venv-peers"
_PYTHON = _ENVIRONMENT / "bin" / "python"
_PROGRAM = Path(__file__).with_name("peer_program.py")

#: What is installed for each peer. Figures are comparable only between the same releases.
PEERS = {
    "gaoya": ["gaoya==0.2.2"],
    "rensa": ["rensa==0.5.0"],
    "datasketch": ["datasketch==2.0.0", "redis>=6"],
    "simhash": ["simhash==2.1.2"],
}


class PeerFigure(msgspec.Struct, frozen=True):
    """What a peer did.

    Attributes:
        version: of the peer.
        documents: documents that it took.
        cpu: its own CPU time in seconds, without start-up and reading the documents.
        seconds: the same by the clock.
        attached: for each document the number of the document it was found to copy.
    """

    version: str
    documents: int
    cpu: float
    seconds: float
    attached: list[int | None] = []


def ask(peer: str, task: str, documents: Path, *more: str) -> PeerFigure | None:
    """Let a peer do a task on a file of documents on one CPU; None if it cannot be installed."""
    if not _installed(peer):
        return None
    progress(f"peer {peer}: {task}")
    command: list[str | Path] = [_PYTHON, "-I", _PROGRAM, peer, task, documents, *more]
    with one_cpu():
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return msgspec.json.decode(done.stdout, type=PeerFigure)


@cache
def _installed(peer: str) -> bool:
    """Whether the peer is in the environment; tries to install what is missing."""
    wanted = "\n".join(PEERS[peer])
    stamp = _ENVIRONMENT / f"{peer}.stamp"
    if stamp.is_file() and stamp.read_text() == wanted:
        return True
    progress(f"installing {peer} into {_ENVIRONMENT.name}")
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
    if subprocess.run([*pip, "install", *PEERS[peer]], check=False).returncode:
        progress(f"{peer} could not be installed and is left out")
        return False
    stamp.write_text(wanted)
    return True
