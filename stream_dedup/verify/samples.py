"""Samples of a text's distinct shingle hashes.

They are from Broder 1997, "On the resemblance and containment of documents", section 3. The
smallest value in each of many bins, which a MinHash sketch keeps (fingerprint/minhash.py), is a
third kind.

*Bottom-s*, Broder's MIN_s, keeps the s smallest hashes. The s smallest of two samples together are
the s smallest of the two sets' union, of which they are a random sample; the share of them that is
in both samples estimates the resemblance without bias, with variance J (1 - J) / s at most. The
other measures follow from it and the sizes of the sets, which are known.

*Mod-m* keeps the hashes that are 0 modulo m. The samples of two sets relate to each other as the
sets do, so containment can be estimated as well as resemblance: the share of one sample that is in
the other has the containment as its mean (whenever the sample is not empty), and variance at most
c (1 - c) / (size of the sample). As Broder proposes, m is a power of two that grows with the text,
so that a sample has a bounded size, and of two samples the one with the smaller m is thinned out to
the other's. A text with no more distinct shingles than the bound is kept whole: then all is exact.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from stream_dedup.text.shingles import Hashes
from stream_dedup.verify.evidence import HEAD, counts, levels
from stream_dedup.verify.measures import Sizes

#: Hashes in a bottom-s sample, and at most expected in a Mod-m sample.
SAMPLE = 256
#: Distinct shingles up to which a text's are all kept where they are the evidence.
ALL = 1 << 14


class BottomSample:
    """Keeps the ``size`` smallest hashes."""

    def __init__(self, size: int = SAMPLE) -> None:
        self.size = size

    def pack(self, hashes: Hashes) -> bytes:
        """Return the payload of distinct hashes, sorted."""
        return HEAD.pack(len(hashes), 0) + hashes[: self.size].astype("<u8").tobytes()

    def sizes(self, lefts: Sequence[bytes], rights: Sequence[bytes]) -> Sizes:
        """Estimate the sizes of pairs; they are exact where both sets are kept whole."""
        left, right = counts(lefts), counts(rights)
        kept = np.minimum(left, self.size) + np.minimum(right, self.size)
        both = np.sort(np.concatenate([self._matrix(lefts), self._matrix(rights)], axis=1), axis=1)
        twice = np.zeros(both.shape, np.bool_)
        twice[:, 1:] = both[:, 1:] == both[:, :-1]
        twice &= np.arange(both.shape[1]) < kept[:, None]
        whole = np.maximum(left, right) <= self.size
        union = np.minimum(kept - twice.sum(axis=1), np.where(whole, 2 * self.size, self.size))
        place = np.arange(both.shape[1]) - np.cumsum(twice, axis=1)
        common = np.count_nonzero(twice & (place < union[:, None]), axis=1)
        resemblance = common / np.maximum(union, 1)
        estimated = resemblance / (1 + resemblance) * (left + right)
        return Sizes.of(
            np.where(whole, common, estimated),
            left.astype(np.float64),
            right.astype(np.float64),
            (left, right),
        )

    def _matrix(self, payloads: Sequence[bytes]) -> npt.NDArray[np.uint64]:
        """Return the hashes as (payloads, size), filled up with the largest number."""
        joined = np.frombuffer(b"".join(payload[HEAD.size :] for payload in payloads), "<u8")
        counts = np.array([(len(p) - HEAD.size) // 8 for p in payloads], np.int64)
        matrix = np.full((len(payloads), self.size), np.iinfo(np.uint64).max, np.uint64)
        matrix[np.arange(self.size) < counts[:, None]] = joined
        return matrix


class ModSample:
    """Keeps the hashes that are 0 modulo 2^level; the level follows from the number of hashes."""

    def __init__(self, bound: int = SAMPLE) -> None:
        """Choose levels so that a sample is expected to have ``bound`` hashes at most."""
        self.bound = bound

    def pack(self, hashes: Hashes) -> bytes:
        """Return the payload of distinct hashes, sorted."""
        count = len(hashes)
        level = max(0, (-(-count // self.bound) - 1).bit_length())
        kept = _thinned(hashes, level)
        # Only hashes that somebody has chosen come out twice as many as expected.
        while len(kept) > 2 * self.bound:
            level += 1
            kept = _thinned(kept, level)
        return HEAD.pack(count, level) + kept.astype("<u8").tobytes()

    def sizes(self, lefts: Sequence[bytes], rights: Sequence[bytes]) -> Sizes:
        """Count the samples of pairs, which relate to each other as the sets do."""
        left, right = levels(lefts), levels(rights)
        common, sizes = np.zeros(len(lefts)), np.zeros((2, len(lefts)))
        for pair, level in enumerate(np.maximum(left, right).tolist()):
            one = _hashes(lefts[pair], int(left[pair]), level)
            other = _hashes(rights[pair], int(right[pair]), level)
            common[pair], sizes[:, pair] = _count_common(one, other), (len(one), len(other))
        return Sizes.of(common, sizes[0], sizes[1], (counts(lefts), counts(rights)))


def _thinned(hashes: Hashes, level: int) -> Hashes:
    kept: Hashes = hashes[hashes & np.uint64((1 << level) - 1) == 0]
    return kept


def _hashes(payload: bytes, level: int, wanted: int) -> Hashes:
    hashes = np.frombuffer(payload, "<u8", offset=HEAD.size)
    return hashes if level == wanted else _thinned(hashes, wanted)


def _count_common(left: Hashes, right: Hashes) -> int:
    """Count what two sorted sets have in common."""
    both = np.concatenate([left, right])
    both.sort()
    return int(np.count_nonzero(both[1:] == both[:-1]))
