"""Exact all-pairs resemblance: every pair of documents that resemble each other enough.

A set-similarity join with prefix filtering. When the shingles of every set are sorted in one global
order, two sets whose resemblance is at least t share a shingle within their first
|x| - ceil(t |x|) + 1 (Chaudhuri, Ganti, Kaushik 2006; Bayardo, Ma, Srikant 2007, "Scaling up all
pairs similarity search"). The order is by ascending frequency, so these prefixes hold the rare
shingles, whose lists are short. Sets are visited by size; then the smaller of a pair needs only its
first |x| - ceil(2t / (1 + t) |x|) + 1 shingles in the lists, only sets of size >= t |y| can match
(length filter), and where the shared shingle stands bounds the overlap (positional filter: Xiao,
Wang, Lin, Yu 2008, "Efficient similarity joins for near duplicate detection", PPJoin, section 3).
What is left is verified exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from stream_dedup.evaluate.sets import (
    Rows,
    ShingleSets,
    Values,
    first_equals,
    ranges,
    resemblances,
    select,
)

#: Shared shingles that are looked at together: bounds the memory.
_EVENTS = 1 << 22
#: Keeps products that are integers in truth from being rounded up.
_EPSILON = 1e-9


class Pairs(NamedTuple):
    """Documents that resemble each other. Equal shingle sets are told by their first document.

    Attributes:
        leaders: (documents,) the first document with the same shingle set; -1 for an empty text.
        earlier: (pairs,) documents with different sets, both first of theirs; the earlier one.
        later: (pairs,) the later one. Sorted by (earlier, later).
        resemblance: (pairs,) float64, exact, below 1.
        threshold: pairs of at least this resemblance are here, all of them.
    """

    leaders: Rows
    earlier: Rows
    later: Rows
    resemblance: Values
    threshold: float

    def at_least(self, threshold: float) -> Pairs:
        """Return those of at least a higher resemblance."""
        keep = self.resemblance >= threshold
        return Pairs(
            self.leaders,
            self.earlier[keep],
            self.later[keep],
            self.resemblance[keep],
            max(threshold, self.threshold),
        )


class _Lists(NamedTuple):
    """Inverted lists of the shingles in the prefixes, sorted by (shingle, document).

    Attributes:
        keys: (entries,) shingle << 32 | document.
        places: (entries,) where in its document the shingle stands.
    """

    keys: Rows
    places: Rows


class _Entries(NamedTuple):
    """Documents, and where in each a shingle stands that it shares with another."""

    documents: Rows
    places: Rows


def resembling_pairs(sets: ShingleSets, threshold: float) -> Pairs:
    """Return all pairs of documents whose exact resemblance is at least ``threshold``, above 0.

    Equal sets are collapsed first, so a text that comes 30,000 times takes the work of one. Time
    grows with the number of pairs that share a rare shingle: about a minute for 100,000 news items
    at .5, more where many documents come from one template.
    """
    leaders = first_equals(sets)
    documents = np.flatnonzero(leaders == np.arange(len(sets)))
    # Visited by size; a document's number is its place in this order from here on.
    documents = documents[np.argsort(sets.sizes[documents], kind="stable")]
    sized = select(sets, documents)
    found = [
        (left, right, exact)
        for left, right in _candidates(sized, threshold)
        for exact in [resemblances(sized, left, right)]
    ]
    none = np.zeros(0, np.int64)
    left = documents[np.concatenate([none, *(one[0] for one in found)])]
    right = documents[np.concatenate([none, *(one[1] for one in found)])]
    exact = np.concatenate([np.zeros(0), *(one[2] for one in found)])
    earlier, later = np.minimum(left, right), np.maximum(left, right)
    enough = np.flatnonzero(exact >= threshold)
    order = enough[np.lexsort((later[enough], earlier[enough]))]
    return Pairs(leaders, earlier[order], later[order], exact[order], threshold)


def _prefixes(sets: ShingleSets, share: float, frequent: Rows) -> tuple[Rows, Rows, Rows]:
    """Return (shingle, document, place) of the first |x| - ceil(share |x|) + 1 shingles.

    Shingles before ``frequent`` of a document occur nowhere else and are left out.
    """
    sizes = sets.sizes
    lengths = sizes - np.ceil(share * sizes - _EPSILON).astype(np.int64) + 1
    skipped = np.minimum(frequent, lengths)
    counts = lengths - skipped
    documents = np.repeat(np.arange(len(sets)), counts)
    at = ranges(sets.starts[:-1] + skipped, counts)
    return sets.shingles[at].astype(np.int64), documents, at - sets.starts[documents]


def _candidates(sets: ShingleSets, threshold: float) -> Iterator[tuple[Rows, Rows]]:
    """Yield pairs (smaller, larger) that may be near, each pair once, sorted by the larger."""
    if not len(sets):
        return
    unique = _unique_shingles(sets)
    shingles, documents, places = _prefixes(sets, 2 * threshold / (1 + threshold), unique)
    keys = (shingles << 32) | documents
    order = np.argsort(keys, kind="stable")
    lists = _Lists(keys[order], places[order])
    shingles, documents, places = _prefixes(sets, threshold, unique)
    least = np.ceil(threshold * sets.sizes - _EPSILON).astype(np.int64)
    smallest = np.searchsorted(sets.sizes, least)
    first = np.searchsorted(lists.keys, (shingles << 32) | smallest[documents])
    counts = np.searchsorted(lists.keys, (shingles << 32) | documents) - first
    bounds = np.searchsorted(documents, np.arange(len(sets) + 1))
    events = np.concatenate([[0], np.cumsum(counts)])[bounds]
    low = 0
    while low < len(sets):
        high = max(low + 1, int(np.searchsorted(events, events[low] + _EVENTS, side="right")) - 1)
        rows = np.arange(bounds[low], bounds[high])
        at, repeats = ranges(first[rows], counts[rows]), np.repeat(rows, counts[rows])
        small = _Entries(lists.keys[at] & 0xFFFFFFFF, lists.places[at])
        yield _passing(sets, small, _Entries(documents[repeats], places[repeats]), threshold)
        low = high


def _unique_shingles(sets: ShingleSets) -> Rows:
    """Return how many shingles of each document no other document has.

    A shingle may be in several documents with equal sets, of which one is here, so they are counted
    anew; those before the first that is shared are counted.
    """
    counts = np.bincount(sets.shingles, minlength=sets.vocabulary)
    shared = np.flatnonzero(counts[sets.shingles] > 1)
    nearest = np.append(shared, sets.starts[-1])[np.searchsorted(shared, sets.starts[:-1])]
    before: Rows = np.minimum(nearest, sets.starts[1:]) - sets.starts[:-1]
    return before


def _passing(
    sets: ShingleSets, small: _Entries, large: _Entries, threshold: float
) -> tuple[Rows, Rows]:
    """Keep what passes the positional filter, each pair once.

    The filter is exact for the first shingle that a pair shares; a pair that fails it there fails
    for good, and a pair that passes it there needs no other.
    """
    smaller, larger = sets.sizes[small.documents], sets.sizes[large.documents]
    rest = np.minimum(smaller - small.places, larger - large.places)
    keep = rest >= threshold / (1 + threshold) * (smaller + larger) - _EPSILON
    packed = np.unique((large.documents[keep] << 32) | small.documents[keep])
    return packed & 0xFFFFFFFF, packed >> 32
