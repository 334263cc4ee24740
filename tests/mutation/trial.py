"""Tries a mutant in a process forked from one that has loaded whatever does not need it.

The mutant is put in place as its module is imported, so no file is changed and nothing is copied.
There is such a process for each module: to load the rest takes longer than most mutants live.
"""

from __future__ import annotations

import gc
import importlib
import importlib.abc
import importlib.machinery
import json
import os
import pickle
import resource
import selectors
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

from tests.mutation.mutant import ROOT, Mutant, read
from tests.mutation.rungs import Rung

#: Loaded before the fork, with all that these need, but for what needs the mutated module.
_LOADED = (
    "confluent_kafka",
    "greenlet",
    "pytest",
    "stream_dedup",
    "stream_dedup_workers.annotate",
    "tests.models.redis_claims",
    "tests.services.kafka",
    "tests.services.redis",
    "tests.services.secure",
    "tests.services.worker",
    "tests.simulation.world",
    "tests.simulation.simulation",
)
#: What holds the code of the Functions once it is loaded.
_OF_LUA = "stream_dedup.index.functions"
#: Memory that a mutant may fill, bytes.
_MEMORY = 4 << 30
#: A rung may take this many times as long as without a mutant, and so many seconds more: of the
#: processor, and, as the machine may be busy with other things, on the clock.
_SLOWER, _MORE = 3.0, 2.0
_SLOWER_CLOCK, _MORE_CLOCK = 6.0, 30.0


class Spent(NamedTuple):
    """Time that a rung took, or may take.

    Attributes:
        clock: seconds.
        processor: seconds of the process, without those of programs that it started.
    """

    clock: float
    processor: float


class Trial(NamedTuple):
    """What became of a mutant, or of the code as it is.

    Attributes:
        mutant: None for the code as it is.
        rung: that it fell from; empty for one that survived.
        failed: what failed there; empty when its time was up.
        spent: what each rung took that it went through.
    """

    mutant: Mutant | None
    rung: str
    failed: str
    spent: tuple[Spent, ...]

    @property
    def outcome(self) -> str:
        """``killed``, ``timed out`` or ``survived``."""
        if not self.rung:
            return "survived"
        return "killed" if self.failed else "timed out"


class Task(NamedTuple):
    """What is to be tried.

    Attributes:
        mutant: None for the code as it is.
        rungs: what is tried, in order.
        limits: time for each; none for as long as it takes.
    """

    mutant: Mutant | None
    rungs: Sequence[Rung]
    limits: Sequence[Spent] = ()


def limits_of(baseline: Trial) -> list[Spent]:
    """Return the time that each rung may take, given what it takes without a mutant."""
    return [
        Spent(_SLOWER_CLOCK * clock + _MORE_CLOCK, _SLOWER * processor + _MORE)
        for clock, processor in baseline.spent
    ]


