"""Bands of a MinHash signature: how many, and of how many values each."""

from __future__ import annotations

from typing import NamedTuple

from stream_dedup.errors import SettingsError


class BandDesign(NamedTuple):
    """A band design: ``bands`` tables, each keyed by ``rows`` signature values."""

    bands: int
    rows: int


def find_probability(resemblance: float, design: BandDesign) -> float:
    """Return the probability that two documents of this resemblance share a table key.

    1 - (1 - J^r)^b (Leskovec, Rajaraman, Ullman, Mining of Massive Datasets, section 3.4.2).
    """
    return float(1.0 - (1.0 - resemblance**design.rows) ** design.bands)


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
