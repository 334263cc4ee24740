"""Compares evidence: says how near two documents are, and whether that is near enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from stream_dedup.settings import Settings
from stream_dedup.text.shingles import Hashes, Shingles
from stream_dedup.types import Measure, Score, Side, VerifyBy
from stream_dedup.verify.bloom import BloomFilter
from stream_dedup.verify.evidence import Evidence, Scores, counts, opaque
from stream_dedup.verify.measures import Sizes, score
from stream_dedup.verify.samples import ALL, BottomSample, ModSample
from stream_dedup.verify.texts import TextComparison

Rows = npt.NDArray[np.int64]

#: Pairs compared at a time; bounds the working arrays.
_PAIRS = 512
#: Pairs whose evidence is brought together at a time.
_GATHERED = 1 << 12


class Verifier(Protocol):
    """What all ways to verify have in common.

    Attributes:
        sketch_bytes: width of a sketch; 0 where payloads are the evidence.
        best: score of two equal texts.
        larger_is_nearer: whether a larger score is nearer.
    """

    sketch_bytes: int
    best: float
    larger_is_nearer: bool

    def payloads(
        self, shingles: Shingles, texts: Sequence[bytes], digests: Sequence[bytes]
    ) -> list[bytes]:
        """Make the payloads of texts, none where sketches are the evidence.

        Args:
            shingles: their shingles.
            texts: the normalised texts, in UTF-8.
            digests: their digests.
        """

    def compare(self, left: Evidence, right: Evidence) -> tuple[Scores, npt.NDArray[np.bool_]]:
        """Return the score of each pair of texts, and whether the pair is near."""

    def scores(self, left: Evidence, right: Evidence) -> list[Score]:
        """Return what is published about each pair, a document and its original."""


def compare_rows(
    verifier: Verifier, left: tuple[Evidence, Rows], right: tuple[Evidence, Rows]
) -> tuple[Scores, npt.NDArray[np.bool_]]:
    """Return the score of each pair of rows, and whether the pair is near.

    So many at a time, however many there are: evidence takes a hundred times what a pair does.
    """
    (mine, rows), (theirs, others) = left, right
    scores, near = np.empty(len(rows)), np.empty(len(rows), np.bool_)
    for start in range(0, len(rows), _GATHERED):
        part = slice(start, start + _GATHERED)
        scores[part], near[part] = verifier.compare(
            mine.rows(rows[part]), theirs.rows(others[part])
        )
    return scores, near


class SketchMethod(Protocol):
    """What is asked of a fingerprint method here."""

    sketch_bytes: int

    def compare(
        self, left: npt.NDArray[np.uint8], right: npt.NDArray[np.uint8]
    ) -> tuple[Scores, npt.NDArray[np.bool_]]:
        """Return one score of each pair of sketches, and whether the pair is near."""

    def scores(self, left: npt.NDArray[np.uint8], right: npt.NDArray[np.uint8]) -> list[Score]:
        """Return what is published about each pair of sketches."""


class SketchVerifier:
    """Compares sketches as the fingerprint method does."""

    def __init__(self, method: SketchMethod, *, by_hamming: bool) -> None:
        """Compare as the method does, by resemblance or by Hamming distance."""
        self.sketch_bytes = method.sketch_bytes
        self.best = 0.0 if by_hamming else 1.0
        self.larger_is_nearer = not by_hamming
        self._method = method

    def payloads(
        self,
        shingles: Shingles,  # noqa: ARG002 - the sketches are made with the fingerprints
        texts: Sequence[bytes],  # noqa: ARG002
        digests: Sequence[bytes],  # noqa: ARG002
    ) -> list[bytes]:
        """Make none."""
        return []

    def compare(self, left: Evidence, right: Evidence) -> tuple[Scores, npt.NDArray[np.bool_]]:
        """See ``Verifier.compare``."""
        return self._method.compare(left.sketches, right.sketches)

    def scores(self, left: Evidence, right: Evidence) -> list[Score]:
        """See ``Verifier.scores``."""
        return self._method.scores(left.sketches, right.sketches)


class _Sample(Protocol):
    def pack(self, hashes: Hashes) -> bytes | None: ...

    def sizes(self, lefts: Sequence[bytes], rights: Sequence[bytes]) -> Sizes: ...


#: How the distinct shingles of a text are kept.
SAMPLES: dict[VerifyBy, Callable[[], _Sample]] = {
    VerifyBy.BOTTOM: BottomSample,
    VerifyBy.MOD: ModSample,
    VerifyBy.BLOOM: BloomFilter,
    VerifyBy.SHINGLES: lambda: ModSample(ALL),
}


class _Comparison(Protocol):
    def pack(self, hashes: Hashes, text: bytes) -> bytes | None: ...

    def scores(self, lefts: Sequence[bytes], rights: Sequence[bytes]) -> Scores: ...


class _SetComparison:
    """Compares texts as sets of shingles."""

    def __init__(self, measure: Measure, sample: _Sample) -> None:
        self._measure = measure
        self._sample = sample

    def pack(self, hashes: Hashes, text: bytes) -> bytes | None:  # noqa: ARG002
        return self._sample.pack(np.unique(hashes))

    def scores(self, lefts: Sequence[bytes], rights: Sequence[bytes]) -> Scores:
        return score(self._measure, self._sample.sizes(lefts, rights))


class PayloadVerifier:
    """Compares payloads, by the measure of the settings."""

    sketch_bytes = 0
    best = 1.0
    larger_is_nearer = True

    def __init__(self, settings: Settings, near_from: float) -> None:
        """Verify as the settings say, near from this value of the measure on."""
        self._near_from = near_from
        self._says_contained = settings.measure is Measure.CONTAINMENT
        self._comparison: _Comparison
        if settings.verify_by is VerifyBy.TEXT:
            self._comparison = TextComparison(settings.measure, near_from)
        else:
            self._comparison = _SetComparison(settings.measure, SAMPLES[settings.verify_by]())

    def payloads(
        self, shingles: Shingles, texts: Sequence[bytes], digests: Sequence[bytes]
    ) -> list[bytes]:
        """See ``Verifier.payloads``."""
        bounds = shingles.starts.tolist()
        payloads = []
        for start, end, text, digest in zip(bounds, bounds[1:], texts, digests, strict=False):
            packed = None
            if end > start:
                packed = self._comparison.pack(shingles.hashes[start:end], text)
            payloads.append(opaque(digest) if packed is None else packed)
        return payloads

    def compare(self, left: Evidence, right: Evidence) -> tuple[Scores, npt.NDArray[np.bool_]]:
        """See ``Verifier.compare``."""
        lefts, rights = left.payloads, right.payloads
        scores = np.zeros(len(lefts))
        for start in range(0, len(lefts), _PAIRS):
            part = slice(start, start + _PAIRS)
            scores[part] = self._scores(lefts[part], rights[part])
        return scores, scores >= self._near_from

    def scores(self, left: Evidence, right: Evidence) -> list[Score]:
        """See ``Verifier.scores``."""
        values = self.compare(left, right)[0].tolist()
        sides: list[Side | None] = [None] * len(values)
        if self._says_contained and values:
            smaller = counts(left.payloads) <= counts(right.payloads)
            sides = [Side.DOCUMENT if one else Side.ORIGINAL for one in smaller.tolist()]
        return [
            Score(round(value, 4), contained=side)
            for value, side in zip(values, sides, strict=True)
        ]

    def _scores(self, lefts: Sequence[bytes], rights: Sequence[bytes]) -> Scores:
        """Compare some pairs; equal evidence is that of equal texts, as far as it can tell."""
        pairs = list(zip(lefts, rights, strict=True))
        scores = np.array([left == right for left, right in pairs], np.float64)
        speaks = (counts(lefts) > 0) & (counts(rights) > 0)
        rows = np.flatnonzero(speaks & (scores == 0.0)).tolist()
        if rows:
            scores[rows] = self._comparison.scores(
                [lefts[row] for row in rows], [rights[row] for row in rows]
            )
        return scores
