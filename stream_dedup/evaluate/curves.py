"""What the pictures show, as numbers: the S-curve and the similarity histogram."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stream_dedup.evaluate.documents import Corpus
from stream_dedup.evaluate.join import Pairs
from stream_dedup.evaluate.measures import wilson
from stream_dedup.evaluate.sets import Rows, Values
from stream_dedup.evaluate.truth import Flags
from stream_dedup.fingerprint.classic import ClassicMinHash
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.fingerprint.minhash import MinHash
from stream_dedup.tables.bands import BandDesign, find_probability

#: Width of a bin of resemblance.
BIN = 0.025
_PAIRS = 1 << 16


class SCurve(NamedTuple):
    """Share of pairs that share a table key, by exact resemblance.

    Attributes:
        resemblance: (bins,) mean resemblance of the pairs of each bin.
        measured: (bins,) share of them that share a key.
        low: (bins,) lower end of its Wilson interval.
        high: (bins,) upper end.
        pairs: (bins,) pairs in each.
        design: the band design; None where tables are not, or not only, bands.
    """

    resemblance: Values
    measured: Values
    low: Values
    high: Values
    pairs: Rows
    design: BandDesign | None

    def theory(self, resemblance: Values) -> Values | None:
        """Return 1 - (1 - J^r)^b at some resemblances; None without a band design."""
        design = self.design
        if design is None:
            return None
        return np.array([find_probability(one, design) for one in resemblance.tolist()])


class Histogram(NamedTuple):
    """Pairs by exact resemblance.

    Attributes:
        edges: (bins + 1,) bounds of the bins.
        near: (bins,) pairs that the truth calls duplicates, or the decisions joined.
        other: (bins,) the others.
    """

    edges: Values
    near: Rows
    other: Rows


def s_curve(
    fingerprinter: Fingerprinter, corpus: Corpus, pairs: Pairs, confidence: float
) -> SCurve:
    """Measure which pairs share a table key.

    Args:
        fingerprinter: makes the keys.
        corpus: the documents.
        pairs: all pairs of at least some low resemblance.
        confidence: of the intervals.
    """
    shared = _share_key(fingerprinter, corpus, pairs)
    place = np.minimum(_bin(pairs.resemblance), round(1 / BIN) - 1)
    counts = np.bincount(place)
    bins = np.flatnonzero(counts)
    found = np.bincount(place, weights=shared)[bins]
    counts = counts[bins]
    means = np.bincount(place, weights=pairs.resemblance)[bins] / counts
    bounds = [
        wilson(int(hits), int(count), confidence) or (0.0, 1.0)
        for hits, count in zip(found, counts, strict=True)
    ]
    low, high = np.array(bounds, np.float64).reshape(-1, 2).T
    method = fingerprinter.method
    design = method.design if isinstance(method, MinHash | ClassicMinHash) else None
    return SCurve(means, found / counts, low, high, counts, design)


def _share_key(fingerprinter: Fingerprinter, corpus: Corpus, pairs: Pairs) -> Flags:
    documents, ends = np.unique([pairs.earlier, pairs.later], return_inverse=True)
    chosen = corpus.take(documents)
    keys = fingerprinter.fingerprint(chosen.texts, chosen.origins).keys
    left, right = ends.reshape(2, -1)
    shared = np.zeros(len(left), np.bool_)
    for first in range(0, len(left), _PAIRS):
        part = slice(first, first + _PAIRS)
        shared[part] = (keys[left[part]] == keys[right[part]]).any(axis=1)
    return shared


def histogram(pairs: Pairs, groups: Rows) -> Histogram:
    """Count pairs by resemblance, those within one group and the others.

    Args:
        pairs: all pairs of at least some low resemblance.
        groups: (documents,) group of each document.
    """
    first = int(_bin(np.array([pairs.threshold]))[0])
    edges: Values = np.arange(first, round(1 / BIN) + 1).astype(np.float64) * BIN
    together = groups[pairs.earlier] == groups[pairs.later]
    place = _bin(pairs.resemblance) - first
    count = len(edges) - 1
    near, other = (np.bincount(place[which], minlength=count) for which in (together, ~together))
    return Histogram(edges, near, other)


def _bin(resemblance: Values) -> Rows:
    """Return the bin of each resemblance; a bin's lower bound is inside."""
    numbers: Rows = np.floor(resemblance / BIN + 1e-9).astype(np.int64)
    return numbers
