"""One mistake in one place of a file."""

from __future__ import annotations

import difflib
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Mutant(NamedTuple):
    """One replaced piece of text.

    Attributes:
        path: file, from the root of the project.
        function: where in it, such as ``Loop.step``; empty outside of functions.
        operator: kind of mistake.
        start: first character that is replaced.
        end: first character behind.
        replacement: what stands there instead.
    """

    path: str
    function: str
    operator: str
    start: int
    end: int
    replacement: str

    def apply(self, source: str) -> str:
        """Return the file with the mistake."""
        return source[: self.start] + self.replacement + source[self.end :]

    def line(self, source: str) -> str:
        """Return the line where it begins, without the space around it."""
        first = source.rfind("\n", 0, self.start) + 1
        return source[first:].partition("\n")[0].strip()

    def line_number(self, source: str) -> int:
        """Return the number of that line, from 1."""
        return source.count("\n", 0, self.start) + 1

    def mutated_line(self, source: str) -> str:
        """Return what becomes of that line, without the space around it."""
        first = source.rfind("\n", 0, self.start) + 1
        return self.apply(source)[first:].partition("\n")[0].strip()

    def diff(self, source: str) -> str:
        """Return the lines that differ."""
        lines = difflib.unified_diff(
            source.splitlines(), self.apply(source).splitlines(), n=1, lineterm=""
        )
        return "\n".join(list(lines)[3:])


@cache
def read(path: str) -> str:
    """Return the text of a file of the project."""
    return (ROOT / path).read_text(encoding="utf-8")
