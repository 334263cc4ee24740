"""Bloom filters of a text's shingles, compared by how many of their bits are set.

A filter of m bits with k hash functions, of which X are set, holds about n = -(m / k) ln(1 - X / m)
elements; the same of the bits set in either of two filters gives their union, and so the
intersection (Swamidass and Baldi 2007, "Mathematical correction for fingerprint similarity
measures"). Here k = 1: every further hash function only makes these estimates worse, and no one
asks whether a single shingle is in the filter. With k = 1 an estimate is that of linear counting
(Whang, Vander-Zanden and Taylor 1990), whose variance is f(n) = m (exp(n / m) - n / m - 1).

Of one pair the estimates are correlated. By the same argument as there, the covariance of the
estimates for two sets is f(size of their intersection), from which ``standard_error`` follows by
the first-order rule for functions of random variables.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from stream_dedup.text.shingles import Hashes
from stream_dedup.types import Measure
from stream_dedup.verify.evidence import HEAD, Scores, counts
from stream_dedup.verify.measures import Sizes, ratio

#: Bits of a filter.
BITS = 8192
#: Distinct shingles up to which a text gets a filter: four for each bit, 98 % of the bits set.
LIMIT = 4 * BITS


class BloomFilter:
    """Keeps one bit for each shingle in a filter of 8192."""

    def pack(self, hashes: Hashes) -> bytes | None:
        """Return the payload of distinct hashes; None for more than a filter takes."""
        if len(hashes) > LIMIT:
            return None
        bits = np.zeros(BITS, np.bool_)
        bits[hashes & np.uint64(BITS - 1)] = True
        return HEAD.pack(len(hashes), 0) + np.packbits(bits, bitorder="little").tobytes()

    def sizes(self, lefts: Sequence[bytes], rights: Sequence[bytes]) -> Sizes:
        """Estimate the sizes of pairs."""
        left_bits, right_bits = _bits(lefts), _bits(rights)
        left, right = _estimate(left_bits), _estimate(right_bits)
        common = left + right - _estimate(left_bits | right_bits)
        true = counts(lefts), counts(rights)
        return Sizes.of(np.maximum(common, 0.0), left, right, true)


def standard_error(measure: Measure, sizes: Sizes) -> Scores:
    """Return the standard error of a measure's estimate for pairs of these true sizes."""
    common, left, right, _ = sizes
    union = left + right - common
    # The estimates that a score is made of: left, right and union, in this order.
    shared = np.array([[left, common, left], [common, right, right], [left, right, union]]) / BITS
    covariance = BITS * (np.expm1(shared) - shared)
    gradient = np.array([_slope(measure, sizes, which) for which in range(3)])
    variance = np.einsum("ip,ijp,jp->p", gradient, covariance, gradient)
    error: Scores = np.sqrt(np.maximum(variance, 0.0))
    return error


def _slope(measure: Measure, sizes: Sizes, which: int) -> Scores:
    """Differentiate a score by one of the three estimates."""
    step = 1e-3
    ends = []
    for change in (-step, step):
        moved = [sizes.left, sizes.right, sizes.left + sizes.right - sizes.common]
        moved[which] = moved[which] + change
        left, right, union = moved
        true = sizes.left, sizes.right
        ends.append(ratio(measure, Sizes.of(left + right - union, left, right, true)))
    return (ends[1] - ends[0]) / (2 * step)


def _bits(payloads: Sequence[bytes]) -> npt.NDArray[np.uint64]:
    joined = b"".join(payload[HEAD.size :] for payload in payloads)
    return np.frombuffer(joined, "<u8").reshape(len(payloads), BITS // 64)


def _estimate(bits: npt.NDArray[np.uint64]) -> Scores:
    """Estimate how many elements are in each filter."""
    used = np.bitwise_count(bits).sum(axis=1, dtype=np.float64)
    # A full filter, which only hashes that somebody has chosen make likely, has no finite estimate.
    elements: Scores = -BITS * np.log1p(-np.minimum(used, BITS - 0.5) / BITS)
    return elements
