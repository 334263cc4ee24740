"""Tokens and shingles of a whole batch, as 64-bit keyed hashes.

A token is a run of word characters, or one character of a script written without spaces. A word
shingle is n neighbouring tokens; a character shingle is n neighbouring characters of the normalised
text. A text with fewer tokens (characters) than n has one shingle made of all it has, so short
texts match only when they are equal; a text without tokens has none.

By default word shingles are without punctuation and character shingles with it. Word shingles take
it in where every character that is neither of a word nor white space is a token of its own;
character shingles lose it where ``normalize.drop_punctuation`` came before. Shingles over such a
canonical sequence of tokens are those of Broder, Glassman, Manasse and Zweig 1997, section 2.

Runs of characters are hashed with a polynomial modulo 2^64, whose prefix sums give every run's hash
in one pass (Karp and Rabin 1987); a finaliser then spreads the bits.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stream_dedup.text.characters import SEPARATOR, SINGLE, SPACE, WORD, ascii_classes, characters
from stream_dedup.text.normalize import NormalizedBatch

Hashes = npt.NDArray[np.uint64]
Offsets = npt.NDArray[np.int64]

_MULTIPLIER = np.uint64(0xD6E8FEB86659FD93)
_SHIFT = np.uint64(32)


class HashKeys(NamedTuple):
    """Secret numbers that key the hashes.

    Attributes:
        base: odd base of the polynomial.
        finish: xored in before the finaliser.
        places: odd factors, one for each place in a shingle (at least 8).
    """

    base: int
    finish: np.uint64
    places: npt.NDArray[np.uint64]


class Shingles(NamedTuple):
    """Shingles of a batch, in text order, repeats included.

    Attributes:
        hashes: (shingles,) uint64.
        starts: (texts + 1,) int64; text i has ``hashes[starts[i]:starts[i + 1]]``.
    """

    hashes: Hashes
    starts: Offsets


def finalize(hashes: Hashes, key: np.uint64) -> Hashes:
    """Spread the bits of each hash over all 64 (xor-shift-multiply, twice), keyed."""
    mixed = hashes ^ key
    mixed ^= mixed >> _SHIFT
    mixed *= _MULTIPLIER
    mixed ^= mixed >> _SHIFT
    mixed *= _MULTIPLIER
    mixed ^= mixed >> _SHIFT
    return mixed


@lru_cache(maxsize=8)
def _powers(base: int, size: int) -> tuple[Hashes, Hashes]:
    """Return base^i and base^-i modulo 2^64 for i < size."""
    columns = []
    for factor in (base, pow(base, -1, 1 << 64)):
        powers = np.full(size, factor, np.uint64)
        powers[0] = 1
        columns.append(np.cumprod(powers, dtype=np.uint64))
    return columns[0], columns[1]


def _run_hashes(
    codes: npt.NDArray[np.uint8] | npt.NDArray[np.uint32],
    firsts: Offsets,
    lasts: Offsets,
    base: int,
) -> Hashes:
    """Hash each run ``codes[first:last]``: sum of (code + 1) * base^i, i from the run's start."""
    size = 1 << max(16, len(codes).bit_length())
    powers, inverses = _powers(base, size)
    sums = np.zeros(len(codes) + 1, np.uint64)
    weighted = (codes + codes.dtype.type(1)) * powers[: len(codes)]
    np.cumsum(weighted, out=sums[1:])
    return (sums[lasts] - sums[firsts]) * inverses[firsts]


@cache
def _classes(*, ascii_only: bool, punctuation: bool) -> npt.NDArray[np.uint8]:
    """Return the class of each code point; punctuation, if it counts, is made of single tokens."""
    table = ascii_classes() if ascii_only else characters().classes
    if punctuation:
        table = np.where(table == SEPARATOR, np.uint8(SINGLE), table)
        # The only white space that a normalised text has, and what stands between two texts.
        table[SPACE] = SEPARATOR
    return table


