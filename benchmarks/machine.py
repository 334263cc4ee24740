"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

_LIBRARIES = ("numpy", "kafka-python", "redis")


def facts() -> dict[str, str]:
    """Return machine, system and library versions, by what they are called."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    found = {
        "CPU": _after_colon(Path("/proc/cpuinfo"), "model name") or platform.machine(),
        "Cores": str(os.cpu_count()),
        "Memory": f"{memory:.0f} GiB",
        "System": f"{_system()}, {platform.system()} {platform.release()}",
        "Python": platform.python_version(),
    }
    names = {"redis": "redis-py"}
    return found | {names.get(name, name): version(name) for name in _LIBRARIES}


def _system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        return platform.platform(terse=True)


def _after_colon(path: Path, name: str) -> str:
    if not path.is_file():
        return ""
    lines = (line.partition(":") for line in path.read_text().splitlines())
    return next((value.strip() for key, _, value in lines if key.strip() == name), "")
