"""CPU time and CPU affinity of processes (Linux)."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@contextmanager
def one_cpu() -> Iterator[None]:
    """Keep this process, and those that it starts meanwhile, on one CPU."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def children_cpu() -> float:
    """Return the CPU time, user and system, of all ended children so far, in seconds."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def cpu_of(pid: int) -> float:
    """Return the CPU time, user and system, of a live process, in seconds."""
    # Fields are counted after the name, which stands in brackets and may hold anything.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def child_running(word: str) -> int | None:
    """Return the child process whose command line has ``word``, if there is one."""
    for children in Path("/proc/self/task").glob("*/children"):
        for pid in children.read_text().split():
            if word.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                return int(pid)
    return None
