"""Mutants that do the same as the code, or differ in nothing that is promised, and why.

They stand in ``equivalents.toml`` by file, line, kind of mistake, and what becomes of the line; so
an entry goes stale when its line changes, and then it must go.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.mutation.mutant import Mutant, read

LIST = Path(__file__).with_name("equivalents.toml")


class Equivalent(NamedTuple):
    """An entry of the list.

    Attributes:
        path: file.
        line: text of the line; it may stand there more than once.
        operator: kind of mistake.
        becomes: what the line is with the mistake; several if one reason goes for all.
        reason: why no test can, or need, tell.
    """

    path: str
    line: str
    operator: str
    becomes: frozenset[str]
    reason: str


class StaleError(Exception):
    """The list has entries that no mutant belongs to."""


def load(file: Path = LIST) -> list[Equivalent]:
    """Return the list."""
    entries = tomllib.loads(file.read_text(encoding="utf-8")).get("equivalent", [])
    return [Equivalent(**(one | {"becomes": frozenset(one["becomes"])})) for one in entries]


def reasons(mutants: Iterable[Mutant], entries: Sequence[Equivalent]) -> dict[Mutant, str]:
    """Return the reason for each mutant that is on the list.

    Args:
        mutants: all there are, so that stale entries show.
        entries: the list.

    Raises:
        StaleError: some entries belong to no mutant.
    """
    known = {
        (one.path, one.line, one.operator, becomes): one.reason
        for one in entries
        for becomes in one.becomes
    }
    found, used = {}, set()
    for mutant in mutants:
        source = read(mutant.path)
        key = (mutant.path, mutant.line(source), mutant.operator, mutant.mutated_line(source))
        if key in known:
            used.add(key)
            found[mutant] = known[key]
    stale = [f"{path}: {becomes}" for path, _, _, becomes in sorted(known.keys() - used)]
    if stale:
        msg = f"{LIST.name} names mutants that are none any more:\n" + "\n".join(stale)
        raise StaleError(msg)
    return found
