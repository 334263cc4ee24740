"""Clocks of programs that can be set while they run."""

from __future__ import annotations

import sys
from pathlib import Path

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

    @property
    def variable(self) -> str:
        """What lets a program go by it in which one of ``preloaded`` is loaded."""
        return f"CAMPAIGN_CLOCK={self._path}"
