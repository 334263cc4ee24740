"""Block permutations of a SimHash (Manku, Jain, Das Sarma 2007, section 3).

The bits are cut into m blocks. Two fingerprints within Hamming distance k differ in at most k of
them, so they agree on some m - k blocks. One table for each choice of m - k blocks, with the chosen
blocks moved to the front, makes every such pair share the prefix of at least one table.

In a two-level design the bits outside those blocks, which hold all the differences, are cut into
blocks again, and each table adds a choice of these to its prefix.
"""

from __future__ import annotations

from copy import copy
from itertools import combinations, pairwise
from math import comb
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]

#: Bits of a word; fingerprints of 128 bits are rows of two words, the upper bits first.
WORD_BITS = 64

#: A prefix longer than this gains nothing and would not fit exactly into a Redis score (a double).
MAX_PREFIX_BITS = 53


class _WordMove(NamedTuple):
    """Some bits of a word of the fingerprint, and where they go.

    Attributes:
        source: word that they are in.
        mask: the bits.
        right: bits to shift them right by, negative for left.
        target: word that they go to.
    """

    source: int
    mask: int
    right: int
    target: int


class Permutation:
    """Moves some blocks of a fingerprint of 64 or 128 bits to the front; the others follow.

    Worked example with 4 blocks of 16 bits, a b c d, and blocks (1, 3) chosen: apply gives
    b d a c, so the first 32 bits, the prefix, are b d; reverse gives a b c d again.

    Fingerprints of 64 bits are (fingerprints,) uint64, of 128 bits (fingerprints, 2) uint64.
    """

    def __init__(self, bounds: list[int], chosen: tuple[int, ...]) -> None:
        self._bits = bounds[-1]
        others = tuple(block for block in range(len(bounds) - 1) if block not in chosen)
        widths = [high - low for low, high in pairwise(bounds)]
        self.prefix_bits = min(sum(widths[block] for block in chosen), MAX_PREFIX_BITS)
        #: (mask of the block in place, bits to shift it right by, negative for left)
        self._moves: list[tuple[int, int]] = []
        place = self._bits
        for block in chosen + others:
            place -= widths[block]
            low = self._bits - bounds[block + 1]
            mask = ((1 << widths[block]) - 1) << low
            self._moves.append((mask, low - place))
        self._compile()

    def then(self, following: Permutation) -> Permutation:
        """Return the permutation that does this one and then ``following``, with its prefix."""
        both = copy(following)
        both._moves = [
            (mask, first + second)
            for source, first in self._moves
            for target, second in following._moves
            if (mask := source & _moved(target, -first))
        ]
        both._compile()
        return both

    def apply(self, fingerprints: Hashes) -> Hashes:
        """Permute each fingerprint."""
        permuted = np.zeros_like(fingerprints)
        words, placed = self._words(fingerprints), self._words(permuted)
        for move in self._word_moves:
            placed[move.target] |= _shifted(words[move.source] & np.uint64(move.mask), move.right)
        return permuted

    def reverse(self, permuted: Hashes) -> Hashes:
        """Undo ``apply``."""
        fingerprints = np.zeros_like(permuted)
        words, placed = self._words(fingerprints), self._words(permuted)
        for move in self._word_moves:
            words[move.source] |= _shifted(placed[move.target], -move.right) & np.uint64(move.mask)
        return fingerprints

    def prefix(self, fingerprints: Hashes) -> Hashes:
        """Return the first ``prefix_bits`` bits of each permuted fingerprint, as an integer."""
        words = self._words(fingerprints)
        front = np.zeros(len(fingerprints), np.uint64)
        for move in self._front_moves:
            front |= _shifted(words[move.source] & np.uint64(move.mask), move.right)
        return front >> np.uint64(WORD_BITS - self.prefix_bits)

    def _words(self, fingerprints: Hashes) -> list[Hashes]:
        """Return a view of each word, the uppermost first."""
        count = self._bits // WORD_BITS
        return list(fingerprints.reshape(len(fingerprints), count).T)

    def _compile(self) -> None:
        """Cut the moves at the words' bounds, and find those that fill the prefix."""
        self._word_moves = [
            _WordMove(source, part >> low, right + high - low, target)
            for mask, right in self._moves
            for source, low in self._places()
            for target, high in self._places()
            if (part := mask & (_WORD << low) & _moved(_WORD << high, -right))
        ]
        prefix = ((1 << self.prefix_bits) - 1) << (WORD_BITS - self.prefix_bits)
        self._front_moves = [
            move
            for move in self._word_moves
            if move.target == 0 and _moved(move.mask, move.right) & prefix
        ]

    def _places(self) -> list[tuple[int, int]]:
        """Return each word's number and the place of its lowest bit."""
        count = self._bits // WORD_BITS
        return [(word, (count - 1 - word) * WORD_BITS) for word in range(count)]


_WORD = (1 << WORD_BITS) - 1


def _moved(mask: int, right: int) -> int:
    return mask >> right if right >= 0 else mask << -right


def _shifted(values: Hashes, right: int) -> Hashes:
    return values >> np.uint64(right) if right >= 0 else values << np.uint64(-right)


def count_tables(hamming: int, blocks: int, inner_blocks: int = 0) -> int:
    """Return how many tables ``block_permutations`` makes."""
    inner = comb(inner_blocks, hamming) if inner_blocks else 1
    return comb(blocks, hamming) * inner


def block_permutations(
    hamming: int, blocks: int, inner_blocks: int = 0, bits: int = WORD_BITS
) -> list[Permutation]:
    """Return the permutations that find every pair of ``bits`` within ``hamming`` bits.

    C(blocks, hamming) tables, times C(inner_blocks, hamming) in a two-level design.
    """
    bounds = _cut(0, bits, blocks, hamming)
    outer = [
        Permutation(bounds, chosen) for chosen in combinations(range(blocks), blocks - hamming)
    ]
    if not inner_blocks:
        return outer
    return [
        permutation.then(inner)
        for permutation in outer
        for inner in _inner_permutations(hamming, inner_blocks, permutation.prefix_bits, bits)
    ]


def _inner_permutations(hamming: int, blocks: int, front: int, bits: int) -> list[Permutation]:
    """Return the permutations that leave the first ``front`` bits and choose among the others."""
    bounds = [0, *_cut(front, bits, blocks, hamming)]
    return [
        Permutation(bounds, (0, *chosen))
        for chosen in combinations(range(1, blocks + 1), blocks - hamming)
    ]


def _cut(start: int, end: int, blocks: int, hamming: int) -> list[int]:
    """Cut the bits from ``start`` to ``end`` into equal blocks, nearly; return their bounds."""
    if blocks <= hamming:
        msg = f"{blocks} blocks cannot find pairs within {hamming} bits; use at least {hamming + 1}"
        raise ValueError(msg)
    return [start + round(index * (end - start) / blocks) for index in range(blocks + 1)]
