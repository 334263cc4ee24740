"""Block permutations of a SimHash (Manku, Jain, Das Sarma 2007, section 3).

The bits are cut into m blocks. Two fingerprints within Hamming distance k differ in at most k of
them, so they agree on some m - k blocks. One table for each choice of m - k blocks, with the chosen
blocks moved to the front, makes every such pair share the prefix of at least one table.
"""

from __future__ import annotations

from itertools import combinations, pairwise

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


def block_permutations(hamming: int, blocks: int) -> list[Permutation]:
    """Return the C(blocks, hamming) permutations that find every pair within ``hamming`` bits."""
    if blocks <= hamming:
        msg = f"{blocks} blocks cannot find pairs within {hamming} bits; use at least {hamming + 1}"
        raise ValueError(msg)
    bounds = [round(index * FINGERPRINT_BITS / blocks) for index in range(blocks + 1)]
    return [Permutation(bounds, chosen) for chosen in combinations(range(blocks), blocks - hamming)]
