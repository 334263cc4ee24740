"""What a metrics endpoint said at one moment, and what changed between two such moments."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from prometheus_client.parser import text_string_to_metric_families

#: What every metric of this program begins with.
PREFIX = "stream_dedup_"

Labels = frozenset[tuple[str, str]]

#: Endings of samples that only go up, until their program starts anew.
_COUNTED = ("_total", "_bucket", "_count", "_sum")


class Scrape(NamedTuple):
    """The samples of one endpoint at one moment.

    Attributes:
        at: seconds since the epoch.
        samples: values by the name without ``stream_dedup_``, then by labels.
    """

    at: float
    samples: Mapping[str, Mapping[Labels, float]]

    @classmethod
    def of(cls, at: float, samples: Iterable[tuple[str, Mapping[str, str], float]]) -> Scrape:
        """Take samples of which each has a name, labels and a value; those of others are left."""
        found: dict[str, dict[Labels, float]] = defaultdict(dict)
        for name, labels, value in samples:
            if name.startswith(PREFIX) and not math.isnan(value):
                found[name.removeprefix(PREFIX)][frozenset(labels.items())] = value
        return cls(at, dict(found))

    @classmethod
    def parse(cls, at: float, text: str) -> Scrape:
        """Read Prometheus' text format.

        Raises:
            ValueError: it is not that.
        """
        families = text_string_to_metric_families(text)
        return cls.of(
            at,
            (
                (sample.name, sample.labels, sample.value)
                for family in families
                for sample in family.samples
            ),
        )

    def is_after_restart(self, before: Scrape) -> bool:
        """Tell whether the program has started anew since: a counter went down."""
        return any(
            value < before.samples.get(name, {}).get(labels, value)
            for name, series in self.samples.items()
            if name.endswith(_COUNTED)
            for labels, value in series.items()
        )


class Quantile(msgspec.Struct, frozen=True):
    """A quantile of a histogram.

    Attributes:
        value: interpolated within a bucket, as Prometheus does.
        is_beyond: it is larger than the largest bound, which ``value`` then is.
    """

    value: float
    is_beyond: bool


class Change:
    """The latest scrape of each endpoint, and one before it where there is one.

    Counters are summed over endpoints. Where a program has started anew, what it counted since is
    its increase. None stands for what no endpoint tells.
    """

    def __init__(self, pairs: Sequence[tuple[Scrape | None, Scrape]]) -> None:
        self._latest = [latest for _, latest in pairs]
        #: Seconds, the samples before and the latest ones of each endpoint that has both.
        self._spans = [
            (
                latest.at - before.at,
                {} if latest.is_after_restart(before) else before.samples,
                latest,
            )
            for before, latest in pairs
            if before is not None and latest.at > before.at
        ]

    @property
    def seconds(self) -> float:
        """Longest time between the two scrapes of an endpoint; 0 without any."""
        return max((seconds for seconds, _, _ in self._spans), default=0.0)

    def series(self, name: str) -> list[tuple[dict[str, str], float]]:
        """Return the latest samples of a metric, with their labels."""
        return [
            (dict(labels), value)
            for scrape in self._latest
            for labels, value in scrape.samples.get(name, {}).items()
        ]

    def sum(self, name: str, **labels: str) -> float | None:
        """Return the sum of the latest samples that have these labels."""
        found = [value for have, value in self.series(name) if labels.items() <= have.items()]
        return sum(found) if found else None

    def largest(self, name: str, **labels: str) -> float | None:
        """Return the largest of the latest samples; what all tell of one thing, as of the index."""
        found = [value for have, value in self.series(name) if labels.items() <= have.items()]
        return max(found, default=None)

    def increase(self, name: str, **labels: str) -> float | None:
        """Return by how much a counter went up."""
        found = [more for _, have, more in self._increases(name) if labels.items() <= have.items()]
        return sum(found) if found else None

    def rate(self, name: str, **labels: str) -> float | None:
        """Return by how much a counter went up in a second."""
        found = [
            more / seconds
            for seconds, have, more in self._increases(name)
            if labels.items() <= have.items()
        ]
        return sum(found) if found else None

    def increases(self, name: str, label: str) -> dict[str, float]:
        """Return by how much a counter went up, by the value of a label."""
        found: dict[str, float] = defaultdict(float)
        for _, labels, more in self._increases(name):
            found[labels.get(label, "")] += more
        return dict(found)

    def slope(self, name: str) -> float | None:
        """Return by how much a gauge grows in a second, summed over its series; may be negative."""
        found = [
            (value - before[name][labels]) / seconds
            for seconds, before, latest in self._spans
            for labels, value in latest.samples.get(name, {}).items()
            if labels in before.get(name, {})
        ]
        return sum(found) if found else None

    def quantile(self, name: str, share: float) -> Quantile | None:
        """Return a quantile of what a histogram observed between the scrapes.

        Args:
            name: of the histogram.
            share: 0.5 for the median.
        """
        counts: dict[float, float] = defaultdict(float)
        for _, labels, more in self._increases(f"{name}_bucket"):
            counts[float(labels["le"])] += more
        return quantile(share, sorted(counts.items()))

    def _increases(self, name: str) -> Iterable[tuple[float, dict[str, str], float]]:
        for seconds, before, latest in self._spans:
            past = before.get(name, {})
            for labels, value in latest.samples.get(name, {}).items():
                yield seconds, dict(labels), value - past.get(labels, 0.0)


def quantile(share: float, buckets: Sequence[tuple[float, float]]) -> Quantile | None:
    """Return a quantile by interpolation within its bucket; None of nothing.

    Args:
        share: 0.5 for the median.
        buckets: upper bounds in order, the last one infinite, with the number of values up to each.
    """
    if not buckets or buckets[-1][1] <= 0:
        return None
    rank = share * buckets[-1][1]
    low = below = 0.0
    for bound, count in buckets:
        if count >= rank and count > below:
            if math.isinf(bound):
                break
            return Quantile(low + (bound - low) * (rank - below) / (count - below), is_beyond=False)
        if not math.isinf(bound):
            low, below = bound, count
    return Quantile(low, is_beyond=True)
