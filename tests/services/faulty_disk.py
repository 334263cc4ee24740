"""A disk that fails at one call after another, under a program that runs again and again.

``walk`` starts a process in which ``faulty_disk.c`` is preloaded. There a scenario is carried out
in one forked process after another: at first the first call that writes, syncs, truncates, renames
or closes a file fails, then the second, and so on until none is left; in each of four ways.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import subprocess
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, Protocol

from tests.services.process import compile_library

_SOURCE = Path(__file__).with_name("faulty_disk.c")
_ROOT = Path(__file__).parents[2]
#: Only files in folders of this name fail.
_FILES = "on-a-faulty-disk"
_DEADLINE_SECONDS = 400


class Failure(NamedTuple):
    """A way to fail.

    Attributes:
        error: number of the error.
        lasting: whether everything fails from then on, until somebody makes room.
        half: whether half of the bytes of a write come to be written.
    """

    error: int
    lasting: bool
    half: bool = False


FAILURES = {
    "full": Failure(errno.ENOSPC, lasting=True),
    "over quota": Failure(errno.EDQUOT, lasting=True),
    "short write": Failure(errno.ENOSPC, lasting=True, half=True),
    "bad block": Failure(errno.EIO, lasting=False),
}


class Scenario(Protocol):
    """What is done on a faulty disk.

    Attributes:
        failures: the ways in which each call fails, some of ``FAILURES``.
    """

    failures: Sequence[str]

    def begin(self, folder: Path) -> None:
        """Write what is there before, on a disk that works."""

    def attempt(self, folder: Path) -> None:
        """Do it in a process of its own, which may end by an error."""

    def check(self, folder: Path, calm: Path, code: int, stderr: str) -> None:
        """See that what became of it is right, beside what an undisturbed attempt left."""


class Walked(NamedTuple):
    """What came of a walk.

    Attributes:
        calls: calls of an undisturbed run, each of which failed once in each way.
        failed: cases in which one was made to fail.
        noticed: cases in which the program ended by an error.
        wrong: what was wrong, by case.
    """

    calls: int
    failed: int
    noticed: int
    wrong: dict[str, str]


def walk(scenario: str) -> Walked:
    """Carry a scenario out on a disk that fails at each call.

    Args:
        scenario: its class, as ``module:name``.
    """
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        return _walk_in(scenario, Path(folder))


def _walk_in(scenario: str, folder: Path) -> Walked:
    library = compile_library(_SOURCE, folder)
    one_thread = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(_ROOT)}
    environment = {**os.environ, **one_thread, "LD_PRELOAD": str(library), "FAULTY_DISK": _FILES}
    command = [
        sys.executable,
        "-m",
        "tests.services.faulty_disk",
        scenario,
        str(folder),
        str(library),
    ]
    done = subprocess.run(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_DEADLINE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout.decode()
    return Walked(*json.loads((folder / "walked").read_bytes()))


class Disk:
    """The disk, in a process in which it is preloaded."""

    def __init__(self, library: str) -> None:
        self._library = ctypes.CDLL(library)
        self._library.faulty_disk_arm.argtypes = [ctypes.c_long, *[ctypes.c_int] * 3]
        for name in ("calls", "failed"):
            getattr(self._library, f"faulty_disk_{name}").restype = ctypes.c_long

    def arm(self, call: int, how: Failure) -> None:
        """Let a call fail, from 1 on; the count begins anew."""
        self._library.faulty_disk_arm(call, how.error, how.lasting, how.half)

    def mend(self) -> None:
        """Let nothing fail any more."""
        self._library.faulty_disk_mend()

    @property
    def calls(self) -> int:
        """Calls since it was armed."""
        return int(self._library.faulty_disk_calls())

    @property
    def failed(self) -> int:
        """Calls of these that failed."""
        return int(self._library.faulty_disk_failed())


#: The disk of this process; None where it is not preloaded.
disk: Disk | None = None


def _walk(scenario: Scenario, folder: Path) -> Walked:
    assert disk is not None
    # Always in one place, since documents are known by the path of their file.
    case, begun, calm = (folder / name for name in (_FILES, "begun", "calm"))
    case.mkdir()
    scenario.begin(case)
    shutil.copytree(case, begun)
    assert _in_a_process(scenario, case, folder / "stderr") == 0, (folder / "stderr").read_text()
    case.rename(calm)
    calls, failed, noticed, wrong = 0, 0, 0, dict[str, str]()
    for call in count(1):
        hit = 0
        for name in scenario.failures:
            how = FAILURES[name]
            shutil.copytree(begun, case)
            disk.arm(call, how)
            code = _in_a_process(scenario, case, folder / "stderr")
            hit += bool(disk.failed)
            noticed += bool(code)
            calls = max(calls, disk.calls if not disk.failed else 0)
            disk.mend()
            try:
                scenario.check(case, calm, code, (folder / "stderr").read_text())
            except (Exception, SystemExit):  # noqa: BLE001 - whatever is wrong is reported
                wrong[f"{name} at call {call}"] = traceback.format_exc()
            shutil.rmtree(case)
        failed += hit
        if not hit:
            return Walked(calls, failed, noticed, wrong)
    raise AssertionError


def _in_a_process(scenario: Scenario, folder: Path, stderr: Path) -> int:
    """Attempt the scenario in a forked process; return its exit code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        with stderr.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        scenario.attempt(folder)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(bool(end.code))
    except BaseException:  # noqa: BLE001 - as the interpreter does
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _main(scenario: str, folder: str, library: str) -> None:
    global disk  # noqa: PLW0603
    disk = Disk(library)
    module, _, name = scenario.partition(":")
    walked = _walk(getattr(import_module(module), name)(), Path(folder))
    Path(folder, "walked").write_text(json.dumps(walked))


if __name__ == "__main__":
    # Under its own name, so that scenarios see the same disk.
    import_module("tests.services.faulty_disk")._main(*sys.argv[1:])