def try_mutants(path: str, tasks: Sequence[Task], processes: int) -> Iterator[Trial]:
    """Try mutants of one file, some at a time; yield each when it has ended."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.close(ours)
            _load(path)
            with os.fdopen(theirs, "wb") as pipe:
                for trial in try_all(tasks, processes):
                    pickle.dump(trial, pipe)
                    pipe.flush()
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe, suppress(EOFError):
        while True:
            yield pickle.load(pipe)
    os.waitpid(pid, 0)


def _load(path: str) -> None:
    """Load what mutants of a file can share."""
    blocked = _Finder(_name_of(path), None)
    sys.meta_path.insert(0, blocked)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        hypothesis = importlib.import_module("hypothesis")
        for name in _LOADED:
            with suppress(ImportError):
                importlib.import_module(name)
    sys.meta_path.remove(blocked)
    # Nothing but the mutant may make a difference: neither chance nor how busy the machine is.
    calm = hypothesis.settings(deadline=None, derandomize=True, database=None)
    hypothesis.settings.register_profile("calm", calm, suppress_health_check=hypothesis.HealthCheck)
    hypothesis.settings.load_profile("calm")
    world = sys.modules.get("tests.simulation.world")
    if world is not None:  # it remembers them
        world.fingerprinter(0)
        world.fingerprinter(1)
    gc.freeze()


def _name_of(path: str) -> str:
    """Return the module that has the code of a file."""
    return path.removesuffix(".py").replace("/", ".") if path.endswith(".py") else _OF_LUA


def try_all(tasks: Iterable[Task], processes: int) -> Iterator[Trial]:
    """Try mutants, some at a time; yield each when it has ended."""
    waiting = iter(tasks)
    running: list[_Running] = []
    with selectors.DefaultSelector() as selector:
        while True:
            while len(running) < processes and (task := next(waiting, None)) is not None:
                running.append(_Running(task))
                selector.register(running[-1].pipe, selectors.EVENT_READ, running[-1])
            if not running:
                return
            ready = {key.data for key, _ in selector.select(timeout=0.2)}
            for one in list(running):
                if (one in ready and one.take()) or one.is_overdue():
                    selector.unregister(one.pipe)
                    running.remove(one)
                    yield one.end()


class _Running:
    """A process that tries a mutant, and what it has told."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._folder = tempfile.mkdtemp(prefix="mutant-")
        self.pipe, theirs = os.pipe()
        self._pid = os.fork()
        if not self._pid:
            os.close(self.pipe)
            _live(task, theirs, self._folder)
        os.close(theirs)
        self._told = b""
        self._spent: list[Spent] = []
        self._failed = ""
        self._began = time.monotonic()

    def take(self) -> bool:
        """Take what it tells; say whether it has ended."""
        got = os.read(self.pipe, 1 << 16)
        self._told += got
        *lines, self._told = self._told.split(b"\n")
        for line in lines:
            self._failed, processor = json.loads(line)
            if not self._failed:
                now = time.monotonic()
                self._spent.append(Spent(now - self._began, processor))
                self._began = now
        return not got

    def is_overdue(self) -> bool:
        """Say whether its time is up."""
        limits, at = self._task.limits, len(self._spent)
        return at < len(limits) and time.monotonic() - self._began > limits[at].clock

    def end(self) -> Trial:
        """End it with all that it started; return what became of it."""
        # It leads a group of its own, so this ends nothing else.
        with suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        _, status = os.waitpid(self._pid, 0)
        os.close(self.pipe)
        shutil.rmtree(self._folder, ignore_errors=True)
        rungs, at = self._task.rungs, len(self._spent)
        failed = self._failed
        is_late = self.is_overdue() or os.WTERMSIG(status) == signal.SIGXCPU
        if at < len(rungs) and not failed and not is_late:
            failed = f"the process ended with status {status}"
        rung = rungs[at].name if at < len(rungs) else ""
        return Trial(self._task.mutant, rung, failed, tuple(self._spent))


def _live(task: Task, pipe: int, folder: str) -> None:
    """Try the rungs in this process, tell of each, and end."""
    os.setsid()
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    os.chdir(ROOT)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    if task.mutant is not None:
        put_in_place(task.mutant)
    try:
        for rung, limit in zip_longest(task.rungs, task.limits):
            failed = _climb(rung, limit, pipe)
            if failed:
                break
    finally:
        os._exit(0)


def _climb(rung: Rung, limit: Spent | None, pipe: int) -> str:
    """Try one rung, tell of it, and return what failed."""
    began = time.process_time()
    if limit is not None:
        most = int(began + limit.processor) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))
    try:
        failed = rung.run()
    except BaseException as error:  # noqa: BLE001 - whatever it is, the mutant is noticed
        failed = repr(error) or "raised"
    told = json.dumps([failed[:300], time.process_time() - began])
    os.write(pipe, told.encode() + b"\n")
    return failed


def put_in_place(mutant: Mutant) -> None:
    """Let this process have the mutant in the place of the code, which it must not have loaded."""
    mutated = mutant.apply(read(mutant.path))
    name = _name_of(mutant.path)
    assert name not in sys.modules, f"{name} is loaded already"
    if mutant.path.endswith(".py"):
        sys.meta_path.insert(0, _Finder(name, mutated))
        return
    unchanged: Callable[..., str] = Path.read_text

    def read_text(self: Path, *arguments: Any, **options: Any) -> str:
        if self == ROOT / mutant.path:
            return mutated
        return unchanged(self, *arguments, **options)

    Path.read_text = read_text  # type: ignore[method-assign]


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module, and loads other code for it, or refuses to."""

    def __init__(self, name: str, code: str | None) -> None:
        self._name = name
        self._code = code

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != self._name:
            return None
        if self._code is None:
            raise ImportError(name)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        assert spec is not None
        assert spec.origin is not None
        spec.loader = _Loader(name, spec.origin, self._code)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, code: str) -> None:
        super().__init__(name, path)
        self._code = code

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._code, self.path, "exec", dont_inherit=True)
