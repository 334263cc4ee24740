"""What the labels say so far: precision and recall, at every threshold, and agreement."""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import numpy as np

from stream_dedup.review.agreement import Agreement, agreement
from stream_dedup.review.estimates import AtThreshold, Count, estimate, sizes
from stream_dedup.review.label_types import Label, LastDraw
from stream_dedup.review.labels import Labels
from stream_dedup.review.strata import Scale


class Level(NamedTuple):
    """A stratum, with its size.

    Attributes:
        name: its name.
        known: what is known of it.
        size: pairs that it stands for.
    """

    name: str
    known: Count
    size: float


class Labeller(NamedTuple):
    """Who labels.

    Attributes:
        name: their name.
        duplicates: pairs that they called duplicates.
        others: pairs that they did not.
        unsure: pairs of which they were unsure.
    """

    name: str
    duplicates: int
    others: int
    unsure: int

    @property
    def labels(self) -> int:
        """All their labels."""
        return self.duplicates + self.others + self.unsure


class Between(NamedTuple):
    """Two labellers."""

    first: str
    second: str
    agreement: Agreement


class Summary(NamedTuple):
    """What the labels say.

    Attributes:
        levels: the strata that have pairs.
        now: what the threshold in force gives; None where no pair was found.
        thresholds: what each threshold gives, the lowest first.
        labellers: who labels, by name.
        agreements: any two labellers who have labelled one pair.
        labelled: pairs with a label, duplicate or not.
    """

    levels: list[Level]
    now: AtThreshold | None
    thresholds: list[AtThreshold]
    labellers: list[Labeller]
    agreements: list[Between]
    labelled: int

    @property
    def waiting(self) -> list[Level]:
        """The strata that have no label yet: until they have, the estimates say little."""
        return [level for level in self.levels if not level.known.labelled]


def summarize(labels: Labels, draw: LastDraw, scale: Scale) -> Summary:
    """Say what the labels of a configuration say."""
    named = labels.counts(draw, scale)
    counts = [count for _, count in named]
    levels = [
        Level(name, count, size)
        for (name, count), size in zip(named, sizes(counts, draw.asked).tolist(), strict=True)
    ]
    lows = sorted({*scale.edges, scale.near_from})
    found = estimate(counts, draw.asked, scale.near_from, lows) if counts else []
    given = labels.given(draw.configuration)
    tables = labels.tables(draw.configuration)
    none = np.zeros((len(Label), len(Label)), np.int64)
    between = [
        Between(first, second, agreement(tables.get((first, second), none)))
        for first, second in combinations(sorted(given), 2)
    ]
    return Summary(
        levels,
        next((one for one in found if one.threshold == scale.near_from), None),
        found,
        [
            Labeller(name, by[Label.DUPLICATE], by[Label.NOT], by[Label.UNSURE])
            for name, by in given.items()
        ],
        [one for one in between if one.agreement.pairs],
        sum(count.labelled for count in counts),
    )
