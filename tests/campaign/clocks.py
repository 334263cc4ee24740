"""Clocks of programs that can be set while they run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.services.process import compile_library

#: What programs read such a clock with: a module for Python, a library for others.
_FOLDER = Path(__file__).parent / "clock"
_BYTES = 8


class Clock:
    """How far the clock of a program is off, in a file that the program looks at.

    Attributes:
        offset: seconds; negative when it is behind.
    """

    def __init__(self, path: Path) -> None:
        self.offset = 0
        self._path = path
        path.write_bytes(bytes(_BYTES))

    def set(self, offset: int) -> None:
        """Let it be off by so many seconds, from now on."""
        self.offset = offset
        with self._path.open("r+b", buffering=0) as file:
            file.write(offset.to_bytes(_BYTES, sys.byteorder, signed=True))

    def of_python(self) -> list[str]:
        """Return the variables that let a Python program go by it."""
        paths = [str(_FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])]
        return [f"CAMPAIGN_CLOCK={self._path}", f"PYTHONPATH={os.pathsep.join(paths)}"]

    def of_others(self, library: Path) -> list[str]:
        """Return the variables that let any other program go by it."""
        return [f"CAMPAIGN_CLOCK={self._path}", f"LD_PRELOAD={library}"]


def compile_clock(folder: Path) -> Path:
    """Return the library that others than Python need, made in this folder."""
    return compile_library(_FOLDER / "clock.c", folder)
