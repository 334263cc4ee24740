"""What differs between two texts, word by word, in any script and in bounded time.

A piece of comparison is a word with the white space after it; scripts written without spaces are
compared by grapheme clusters (Unicode Standard Annex 29), so that no mark is torn off its letter.
Words are aligned by a longest common subsequence, whose cost is the product of the two lengths.
Where that is more than may be spent, texts are first cut at runs of words that each of them has
exactly once (the idea of patience diff, Bram Cohen 2003), in time n log n, and what lies between is
aligned as long as the budget lasts. The rest is shown as it is, and said to be not compared.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import groupby, pairwise
from operator import add
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import regex
from rapidfuzz.distance import Indel

#: Cells of alignment (words of one text times words of the other) that a comparison may take; 64 of
#: them are one machine operation, 8 of them a byte.
CELLS = 150_000_000

#: Characters of a text above which nothing is compared at all.
LONGEST = 2_000_000

#: A stretch that would take more than one in so many of the cells is cut before it is aligned.
_SHARE = 4

#: Cuts within cuts. A text can be made so that each cut takes a little off its end only.
_DEEPEST = 16

#: Neighbouring words of a run that cuts texts; shorter runs are more often unique by chance only.
_RUN = 4

#: Characters of unchanged words between two changes that are shown as changed with them.
_CRUMB = 1

#: A word, or one grapheme cluster of anything else, with the white space after it. Flags, which are
#: pairs of letters, are spelled out: to find where one ends, ``\X`` counts all letters before.
_PIECE = regex.compile(
    r"""
    (?: [[\w\p{M}\u200c\u200d]--[
            \p{Han}\p{Hiragana}\p{Katakana}\p{Bopomofo}\p{Yi}
            \p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]]++
      | \p{GCB=Regional_Indicator}{1,2}+
        [\p{GCB=Extend}\p{GCB=SpacingMark}\p{GCB=ZWJ}]*+
      | (?=\S)\X
    ) \s*+
    | \s++
    """,
    regex.VERSION1 | regex.VERBOSE,
)

Ints = npt.NDArray[np.int64]


class Kind(StrEnum):
    """What a part of a comparison is."""

    EQUAL = "equal"
    REMOVED = "removed"
    ADDED = "added"


class Part(NamedTuple):
    """A part of a comparison.

    Attributes:
        kind: whether both texts have it, or the left one only, or the right one only.
        text: its characters.
    """

    kind: Kind
    text: str


class Difference(NamedTuple):
    """What differs between two texts.

    Attributes:
        parts: equal and removed parts make the left text, equal and added parts the right one.
        complete: whether every stretch was compared; if not, some of the removed and added parts
            may have words in common.
        cells: what it cost, see ``CELLS``.
    """

    parts: list[Part]
    complete: bool
    cells: int

    @property
    def equal(self) -> bool:
        """Whether the texts are the same."""
        return all(part.kind is Kind.EQUAL for part in self.parts)


class _Text(NamedTuple):
    """A text in pieces.

    Attributes:
        words: each piece without its white space.
        spaces: the white space after each.
        numbers: (pieces,) a number for each word, the same for the same word of both texts.
    """

    words: list[str]
    spaces: list[str]
    numbers: Ints


class _Block(NamedTuple):
    """A stretch of the left text and the one of the right text that stands in its place."""

    equal: bool
    left: slice
    right: slice


def _same(left: slice, right: slice) -> _Block:
    return _Block(equal=True, left=left, right=right)


def _changed(left: slice, right: slice) -> _Block:
    return _Block(equal=False, left=left, right=right)


def compare_texts(left: str, right: str, cells: int = CELLS) -> Difference:
    """Say what differs between two texts.

    Args:
        left: the text that something is removed from.
        right: the text that something is added to.
        cells: what it may cost at most.
    """
    if left == right:
        return Difference(list(_joined([Part(Kind.EQUAL, left)])), complete=True, cells=0)
    if max(len(left), len(right)) > LONGEST:
        parts = [Part(Kind.REMOVED, left), Part(Kind.ADDED, right)]
        return Difference(list(_joined(parts)), complete=False, cells=0)
    numbers: dict[str, int] = {}
    texts = _cut(left, numbers), _cut(right, numbers)
    aligner = _Aligner(texts[0].numbers, texts[1].numbers, cells)
    sides = (slice(0, len(texts[0].words)), slice(0, len(texts[1].words)))
    parts = [part for block in aligner.align(*sides) for part in _parts(*texts, block)]
    whole = list(_joined(_without_crumbs(list(_joined(parts)))))
    joined = list(_joined(_without_common_space(whole)))
    return Difference(joined, aligner.complete, aligner.spent)


def _cut(text: str, numbers: dict[str, int]) -> _Text:
    """Cut a text in pieces, and number its words."""
    pieces = _PIECE.findall(text)
    words = [piece.rstrip() for piece in pieces]
    spaces = [piece[len(word) :] for piece, word in zip(pieces, words, strict=True)]
    found = [numbers.setdefault(word, len(numbers)) for word in words]
    return _Text(words, spaces, np.array(found, np.int64))


class _Aligner:
    """Aligns stretches of two texts, as long as the budget lasts.

    Attributes:
        spent: cells of alignment taken.
        complete: whether all stretches were aligned so far.
    """

    def __init__(self, left: Ints, right: Ints, cells: int) -> None:
        self._left = left
        self._right = right
        self._cells = cells
        self.spent = 0
        self.complete = True

    def align(self, left: slice, right: slice, depth: int = 0) -> Iterator[_Block]:
        """Align two stretches: what they begin with, what they end with, what is between."""
        a, b = self._left[left], self._right[right]
        head = _common(a, b)
        tail = _common(a[head:][::-1], b[head:][::-1])
        inner = (
            slice(left.start + head, left.stop - tail),
            slice(right.start + head, right.stop - tail),
        )
        yield _same(slice(left.start, inner[0].start), slice(right.start, inner[1].start))
        yield from self._align_inner(*inner, depth)
        yield _same(slice(inner[0].stop, left.stop), slice(inner[1].stop, right.stop))

    def _align_inner(self, left: slice, right: slice, depth: int) -> Iterator[_Block]:
        cost = (left.stop - left.start) * (right.stop - right.start)
        if not cost:
            yield _changed(left, right)
        elif cost > self._cells // _SHARE:
            is_cut = depth < _DEEPEST
            anchors = _anchors(self._left[left], self._right[right]) if is_cut else []
            self.complete &= bool(anchors)
            yield from self._between(left, right, anchors, depth + 1)
        elif cost > self._cells - self.spent:
            self.complete = False
            yield _changed(left, right)
        else:
            self.spent += cost
            yield from self._subsequence(left, right)

    def _between(
        self, left: slice, right: slice, anchors: Sequence[tuple[int, int, int]], depth: int
    ) -> Iterator[_Block]:
        """Align what lies between stretches that are known to be equal; without any, nothing."""
        if not anchors:
            yield _changed(left, right)
            return
        at, to = left.start, right.start
        for begin, begins, size in anchors:
            before = slice(at, left.start + begin), slice(to, right.start + begins)
            yield from self.align(*before, depth)
            at, to = left.start + begin + size, right.start + begins + size
            yield _same(slice(at - size, at), slice(to - size, to))
        yield from self.align(slice(at, left.stop), slice(to, right.stop), depth)

    def _subsequence(self, left: slice, right: slice) -> Iterator[_Block]:
        a, b = self._left[left].tolist(), self._right[right].tolist()
        for kind, begin, end, begins, ends in Indel.opcodes(a, b):
            yield _Block(
                kind == "equal",
                slice(left.start + begin, left.start + end),
                slice(right.start + begins, right.start + ends),
            )


def _common(a: Ints, b: Ints) -> int:
    """Return how many numbers two rows begin with in common."""
    size = min(len(a), len(b))
    unequal = a[:size] != b[:size]
    return int(unequal.argmax()) if unequal.any() else size


def _anchors(a: Ints, b: Ints) -> list[tuple[int, int, int]]:
    """Return stretches that are equal, in order in both texts: (left, right, length).

    They come of runs that occur once in each text, in the longest sequence that has them in one
    order in both.
    """
    if min(len(a), len(b)) < _RUN:
        return []
    sides = []
    for numbers in (a, b):
        runs = np.lib.stride_tricks.sliding_window_view(numbers, _RUN)
        factors = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 1])
        hashes = (runs.astype(np.uint64) * factors.astype(np.uint64)).sum(axis=1, dtype=np.uint64)
        values, places, counts = np.unique(hashes, return_index=True, return_counts=True)
        sides.append((values[counts == 1], places[counts == 1]))
    _, one, other = np.intersect1d(sides[0][0], sides[1][0], return_indices=True)
    lefts, rights = sides[0][1][one], sides[1][1][other]
    order = np.argsort(lefts)
    chosen = order[_longest_rising(rights[order].tolist())]
    return list(_stretches(a, b, zip(lefts[chosen].tolist(), rights[chosen].tolist(), strict=True)))


def _stretches(
    a: Ints, b: Ints, pairs: Iterable[tuple[int, int]]
) -> Iterator[tuple[int, int, int]]:
    """Join runs that overlap in the same way; pass over those that do not, and false equals."""
    begin, begins, size = 0, 0, 0
    for left, right in pairs:
        if (a[left : left + _RUN] != b[right : right + _RUN]).any():
            continue  # two runs of the same hash
        if left - begin == right - begins and left <= begin + size:
            size = left + _RUN - begin
        elif left >= begin + size and right >= begins + size:
            if size:
                yield begin, begins, size
            begin, begins, size = left, right, _RUN
    if size:
        yield begin, begins, size


def _longest_rising(values: Sequence[int]) -> list[int]:
    """Return the positions of a longest strictly rising subsequence (Schensted 1961)."""
    tops: list[int] = []
    piles: list[int] = []
    before: list[int] = []
    for position, value in enumerate(values):
        pile = bisect_left(tops, value)
        before.append(piles[pile - 1] if pile else -1)
        tops[pile : pile + 1] = [value]
        piles[pile : pile + 1] = [position]
    chosen = []
    position = piles[-1] if piles else -1
    while position >= 0:
        chosen.append(position)
        position = before[position]
    return chosen[::-1]


def _parts(left: _Text, right: _Text, block: _Block) -> Iterator[Part]:
    if not block.equal:
        yield Part(Kind.REMOVED, _spelled(left, block.left))
        yield Part(Kind.ADDED, _spelled(right, block.right))
        return
    spaces = left.spaces[block.left], right.spaces[block.right]
    if spaces[0] == spaces[1]:
        yield Part(Kind.EQUAL, _spelled(left, block.left))
        return
    for word, space, other in zip(left.words[block.left], *spaces, strict=True):
        if space == other:
            yield Part(Kind.EQUAL, word + space)
        else:
            yield Part(Kind.EQUAL, word)
            yield Part(Kind.REMOVED, space)
            yield Part(Kind.ADDED, other)


def _spelled(text: _Text, stretch: slice) -> str:
    return "".join(map(add, text.words[stretch], text.spaces[stretch]))


def _joined(parts: Iterable[Part]) -> Iterator[Part]:
    """Join parts of the same kind; between two equal ones, what is removed comes first."""
    for equal, group in groupby(
        (part for part in parts if part.text), key=lambda part: part.kind is Kind.EQUAL
    ):
        run = list(group)
        for kind in [Kind.EQUAL] if equal else [Kind.REMOVED, Kind.ADDED]:
            text = "".join(part.text for part in run if part.kind is kind)
            if text:
                yield Part(kind, text)


def _without_common_space(parts: Sequence[Part]) -> Iterator[Part]:
    """Let white space that ends both what is removed and what is added be equal."""
    pairs = pairwise([*parts, Part(Kind.EQUAL, "")])
    kept = ""
    for part, following in pairs:
        text = part.text.removesuffix(kept) if part.kind is Kind.ADDED and kept else part.text
        space = ""
        if (part.kind, following.kind) == (Kind.REMOVED, Kind.ADDED):
            space = _common_space(text, following.text)
        yield Part(part.kind, text.removesuffix(space) if space else text)
        if part.kind is Kind.ADDED and kept:
            yield Part(Kind.EQUAL, kept)
        kept = space


def _common_space(one: str, other: str) -> str:
    spaces = [text[len(text.rstrip()) :] for text in (one, other)]
    return spaces[0] if spaces[0] == spaces[1] else ""


def _without_crumbs(parts: Sequence[Part]) -> Iterator[Part]:
    """Show equal signs that stand alone between two changes as part of the change.

    What was replaced as a whole then reads as a whole, not as two texts that share their commas.
    """
    for at, part in enumerate(parts):
        inside = 0 < at < len(parts) - 1
        if inside and part.kind is Kind.EQUAL and _is_crumb(parts, at):
            yield Part(Kind.REMOVED, part.text)
            yield Part(Kind.ADDED, part.text)
        else:
            yield part


def _is_crumb(parts: Sequence[Part], at: int) -> bool:
    bare = parts[at].text.strip()
    return len(bare) <= _CRUMB and not bare.isalnum()
