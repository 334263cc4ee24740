"""Exact resemblance of texts by brute force, without any of the product's own code.

A text is its words (casefolded, runs of word characters), a shingle is three words in a row, and
the resemblance of two texts is that of their sets of shingles (Jaccard). A word is a number below
2^21, so that a shingle is one 64-bit number, and two of them are equal when the shingles are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import ceil

import numpy as np
import numpy.typing as npt

Shingles = npt.NDArray[np.uint64]

_WORD = re.compile(r"\w+")
_BITS = 21
_WORD_MASK = np.uint64((1 << _BITS) - 1)
#: Pairs compared at a time.
_PAIRS = 1 << 20


class Texts:
    """Texts by a number each."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._words: list[npt.NDArray[np.uint32]] = []

    def __len__(self) -> int:
        return len(self._words)

    def add(self, text: str) -> int:
        """Keep the words of a text; return its number."""
        numbers = self._numbers
        words = _WORD.findall(text.casefold())
        found = [numbers.setdefault(word, len(numbers)) for word in words]
        self._words.append(np.array(found, np.uint32))
        return len(self._words) - 1

    def same(self, one: int, other: int) -> bool:
        """Whether two texts have the same words in the same order."""
        return np.array_equal(self._words[one], self._words[other])

    def shingles(self, number: int) -> Shingles:
        """Return the shingles of a text, each once, increasing."""
        words = self._words[number].astype(np.uint64)
        joined = words[:-2] << np.uint64(2 * _BITS) | words[1:-1] << np.uint64(_BITS) | words[2:]
        return np.unique(joined)

    def resemblance(self, one: int, other: int) -> float:
        """Return the resemblance of two texts."""
        return _resemblance(self.shingles(one), self.shingles(other))

    def near_pairs(self, numbers: Sequence[int], threshold: float) -> list[tuple[int, int]]:
        """Return all pairs among these texts whose resemblance reaches a threshold, exactly.

        Two sets of n and m >= n shingles with a Jaccard of t or more have t * n or more in common,
        so among the first n - t * n + 1 of each, in any fixed order, is a common one (Chaudhuri et
        al., A primitive operator for similarity joins in data cleaning, 2006, section 4). Here the
        rare ones come first, so that hardly any others share one.
        """
        heads, owners = [], []
        for number in numbers:
            shingles = _rare_first(self.shingles(number))
            head = shingles[: len(shingles) - ceil(threshold * len(shingles)) + 1]
            heads.append(head)
            owners.append(np.full(len(head), number, np.int64))
        if not heads:
            return []
        found: set[tuple[int, int]] = set()
        for pairs in _sharing(np.concatenate(heads), np.concatenate(owners)):
            for one, other in np.unique(pairs, axis=0).tolist():
                if (one, other) not in found and self.resemblance(one, other) >= threshold:
                    found.add((one, other))
        return sorted(found)


def _rare_first(shingles: Shingles) -> Shingles:
    """Order shingles by their latest word: frequent words come early in a stream."""
    words = [shingles >> np.uint64(shift * _BITS) & _WORD_MASK for shift in range(3)]
    return shingles[np.argsort(np.max(words, axis=0), kind="stable")[::-1]]


def _sharing(shingles: Shingles, owners: npt.NDArray[np.int64]) -> Iterator[npt.NDArray[np.int64]]:
    """Yield all pairs of owners of equal shingles, some at a time; shape (n, 2), smaller first."""
    order = np.lexsort((owners, shingles))
    shingles, owners = shingles[order], owners[order]
    distance, count = 1, 0
    waiting: list[npt.NDArray[np.int64]] = []
    while distance < len(shingles):
        (at,) = np.nonzero(shingles[distance:] == shingles[:-distance])
        if not len(at):
            break
        waiting.append(np.stack([owners[at], owners[at + distance]], axis=1))
        count += len(at)
        if count >= _PAIRS:
            yield np.concatenate(waiting)
            waiting, count = [], 0
        distance += 1
    if waiting:
        yield np.concatenate(waiting)


def _resemblance(one: Shingles, other: Shingles) -> float:
    common = len(np.intersect1d(one, other, assume_unique=True))
    union = len(one) + len(other) - common
    return common / union if union else 0.0
