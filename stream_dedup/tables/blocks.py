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

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
FINGERPRINT_BITS = 64

#: A prefix longer than this gains nothing and would not fit exactly into a Redis score (a double).
MAX_PREFIX_BITS = 53


class Permutation:
    """Moves some blocks of a 64-bit fingerprint to the front, in order; the others follow.

    Worked example with 4 blocks of 16 bits, a b c d, and blocks (1, 3) chosen: apply gives
    b d a c, so the first 32 bits, the prefix, are b d; reverse gives a b c d again.
    """

    def __init__(self, bounds: list[int], chosen: tuple[int, ...]) -> None:
        others = tuple(block for block in range(len(bounds) - 1) if block not in chosen)
        widths = [high - low for low, high in pairwise(bounds)]
        self.prefix_bits = min(sum(widths[block] for block in chosen), MAX_PREFIX_BITS)
        #: (mask of the block in place, bits to shift it right by, negative for left)
        self._moves: list[tuple[int, int]] = []
        place = FINGERPRINT_BITS
        for block in chosen + others:
            place -= widths[block]
            low = FINGERPRINT_BITS - bounds[block + 1]
            mask = ((1 << widths[block]) - 1) << low
            self._moves.append((mask, low - place))

    def then(self, following: Permutation) -> Permutation:
        """Return the permutation that does this one and then ``following``, with its prefix."""
        both = copy(following)
        both._moves = [
            (mask, first + second)
            for source, first in self._moves
            for target, second in following._moves
            if (mask := source & (target << first if first >= 0 else target >> -first))
        ]
        return both

    def apply(self, fingerprints: Hashes) -> Hashes:
        """Permute each fingerprint."""
        permuted = np.zeros_like(fingerprints)
        for mask, shift in self._moves:
            permuted |= _shifted(fingerprints & np.uint64(mask), shift)
        return permuted

    def reverse(self, permuted: Hashes) -> Hashes:
        """Undo ``apply``."""
        fingerprints = np.zeros_like(permuted)
        for mask, shift in self._moves:
            fingerprints |= _shifted(permuted, -shift) & np.uint64(mask)
        return fingerprints

    def prefix(self, fingerprints: Hashes) -> Hashes:
        """Return the first ``prefix_bits`` bits of each permuted fingerprint, as an integer."""
        return self.apply(fingerprints) >> np.uint64(FINGERPRINT_BITS - self.prefix_bits)


def _shifted(values: Hashes, right: int) -> Hashes:
    return values >> np.uint64(right) if right >= 0 else values << np.uint64(-right)


def count_tables(hamming: int, blocks: int, inner_blocks: int = 0) -> int:
    """Return how many tables ``block_permutations`` makes."""
    inner = comb(inner_blocks, hamming) if inner_blocks else 1
    return comb(blocks, hamming) * inner


def block_permutations(hamming: int, blocks: int, inner_blocks: int = 0) -> list[Permutation]:
    """Return the permutations that find every pair within ``hamming`` bits.

    C(blocks, hamming) tables, times C(inner_blocks, hamming) in a two-level design.
    """
    bounds = _cut(0, blocks, hamming)
    outer = [
        Permutation(bounds, chosen) for chosen in combinations(range(blocks), blocks - hamming)
    ]
    if not inner_blocks:
        return outer
    return [
        permutation.then(inner)
        for permutation in outer
        for inner in _inner_permutations(hamming, inner_blocks, permutation.prefix_bits)
    ]


def _inner_permutations(hamming: int, blocks: int, front: int) -> list[Permutation]:
    """Return the permutations that leave the first ``front`` bits and choose among the others."""
    bounds = [0, *_cut(front, blocks, hamming)]
    return [
        Permutation(bounds, (0, *chosen))
        for chosen in combinations(range(1, blocks + 1), blocks - hamming)
    ]


def _cut(start: int, blocks: int, hamming: int) -> list[int]:
    """Cut the bits from ``start`` into blocks as equal as can be; return their bounds."""
    if blocks <= hamming:
        msg = f"{blocks} blocks cannot find pairs within {hamming} bits; use at least {hamming + 1}"
        raise ValueError(msg)
    bits = FINGERPRINT_BITS - start
    return [start + round(index * bits / blocks) for index in range(blocks + 1)]
