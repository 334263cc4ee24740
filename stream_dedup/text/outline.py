"""The outline of a text: each character as one of few, for patterns that must never change.

A pattern over words or digits as Unicode has them means something else with each release of
Python, and is slow. An outline has one character for each of the text's, all of them below U+0083,
after the frozen tables (``characters``); a pattern over outlines means the same for ever.
"""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import numpy.typing as npt

from stream_dedup.text.characters import (
    CODE_POINTS,
    DIGIT_ZEROS,
    SEPARATOR,
    WORD,
    characters,
)

#: What stands for characters beyond ASCII: of a word, standing alone (Han, Thai, ...), multiplying
#: the number before (ten thousand and the like), and all others.
LETTER, LONE, MULTIPLIER, OTHER = "\x80", "\x81", "\x82", "\x7f"
#: For use within a character class: what runs together into words.
WORD_CLASS = rf"0-9A-Za-z_{LETTER}"

_MULTIPLIERS = "千万萬億亿兆천만억조"
_ALIKE = {"’": "'", "‐": "-", "‑": "-", "–": "-", "—": "-", "−": "-", "٫": ".", "٬": ",", "⁄": "/"}


@cache
def _table() -> npt.NDArray[np.uint8]:
    """Return the outline of each code point."""
    classes, fold, *_ = characters()
    table = np.full(CODE_POINTS, ord(LONE), np.uint8)
    table[classes == WORD] = ord(LETTER)
    table[classes == SEPARATOR] = ord(OTHER)
    # Normalisation makes these ASCII, so here they are that already: full-width forms, white space.
    table[fold < 128] = fold[fold < 128]
    for zero in map(ord, DIGIT_ZEROS):
        table[zero : zero + 10] = ord("0")
    for char in _MULTIPLIERS:
        table[ord(char)] = ord(MULTIPLIER)
    for char, ascii_char in _ALIKE.items():
        table[ord(char)] = ord(ascii_char)
    table[:128] = np.arange(128)
    return table


def outline(text: str) -> str:
    """Return the outline of a text, as long as the text; that of an ASCII text is the text."""
    if text.isascii():
        return text
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    return _table()[codes].tobytes().decode("latin-1")


def replace(pattern: re.Pattern[str], replacement: str, text: str) -> str:
    """Replace what the pattern finds in the outline of a text.

    Linear in the text if the pattern is; the replacement is taken as it stands.
    """
    shape = outline(text)
    if shape is text:
        return pattern.sub(replacement, text)
    parts, place = [], 0
    for match in pattern.finditer(shape):
        parts += [text[place : match.start()], replacement]
        place = match.end()
    if not parts:
        return text
    parts.append(text[place:])
    return "".join(parts)