def _token_bounds(batch: NormalizedBatch, *, punctuation: bool) -> tuple[Offsets, Offsets]:
    """Return where each token begins and ends in the batch."""
    ascii_only = batch.codes.dtype == np.uint8
    classes = np.zeros(len(batch.codes) + 2, np.uint8)
    table = _classes(ascii_only=ascii_only, punctuation=punctuation)
    np.take(table, batch.codes, out=classes[1:-1])
    if ascii_only and not punctuation:
        edges = np.flatnonzero(classes[1:] != classes[:-1])
        return edges[::2], edges[1::2]
    same_run = (classes[1:] == classes[:-1]) & (classes[1:] != SINGLE)
    begins = np.flatnonzero(~same_run[:-1] & (classes[1:-1] >= WORD))
    finishes = np.flatnonzero(~same_run[1:] & (classes[1:-1] >= WORD)) + 1
    return begins, finishes


def _keep_inside(counts: Offsets, size: int) -> tuple[npt.NDArray[np.bool_], Offsets]:
    """Mark the positions at which a shingle of ``size`` begins.

    A text with fewer than ``size`` positions keeps its first.
    """
    ends = np.cumsum(counts)
    firsts = ends - counts
    keep = np.ones(int(ends[-1]) if len(ends) else 0, np.bool_)
    for back in range(1, size):
        inside = ends - back
        keep[inside[inside > firsts]] = False
    kept = np.where(counts > 0, np.maximum(counts - (size - 1), 1), 0)
    return keep, np.concatenate([[0], np.cumsum(kept)])


def word_shingles(
    batch: NormalizedBatch, size: int, keys: HashKeys, *, punctuation: bool = False
) -> Shingles:
    """Shingle every text by ``size`` tokens.

    Args:
        batch: the texts.
        size: tokens in a shingle, at most as many as ``keys.places``.
        keys: keys of the hashes.
        punctuation: whether each character of punctuation (or symbol, or whatever else is neither
            of a word nor white space) is a token as well.
    """
    firsts, lasts = _token_bounds(batch, punctuation=punctuation)
    tokens = finalize(_run_hashes(batch.codes, firsts, lasts, keys.base), keys.finish)
    token_starts = np.append(np.searchsorted(firsts, batch.starts), len(firsts))
    counts = np.diff(token_starts)
    padded = np.concatenate([tokens, np.zeros(size - 1, np.uint64)])
    hashes = np.zeros(len(tokens), np.uint64)
    for place in range(size):
        hashes += padded[place : place + len(tokens)] * keys.places[place]
    for text in np.flatnonzero((counts > 0) & (counts < size)).tolist():
        start, count = int(token_starts[text]), int(counts[text])
        own = tokens[start : start + count] * keys.places[:count]
        hashes[start] = own.sum(dtype=np.uint64)
    keep, starts = _keep_inside(counts, size)
    return Shingles(finalize(hashes[keep], keys.finish), starts)


def char_shingles(batch: NormalizedBatch, size: int, keys: HashKeys) -> Shingles:
    """Shingle every text by ``size`` characters, white space and punctuation included.

    A text without a token has no shingle here either.
    """
    firsts, _ = _token_bounds(batch, punctuation=False)
    tokens = np.diff(np.append(np.searchsorted(firsts, batch.starts), len(firsts)))
    counts = np.where(tokens > 0, batch.ends - batch.starts, 0)
    keep, starts = _keep_inside(counts, size)
    begins = np.repeat(batch.starts - (np.cumsum(counts) - counts), counts) + np.arange(
        counts.sum()
    )
    begins = begins[keep]
    text_ends = np.repeat(batch.ends, np.diff(starts))
    runs = _run_hashes(batch.codes, begins, np.minimum(begins + size, text_ends), keys.base)
    return Shingles(finalize(runs, keys.finish), starts)
