"""Bands of a MinHash signature: how many, and of how many values each."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stream_dedup.errors import SettingsError

#: Points and pieces of an integral; the polynomials are smooth, so this is exact to 1e-9.
_NODES, _PIECES = 16, 64


class BandDesign(NamedTuple):
    """A band design: ``bands`` tables, each keyed by ``rows`` signature values."""

    bands: int
    rows: int


def find_probability(resemblance: float, design: BandDesign) -> float:
    """Return the probability that two documents of this resemblance share a table key.

    1 - (1 - J^r)^b (Leskovec, Rajaraman, Ullman, Mining of Massive Datasets, section 3.4.2).
    """
    return float(1.0 - (1.0 - resemblance**design.rows) ** design.bands)


class Rates(NamedTuple):
    """How often a band design errs about a threshold t, before verification.

    The two areas are those that datasketch's MinHashLSH weighs: over all resemblances, as if each
    were as frequent as another. The shares are the same, of the pairs on that side of t.

    Attributes:
        missed_at: share of the pairs exactly at t that share no table key.
        missed_area: integral of 1 - p(J) from t to 1, the area of false negatives.
        missed_share: that over 1 - t; ``missed_at`` if t is 1.
        false_area: integral of p(J) from 0 to t, the area of false positives. Verification takes
            these out again: they cost time, not errors.
        false_share: that over t.
    """

    missed_at: float
    missed_area: float
    missed_share: float
    false_area: float
    false_share: float


def error_rates(threshold: float, design: BandDesign) -> Rates:
    """Return the false-negative and false-positive rates (Leskovec et al., section 3.4)."""
    missed_at = 1.0 - find_probability(threshold, design)
    below = _area(0.0, threshold, design)
    missed = max(0.0, 1.0 - threshold - _area(threshold, 1.0, design))
    share = missed / (1.0 - threshold) if threshold < 1.0 else missed_at
    return Rates(missed_at, missed, share, below, below / threshold)


def _area(low: float, high: float, design: BandDesign) -> float:
    """Integrate the probability of being found (Gauss and Legendre, in equal pieces)."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    edges = np.linspace(low, high, _PIECES + 1)
    half = (edges[1:] - edges[:-1]) / 2
    at = edges[:-1, None] + half[:, None] * (nodes + 1)
    found = 1.0 - (1.0 - at**design.rows) ** design.bands
    return float((found * weights * half[:, None]).sum())


def design_bands(threshold: float, recall: float, values: int) -> BandDesign:
    """Return the most selective design that still finds ``recall`` of the pairs at ``threshold``.

    The longest bands give the fewest candidates, so take the largest number of rows for which some
    number of bands fits into ``values``, and then the fewest bands, since each costs memory and a
    probe.

    Raises:
        SettingsError: no design fits; lower the recall or raise the threshold.
    """
    for rows in range(values, 0, -1):
        for count in range(1, values // rows + 1):
            if find_probability(threshold, BandDesign(count, rows)) >= recall:
                return BandDesign(count, rows)
    msg = (
        f"No band design over {values} MinHash values finds {recall:.2%} of the pairs at "
        f"resemblance {threshold}. Lower recall or raise threshold."
    )
    raise SettingsError(msg)
