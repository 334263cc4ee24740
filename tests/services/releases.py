"""A later release of the program, made from the one at hand, to run beside it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

from stream_dedup import __version__
from stream_dedup.index.functions import CLAIMS

ROOT = Path(__file__).parents[2]
#: What the later release calls its Functions, and what its records end with.
LATER_CLAIMS = f"{CLAIMS.name}9"
RECORD_TAIL = b"later"
_LUA = "stream_dedup/index/lua/claims.lua"
_ROUNDS = "stream_dedup/index/rounds.py"


class Change(NamedTuple):
    """Some text of a file, all of which becomes another."""

    file: str
    old: str
    new: str


#: What the later release does otherwise; its configuration and its keys stay. Neither works with
#: the Functions of the other: the reply to ``read`` has longer numbers, and ``register`` takes its
#: arguments in another order. Records of the later one have a field more.
CHANGES = (
    Change("stream_dedup/__init__.py", f'"{__version__}"', f'"9.{__version__}"'),
    Change(_LUA, CLAIMS.name, LATER_CLAIMS),
    Change(_LUA, "pack('<I4', #value) .. value", "pack('<I8', #value) .. value"),
    Change(_ROUNDS, "reply[at : at + 4]", "reply[at : at + 8]"),
    Change(_ROUNDS, "reply[at + 4 : at + 4 + length]", "reply[at + 8 : at + 8 + length]"),
    Change(_ROUNDS, "at += 4 + length", "at += 8 + length"),
    Change(
        _LUA,
        "tonumber(args[2])\n  local width, tables, all = tonumber(args[3])",
        "tonumber(args[3])\n  local width, tables, all = tonumber(args[2])",
    ),
    Change(
        _ROUNDS,
        "[most, self._layout.suffix_width, tables, every]",
        "[self._layout.suffix_width, most, tables, every]",
    ),
    Change(
        "stream_dedup/index/records.py",
        "+ encode(document_id)",
        f"+ encode(document_id) + {RECORD_TAIL!r}",
    ),
)


def make_later(folder: Path) -> Path:
    """Copy the packages into a folder, with the changes; return the folder."""
    for package in (ROOT / "stream_dedup", ROOT / "workers" / "stream_dedup_workers"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(package, folder / package.name, ignore=ignored)
    for file, old, new in CHANGES:
        path = folder / file
        text = path.read_text(encoding="utf-8")
        assert old in text, f"{file} has no {old!r} any more: correct CHANGES"
        path.write_text(text.replace(old, new), encoding="utf-8")
    return folder
