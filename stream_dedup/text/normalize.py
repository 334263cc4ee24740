"""Normalise a batch of texts: NFKC_Casefold, white-space runs collapsed, ends trimmed.

Two texts are *exact* copies when their normalised forms are equal, so case, white space, width
variants (full-width letters, ligatures) and invisible characters do not matter; punctuation does.

Normalisation sorts the marks behind a letter by their combining class (Unicode 14.0, section 3.11,
D109). ``unicodedata`` does so by insertion, in time quadratic in their number and without letting
go of the interpreter: minutes for a message of nothing but marks. So where many may stand together
they are sorted here before, which leaves it nothing to move. The result is the same for every text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stream_dedup.text.characters import (
    CODE_POINTS,
    IGNORABLE,
    SEPARATOR,
    SPACE,
    ascii_classes,
    ascii_fold,
    characters,
)

#: Stands between texts while they are one array; no text keeps it (it folds to a space).
_SEPARATOR = "\x1e"
_IGNORABLE = re.compile(f"[{IGNORABLE}]")
_SURROGATE = re.compile("[\ud800-\udfff]")
#: Neighbouring slow characters from which their marks are sorted here. Every mark is slow, and no
#: character falls apart into more than three, so that insertion is cheap below.
_MANY = 64


class NormalizedBatch(NamedTuple):
    """Normalised texts as one array of code points.

    Attributes:
        codes: (characters,) uint8 when every text is ASCII, else uint32.
        starts: (texts,) int64, where each text begins in ``codes``.
        ends: (texts,) int64, where it ends (exclusive). At least one character that is in no text
            stands between a text and the next.
    """

    codes: npt.NDArray[np.uint8] | npt.NDArray[np.uint32]
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]

    def encoded(self) -> list[bytes]:
        """Return each text as UTF-8."""
        spans = zip(self.starts.tolist(), self.ends.tolist(), strict=True)
        if self.codes.dtype == np.uint8:
            data = self.codes.tobytes()
            return [data[start:end] for start, end in spans]
        text = self.codes.tobytes().decode("utf-32-le")
        return [text[start:end].encode() for start, end in spans]


def nfkc_casefold(text: str) -> str:
    """Return the NFKC_Casefold of one text (Unicode 14.0, section 3.13, definition D146).

    A lone surrogate, which no encoding can carry, becomes U+FFFD.
    """
    text = _IGNORABLE.sub("", text)
    try:
        encoded = text.encode("utf-32-le")
    except UnicodeEncodeError:
        text = _SURROGATE.sub("\ufffd", text)
        encoded = text.encode("utf-32-le")
    codes = np.frombuffer(encoded, np.uint32)
    special = np.flatnonzero(_special()[codes])
    many = (special[_MANY - 1 :] - special[: 1 - _MANY] < _MANY).any()
    fold = _fold_marks if many else _fold
    later = special[~characters().assigned[codes[special]]].tolist()
    if not later:
        return fold(text)
    # A code point that 14.0 does not know neither changes nor touches its neighbours, but a later
    # Unicode, with a later Python, may have made it a letter or an accent. So leave it out.
    starts, ends = [0, *(place + 1 for place in later)], [*later, len(text)]
    pieces = [fold(text[start:end]) for start, end in zip(starts, ends, strict=True)]
    kept = [text[place] for place in later] + [""]
    return "".join(piece + char for piece, char in zip(pieces, kept, strict=True))


@cache
def _special() -> npt.NDArray[np.bool_]:
    """Return which code points are slow or not known to 14.0: every mark, and few letters."""
    tables = characters()
    return tables.slow | ~tables.assigned


def _fold(text: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def _fold_marks(text: str) -> str:
    """Fold a text that may have many marks in a row, each run sorted at once."""
    if len(text) < _MANY:
        return _fold(text)
    once = unicodedata.normalize("NFKC", _decompose(text)).casefold()
    return unicodedata.normalize("NFKC", _decompose(once))


def _decompose(text: str) -> str:
    """Return the NFKD of a text: each character's, with each run of marks stably sorted."""
    if unicodedata.is_normalized("NFKD", text):
        return text
    decomposed = text.translate(_decompositions()).encode("utf-32-le")
    codes = np.frombuffer(decomposed, np.uint32).copy()
    classes = _combining()[codes]
    marks = np.flatnonzero(classes)
    runs = np.cumsum(np.diff(marks, prepend=-1) > 1)
    codes[marks] = codes[marks[np.lexsort((classes[marks], runs))]]
    return codes.tobytes().decode("utf-32-le")


