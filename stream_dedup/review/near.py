"""Finds, for some originals, the nearest of the originals before them that was not near enough.

Candidates come from tables that are made for a lower threshold, scores from the fingerprints that
the settings ask for, so that they are the same numbers that decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from stream_dedup.evaluate.sets import Rows, Values, ranges
from stream_dedup.evaluate.sweep import at_point
from stream_dedup.fingerprint.fingerprinter import Fingerprinter, Fingerprints
from stream_dedup.review.strata import Scale
from stream_dedup.settings import Settings
from stream_dedup.verify.verifier import compare_rows

#: Share of the pairs at the floor that the tables find; of nearer ones they find more.
_RECALL = 0.9
#: No table design of use reaches farther down.
_LEAST_THRESHOLD = 0.05


class Texts(NamedTuple):
    """Some documents of the window.

    Attributes:
        rows: (documents,) int64 their rows.
        at: (documents,) int64 their times, in milliseconds.
        texts: their texts.
        sources: what they come from.
    """

    rows: Rows
    at: Rows
    texts: Sequence[str]
    sources: Sequence[str]


class NearestBefore:
    """Originals that are asked about, and the nearest that has come before each so far.

    Attributes:
        rows: (asked,) int64 row of the nearest; -1 where none reaches the floor.
        scores: (asked,) float64 its score.
    """

    def __init__(self, settings: Settings, scale: Scale, asked: Texts) -> None:
        """Make tables of the originals that are asked about.

        Raises:
            SettingsError: a file that the settings name cannot be used.
        """
        self._scale = scale
        self._window = None if settings.window is None else round(settings.window * 1000)
        self._exact = Fingerprinter(settings)
        self._loose = Fingerprinter(at_point(settings, _looser(settings, scale)))
        self._asked = asked
        self._prints = self._exact.fingerprint(asked.texts, asked.sources)
        keys = self._loose.fingerprint(asked.texts, asked.sources).keys
        self._order = np.argsort(keys, axis=0, kind="stable")
        self._keys = np.take_along_axis(keys, self._order, axis=0)
        self.rows = np.full(len(asked.rows), -1, np.int64)
        self.scores = np.full(len(asked.rows), -np.inf)

    def hold(self, others: Texts) -> None:
        """Hold those asked about to some of the originals."""
        prints = self._loose.fingerprint(others.texts, others.sources)
        asked, other = self._candidates(prints)
        before = others.rows[other] < self._asked.rows[asked]
        before &= ~prints.empty[other] & ~self._prints.empty[asked]
        if self._window is not None:
            before &= np.abs(others.at[other] - self._asked.at[asked]) <= self._window
        asked, other = asked[before], other[before]
        if not len(asked):
            return
        scores = self._scores(others, asked, other)
        order = np.lexsort((other, -scores, asked))
        firsts = order[np.unique(asked[order], return_index=True)[1]]
        mine, score = asked[firsts], scores[firsts]
        nearer = (score >= self._scale.floor) & (score > self.scores[mine])
        self.rows[mine[nearer]] = others.rows[other[firsts][nearer]]
        self.scores[mine[nearer]] = score[nearer]

    def _candidates(self, prints: Fingerprints) -> tuple[Rows, Rows]:
        """Return the pairs that share a table key, places of those asked and of the others."""
        packed = []
        for table in range(self._keys.shape[1]):
            column, wanted = self._keys[:, table], prints.keys[:, table]
            first = np.searchsorted(column, wanted, side="left")
            counts = np.searchsorted(column, wanted, side="right") - first
            asked = self._order[ranges(first, counts), table]
            packed.append((asked << 32) | np.repeat(np.arange(len(wanted)), counts))
        found = np.unique(np.concatenate(packed))
        return found >> 32, found & 0xFFFFFFFF

    def _scores(self, others: Texts, asked: Rows, other: Rows) -> Values:
        """Return the scores of pairs, greater for nearer ones."""
        needed, at = np.unique(other, return_inverse=True)
        texts = [others.texts[one] for one in needed.tolist()]
        sources = [others.sources[one] for one in needed.tolist()]
        evidence = self._exact.fingerprint(texts, sources).evidence
        scores, _ = compare_rows(
            self._exact.verifier, (self._prints.evidence, asked), (evidence, at)
        )
        return -scores if self._scale.by_hamming else scores


def _looser(settings: Settings, scale: Scale) -> dict[str, Any]:
    """Return settings whose tables find pairs down to the floor."""
    if scale.by_hamming:
        return {"hamming": round(-scale.floor), "blocks": 0, "inner_blocks": 0}
    return {
        "method": "minhash",
        "minhash": "one-permutation",
        "threshold": max(_LEAST_THRESHOLD, min(scale.floor, settings.threshold)),
        "recall": _RECALL,
        "rows": 0,
        "verify_by": "sketch",
        "measure": "resemblance",
        "verify_threshold": None,
    }
