"""What each Unicode code point is, frozen at Unicode 14.0.

A fingerprint must not change when Python is upgraded, so the classes come from ``characters.npz``
and not from the interpreter's own Unicode database. ``python -m stream_dedup.text.characters``
writes that file, and only under a Python whose database is 14.0.0 (3.11).

Three classes decide tokenisation: characters of a *word* run together (letters, digits, marks and
the underscore), a *single* is a token of its own (scripts written without spaces), and everything
else *separates*. ``FOLD`` maps a code point to its NFKC_Casefold (Unicode 14.0, section 3.13), with
every white space mapped to a plain space, where that is one code point which no neighbour can
change. The others are marked *slow*: a text that has one is normalised by ``unicodedata``.
"""

from __future__ import annotations

import sys
import unicodedata
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

SEPARATOR, WORD, SINGLE = 0, 1, 2
CODE_POINTS = 0x110000
SPACE = 0x20

_FILE = Path(__file__).with_name("characters.npz")
_UNICODE_VERSION = "14.0.0"

#: Scripts written without spaces between words; each character is a token. Blocks, inclusive.
_SINGLES = (
    (0x0E00, 0x0E7F),  # Thai
    (0x0E80, 0x0EFF),  # Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x2E80, 0x2FDF),  # CJK and Kangxi radicals
    (0x3005, 0x3007),  # ideographic iteration mark, closing mark, zero
    (0x3021, 0x3029),  # Hangzhou numerals
    (0x3031, 0x303C),  # Kana repeat marks
    (0x3040, 0x30FF),  # Hiragana, Katakana
    (0x3100, 0x312F),  # Bopomofo
    (0x31A0, 0x31BF),  # Bopomofo extended
    (0x31F0, 0x31FF),  # Katakana phonetic extensions
    (0x3400, 0x4DBF),  # CJK extension A
    (0x4E00, 0x9FFF),  # CJK unified ideographs
    (0xA000, 0xA4CF),  # Yi
    (0xA9E0, 0xA9FF),  # Myanmar extended B
    (0xAA60, 0xAA7F),  # Myanmar extended A
    (0xF900, 0xFAFF),  # CJK compatibility ideographs
    (0x1AFF0, 0x1B16F),  # Kana extensions
    (0x20000, 0x3134F),  # CJK extensions B to G
)

#: Default_Ignorable_Code_Point (Unicode 14.0, DerivedCoreProperties): removed by NFKC_Casefold.
IGNORABLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)

#: The zero of each script's digits (Unicode 14.0, General_Category Nd); the other nine follow it.
DIGIT_ZEROS = (
    "\u0030\u0660\u06f0\u07c0\u0966\u09e6\u0a66\u0ae6\u0b66\u0be6\u0c66\u0ce6\u0d66\u0de6"
    "\u0e50\u0ed0\u0f20\u1040\u1090\u17e0\u1810\u1946\u19d0\u1a80\u1a90\u1b50\u1bb0\u1c40"
    "\u1c50\ua620\ua8d0\ua900\ua9d0\ua9f0\uaa50\uabf0\uff10\U000104a0\U00010d30\U00011066"
    "\U000110f0\U00011136\U000111d0\U000112f0\U00011450\U000114d0\U00011650\U000116c0"
    "\U00011730\U000118e0\U00011950\U00011c50\U00011d50\U00011da0\U00016a60\U00016ac0"
    "\U00016b50\U0001d7ce\U0001d7d8\U0001d7e2\U0001d7ec\U0001d7f6\U0001e140\U0001e2f0"
    "\U0001e950\U0001fbf0"
)


class Characters(NamedTuple):
    """The tables, indexed by code point.

    Attributes:
        classes: (0x110000,) uint8 of SEPARATOR, WORD or SINGLE.
        fold: (0x110000,) uint32, the code point's single-character NFKC_Casefold.
        slow: (0x110000,) bool, whether a text with this code point takes the slow route.
        assigned: (0x110000,) bool, whether Unicode 14.0 knows the code point.
    """

    classes: npt.NDArray[np.uint8]
    fold: npt.NDArray[np.uint32]
    slow: npt.NDArray[np.bool_]
    assigned: npt.NDArray[np.bool_]