class _Decompositions(dict[int, str]):
    """The NFKD of each character that was asked for."""

    def __missing__(self, code: int) -> str:
        self[code] = unicodedata.normalize("NFKD", chr(code))
        return self[code]


@cache
def _decompositions() -> _Decompositions:
    return _Decompositions()


@cache
def _combining() -> npt.NDArray[np.uint8]:
    """Return the canonical combining class of each code point."""
    classes = map(unicodedata.combining, map(chr, range(CODE_POINTS)))
    return np.fromiter(classes, np.uint8, CODE_POINTS)


def normalize(texts: Sequence[str]) -> NormalizedBatch:
    """Normalise texts. Batches in which every text is ASCII take the shortest way."""
    joined = _SEPARATOR.join(texts)
    if joined.isascii():
        codes: npt.NDArray[np.uint8] | npt.NDArray[np.uint32]
        codes = np.frombuffer(joined.encode().translate(ascii_fold()), np.uint8)
    else:
        texts, codes = _fold_wide(texts, joined)
    lengths = np.fromiter((len(text) for text in texts), np.int64, len(texts))
    ends = np.cumsum(lengths + 1) - 1
    return _collapse(NormalizedBatch(codes, ends - lengths, ends))


def drop_punctuation(batch: NormalizedBatch) -> NormalizedBatch:
    """Make each character that belongs to no token a space, and collapse the spaces again."""
    table = ascii_classes() if batch.codes.dtype == np.uint8 else characters().classes
    codes = batch.codes.copy()
    codes[table[codes] == SEPARATOR] = SPACE
    return _collapse(batch._replace(codes=codes))


def _fold_wide(texts: Sequence[str], joined: str) -> tuple[Sequence[str], npt.NDArray[np.uint32]]:
    """Fold by table; texts that the table cannot serve are normalised one by one before."""
    tables = characters()
    codes = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), np.uint32)
    slow = np.flatnonzero(tables.slow[codes])
    if len(slow):
        ends = np.cumsum(np.fromiter((len(text) + 1 for text in texts), np.int64, len(texts)))
        texts = list(texts)
        for index in np.unique(np.searchsorted(ends, slow, side="right")).tolist():
            texts[index] = nfkc_casefold(texts[index])
        codes = np.frombuffer(_SEPARATOR.join(texts).encode("utf-32-le"), np.uint32)
    return texts, tables.fold[codes]


def _collapse(batch: NormalizedBatch) -> NormalizedBatch:
    """Drop each space that follows a space or begins a text; trim a last one by its end."""
    codes, starts, ends = batch
    gap = codes == SPACE
    drop = np.empty(len(codes), np.bool_)
    if len(codes):
        drop[0] = gap[0]
        np.logical_and(gap[1:], gap[:-1], out=drop[1:])
        first = starts[ends > starts]
        drop[first] = gap[first]
        # A separator folds to a space as well; it must stay, so that texts stay apart.
        drop[ends[:-1]] = False
    dropped = np.count_nonzero(drop)
    if dropped:
        before = np.concatenate([[0], np.cumsum(drop, dtype=np.int64)])
        codes = codes[~drop]
        starts = starts - before[starts]
        ends = ends - before[ends]
    if len(codes):
        trailing = (ends > starts) & (codes[np.maximum(ends - 1, 0)] == SPACE)
        ends = ends - trailing
    return NormalizedBatch(codes, starts, ends)
