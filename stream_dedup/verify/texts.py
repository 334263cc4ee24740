"""Measures of two texts as sequences of characters, computed by RapidFuzz.

    lcs    length of the longest common subsequence / length of the longer text
    edit   1 - Levenshtein distance / length of the longer text       (Levenshtein 1966)

The normalised texts are compared, the first ``CHARACTERS`` of each. RapidFuzz works on 64 cells of
the matrix at a time (Hyyrö 2003, 2004) and on a band of it only once a threshold is given, so the
longest texts take one or two milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import zstandard
from rapidfuzz.distance import LCSseq, Levenshtein

from stream_dedup.text.shingles import Hashes
from stream_dedup.types import Measure
from stream_dedup.verify.evidence import HEAD, Scores

#: Characters of a text that are kept and compared.
CHARACTERS = 1 << 13
#: UTF-8 takes at most so many bytes for a character.
_WIDEST = 4

_SIMILARITIES: dict[Measure, Callable[..., float]] = {
    Measure.LCS: LCSseq.normalized_similarity,
    Measure.EDIT: Levenshtein.normalized_similarity,
}


class TextComparison:
    """Keeps normalised texts, compressed, and compares them as they are."""

    def __init__(self, measure: Measure, near_from: float) -> None:
        """Compare by ``measure``; what is below ``near_from`` counts as 0, which is faster."""
        self._similarity = _SIMILARITIES[measure]
        self._near_from = near_from
        self._compress = zstandard.ZstdCompressor(level=3).compress
        self._decompress = zstandard.ZstdDecompressor().decompress

    def pack(self, hashes: Hashes, text: bytes) -> bytes:  # noqa: ARG002
        """Return the payload of a normalised text in UTF-8."""
        kept = text[: _WIDEST * CHARACTERS].decode(errors="ignore")[:CHARACTERS]
        return HEAD.pack(len(kept), 0) + self._compress(kept.encode())

    def scores(self, lefts: Sequence[bytes], rights: Sequence[bytes]) -> Scores:
        """Return the measure of each pair."""
        texts: dict[bytes, str] = {}
        for payload in (*lefts, *rights):
            if payload not in texts:
                texts[payload] = self._unpack(payload)
        similarity, cutoff = self._similarity, self._near_from
        return np.array(
            [
                similarity(texts[left], texts[right], score_cutoff=cutoff)
                for left, right in zip(lefts, rights, strict=True)
            ],
            np.float64,
        )

    def _unpack(self, payload: bytes) -> str:
        return self._decompress(payload[HEAD.size :], _WIDEST * CHARACTERS).decode()