@cache
def characters() -> Characters:
    """Read the tables, once."""
    with np.load(_FILE, allow_pickle=False) as stored:
        fold = np.arange(CODE_POINTS, dtype=np.uint32)
        fold[stored["fold_from"]] = stored["fold_to"]
        classes = np.repeat(stored["class_values"], stored["class_lengths"])
        slow = np.repeat(stored["slow_values"], stored["slow_lengths"])
        assigned = np.repeat(stored["assigned_values"], stored["assigned_lengths"])
        return Characters(classes, fold, slow, assigned)


@cache
def ascii_fold() -> bytes:
    """Return the 256-byte table for ``bytes.translate`` that folds ASCII text."""
    fold = characters().fold[:128]
    return bytes(fold.astype(np.uint8)) + bytes(range(128, 256))


@cache
def ascii_classes() -> npt.NDArray[np.uint8]:
    """Return the classes of the code points below 256."""
    return np.ascontiguousarray(characters().classes[:256])


def _class_of(code: int, char: str) -> int:
    category = unicodedata.category(char)
    if category[0] not in "LNM" and char != "_":
        return SEPARATOR
    return SINGLE if any(low <= code <= high for low, high in _SINGLES) else WORD


def _joins_backwards() -> set[str]:
    """Return the characters that normalisation may merge into the one before."""
    joins = {
        chr(code) for low, high in ((0x1161, 0x1176), (0x11A8, 0x11C3)) for code in range(low, high)
    }
    for code in range(CODE_POINTS):
        parts = unicodedata.decomposition(chr(code))
        if parts and not parts.startswith("<"):
            joins.update(chr(int(part, 16)) for part in parts.split()[1:])
    return joins


def build() -> Characters:
    """Derive the tables from this interpreter's Unicode database (takes seconds)."""
    import re  # noqa: PLC0415 - needed only when the tables are rebuilt

    classes = np.zeros(CODE_POINTS, np.uint8)
    fold = np.arange(CODE_POINTS, dtype=np.uint32)
    slow = np.zeros(CODE_POINTS, np.bool_)
    assigned = np.zeros(CODE_POINTS, np.bool_)
    ignorable = re.compile(f"[{IGNORABLE}]")
    joins = _joins_backwards()
    for code in range(CODE_POINTS):
        char = chr(code)
        classes[code] = _class_of(code, char)
        assigned[code] = unicodedata.category(char) != "Cn"
        if char.isspace():
            fold[code] = SPACE
            continue
        once = unicodedata.normalize("NFKC", char).casefold()
        folded = unicodedata.normalize("NFKC", once)
        moves = any(unicodedata.combining(c) or c in joins for c in (char, *folded))
        if 0xD800 <= code <= 0xDFFF or len(folded) != 1 or moves or ignorable.match(char):
            slow[code] = True
        else:
            fold[code] = ord(folded)
    return Characters(classes, fold, slow, assigned)


def _runs(
    values: npt.NDArray[np.uint8] | npt.NDArray[np.bool_],
) -> tuple[npt.NDArray[np.uint8], ...]:
    starts = np.concatenate([[0], np.flatnonzero(values[1:] != values[:-1]) + 1])
    lengths = np.diff(np.append(starts, len(values)))
    return values[starts], lengths.astype(np.uint32)


def main() -> int:
    """Write ``characters.npz``."""
    if unicodedata.unidata_version != _UNICODE_VERSION:
        sys.stderr.write(f"needs Unicode {_UNICODE_VERSION}, has {unicodedata.unidata_version}\n")
        return 1
    tables = build()
    changed = np.flatnonzero(tables.fold != np.arange(CODE_POINTS)).astype(np.uint32)
    class_values, class_lengths = _runs(tables.classes)
    slow_values, slow_lengths = _runs(tables.slow)
    assigned_values, assigned_lengths = _runs(tables.assigned)
    np.savez_compressed(
        _FILE,
        fold_from=changed,
        fold_to=tables.fold[changed],
        class_values=class_values,
        class_lengths=class_lengths,
        slow_values=slow_values,
        slow_lengths=slow_lengths,
        assigned_values=assigned_values,
        assigned_lengths=assigned_lengths,
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
