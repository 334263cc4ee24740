"""The distinct shingles of every document, the same shingles that the pipeline fingerprints."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.runs import begins_of_runs
from stream_dedup.text.shingles import Shingles

Rows = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]

#: Texts that are shingled together.
_TEXTS = 512


class ShingleSets(NamedTuple):
    """Shingle sets as one array. Shingles are numbered from the rarest to the most frequent.

    A text without a token can only equal another: it has one element, made from its digest. A text
    with nothing left after normalisation has none.

    Attributes:
        shingles: (elements,) int32 shingle numbers, ascending within each document.
        starts: (documents + 1,) int64; document i has ``shingles[starts[i]:starts[i + 1]]``.
        vocabulary: number of different shingles.
        digests: of each normalised text, 16 bytes; equal for equal texts.
    """

    shingles: npt.NDArray[np.int32]
    starts: Rows
    vocabulary: int
    digests: list[bytes]

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self.starts) - 1

    @property
    def sizes(self) -> Rows:
        """(documents,) int64 distinct shingles of each."""
        return np.diff(self.starts)


def shingle_sets(
    fingerprinter: Fingerprinter, texts: Sequence[str], origins: Sequence[str] | None = None
) -> ShingleSets:
    """Return the sets of texts, cleaned first, under a fingerprinter's settings.

    Takes about 20 bytes for a distinct shingle of a document while it works, 4 afterwards.
    """
    hashes, counts, digests = [], [], []
    for first in range(0, len(texts), _TEXTS):
        part = texts[first : first + _TEXTS]
        sources = None if origins is None else origins[first : first + _TEXTS]
        prints = fingerprinter.fingerprint(part, sources)
        distinct, sizes = _distinct(fingerprinter.shingles(part, sources))
        alone = np.flatnonzero((sizes == 0) & ~prints.empty)
        digests += prints.digests
        own = [np.frombuffer(prints.digests[text][:8], "<u8") for text in alone.tolist()]
        hashes.append(np.insert(distinct, np.cumsum(sizes)[alone], np.array(own).reshape(-1)))
        sizes[alone] = 1
        counts.append(sizes)
    starts = np.concatenate([[0], np.cumsum(np.concatenate([np.zeros(0, np.int64), *counts]))])
    numbers, vocabulary = _by_rarity(np.concatenate([np.zeros(0, np.uint64), *hashes]))
    documents = np.repeat(np.arange(len(starts) - 1, dtype=np.int64), np.diff(starts))
    packed = np.sort((documents << 32) | numbers)
    return ShingleSets((packed & 0xFFFFFFFF).astype(np.int32), starts, vocabulary, digests)


def _distinct(shingles: Shingles) -> tuple[npt.NDArray[np.uint64], Rows]:
    """Return the distinct hashes of each text, texts in order, and how many each has."""
    texts = np.repeat(np.arange(len(shingles.starts) - 1), np.diff(shingles.starts))
    order = np.lexsort((shingles.hashes, texts))
    hashes, texts = shingles.hashes[order], texts[order]
    new = begins_of_runs(hashes, texts)
    return hashes[new], np.bincount(texts[new], minlength=len(shingles.starts) - 1)


def _by_rarity(hashes: npt.NDArray[np.uint64]) -> tuple[Rows, int]:
    """Number the hashes by how many documents have them, the rarest first."""
    different, inverse, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    ranks = np.empty(len(different), np.int64)
    ranks[np.argsort(counts, kind="stable")] = np.arange(len(different))
    return ranks[inverse], len(different)


def first_equals(sets: ShingleSets) -> Rows:
    """Return, for each document, the first one with the same set; -1 where the set is empty."""
    firsts: dict[bytes, int] = {}
    leaders = np.full(len(sets), -1, np.int64)
    for document, (start, stop) in enumerate(pairwise(sets.starts.tolist())):
        if stop > start:
            name = xxhash.xxh3_128_digest(sets.shingles[start:stop].tobytes())
            leaders[document] = firsts.setdefault(name, document)
    return leaders


def select(sets: ShingleSets, documents: Rows) -> ShingleSets:
    """Return the sets of some documents, in that order; shingles keep their numbers."""
    sizes = sets.sizes[documents]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    shingles = sets.shingles[ranges(sets.starts[documents], sizes)]
    digests = [sets.digests[document] for document in documents.tolist()]
    return ShingleSets(shingles, starts, sets.vocabulary, digests)


def ranges(starts: Rows, counts: Rows) -> Rows:
    """Return ``start, start + 1, ...``, ``count`` numbers for each start, one after another."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts - (ends - counts), counts) + np.arange(total)


def resemblances(sets: ShingleSets, left: Rows, right: Rows) -> Values:
    """Return the exact resemblance of pairs of documents, shared / all distinct shingles.

    Broder 1997, "On the resemblance and containment of documents", section 2. A pair with an empty
    set has 0. Pairs are taken together by their ``right`` document, whose shingles are marked in an
    array; so repeating it is cheap.
    """
    order = np.argsort(right, kind="stable")
    shared = np.zeros(len(left), np.int64)
    shared[order] = _overlaps(sets, left[order], right[order])
    sizes = sets.sizes
    exact: Values = shared / np.maximum(sizes[left] + sizes[right] - shared, 1)
    return exact


def _overlaps(sets: ShingleSets, left: Rows, right: Rows) -> Rows:
    """Return how many shingles the documents of each pair share; ``right`` is sorted."""
    shared = np.zeros(len(left), np.int64)
    marked = np.zeros(sets.vocabulary, np.uint8)
    sizes = sets.sizes
    filled = (sizes[left] > 0) & (sizes[right] > 0)
    left, right, at = left[filled], right[filled], np.flatnonzero(filled)
    bounds = np.flatnonzero(np.diff(right, prepend=-1, append=-1)).tolist()
    for first, stop in pairwise(bounds):
        start, end = sets.starts[right[first] : right[first] + 2].tolist()
        own = sets.shingles[start:end]
        others = left[first:stop]
        lengths = sizes[others]
        marked[own] = 1
        hits = marked[sets.shingles[ranges(sets.starts[others], lengths)]]
        marked[own] = 0
        firsts = np.cumsum(lengths) - lengths
        shared[at[first:stop]] = np.add.reduceat(hits, firsts, dtype=np.int64)
    return shared
