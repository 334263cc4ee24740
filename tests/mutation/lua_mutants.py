"""Mistakes in the Functions of Redis, made token by token; no tool for Lua is kept."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tests.mutation.mutant import Mutant

_TOKEN = re.compile(
    r"(?P<comment>--[^\n]*)|(?P<string>'(?:[^'\\\n]|\\.)*')|(?P<number>0x[0-9A-Fa-f]+|\d+)"
    r"|(?P<name>[A-Za-z_]\w*)|(?P<operator>==|~=|<=|>=|\.\.|[-+*/%<>=])"
)
_FUNCTION = re.compile(r"^(?:local )?function ([\w.:]+)\(.*?^end$", re.MULTILINE | re.DOTALL)
_SWAPPED = {
    "<": ("comparison", "<="),
    "<=": ("comparison", "<"),
    ">": ("comparison", ">="),
    ">=": ("comparison", ">"),
    "==": ("comparison", "~="),
    "~=": ("comparison", "=="),
    "and": ("and/or", "or"),
    "or": ("and/or", "and"),
    "+": ("arithmetic", "-"),
    "-": ("arithmetic", "+"),
    "*": ("arithmetic", "+"),
    "/": ("arithmetic", "*"),
    "%": ("arithmetic", "+"),
    "true": ("constant", "false"),
    "false": ("constant", "true"),
    # Fates, and a command that looks before it writes.
    "'P'": ("constant", "'O'"),
    "'O'": ("constant", "'V'"),
    "'V'": ("constant", "'P'"),
    "'M'": ("constant", "'F'"),
    "'F'": ("constant", "'M'"),
    "'HSETNX'": ("constant", "'HSET'"),
}
#: What begins a condition, and what ends it.
_CONDITIONS = {"if": "then", "elseif": "then", "while": "do"}
#: A statement on a line of its own: a call, an assignment, the end of a loop.
_STATEMENT = re.compile(
    r"^ +(?=\S)((?!(?:local|return|if|for|while)\b)"
    r"(?:[\w.:\[\]#+, ]+ = [^\n]*[^\n{(,]|[\w.:]+\([^\n]*\)|break))$",
    re.MULTILINE,
)


#: What comes before a sign that is of a number.
_BEFORE_SIGN = re.compile(r"(?:\b(?:and|or|not|return)|[-+*/%<>=(,{])\s*$")


class _Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int


def lua_mutants(path: str, source: str, functions: frozenset[str]) -> list[Mutant]:
    """Return all mutants of some functions of a library, in the order of their places.

    Raises:
        ValueError: there is no such function.
    """
    mutants: list[Mutant] = []
    missing = set(functions)
    for match in _FUNCTION.finditer(source):
        if match[1] not in functions:
            continue
        missing.discard(match[1])
        tokens = list(_tokens(source, match.start(), match.end()))
        changes = [*_swapped(tokens, source), *_negated(tokens, source), *_left_out(source, match)]
        mutants += [Mutant(path, match[1], *change) for change in changes]
    if missing:
        msg = f"{path} has no function {', '.join(sorted(missing))}"
        raise ValueError(msg)
    return sorted(mutants, key=lambda one: (one.start, one.end, one.replacement))


def _tokens(source: str, start: int, end: int) -> Iterator[_Token]:
    for match in _TOKEN.finditer(source, start, end):
        if match.lastgroup != "comment":
            yield _Token(str(match.lastgroup), match[0], match.start(), match.end())


def _swapped(tokens: list[_Token], source: str) -> Iterator[tuple[str, int, int, str]]:
    # The numbers of arguments are left alone: to take another is noticed by any call.
    for before, token in zip(["", *(one.text for one in tokens)], tokens, strict=False):
        if token.text == "-" and _BEFORE_SIGN.search(source[: token.start][-20:]):
            continue
        if token.text in _SWAPPED:
            operator, replacement = _SWAPPED[token.text]
            yield operator, token.start, token.end, replacement
        elif token.kind == "number" and before not in {"keys", "args"}:
            for other in (1, -1):
                yield "constant", token.start, token.end, str(int(token.text, 0) + other)


def _negated(tokens: list[_Token], source: str) -> Iterator[tuple[str, int, int, str]]:
    for at, token in enumerate(tokens):
        if token.text not in _CONDITIONS:
            continue
        last = next(one for one in tokens[at:] if one.text == _CONDITIONS[token.text])
        condition = source[token.end : last.start].strip()
        yield "negation", token.end, last.start, f" not ({condition}) "


def _left_out(source: str, function: re.Match[str]) -> Iterator[tuple[str, int, int, str]]:
    for match in _STATEMENT.finditer(source, function.start(), function.end()):
        if match[1].count("(") == match[1].count(")"):
            yield "statement", match.start(1), match.end(1), ""
