"""What goes wrong, who it hits and for how long, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tests.campaign.faults import KINDS
from tests.campaign.faults.base import Lane

#: Seconds of rest in a lane after all is well again.
_REST = (0.5, 2.5)


class Planned(NamedTuple):
    """A fault to come.

    Attributes:
        kind: its name.
        lane: what it hits.
        share: from 0 to below 1; says whom it hits.
        seconds: how long it lasts.
        rest: seconds from the healing of the one before to its begin.
    """

    kind: str
    lane: Lane
    share: float
    seconds: float
    rest: float

    def __str__(self) -> str:
        return (
            f"{self.lane:8} {self.kind:26} share {self.share:.3f}, lasts {self.seconds:5.1f} s, "
            f"after {self.rest:.1f} s"
        )


def draw(
    seed: int, faults: int, kinds: Iterable[str] = KINDS, *, long: bool = False
) -> list[Planned]:
    """Draw a plan in which each kind comes about equally often, in an order without a pattern.

    Args:
        seed: the same seed gives the same plan.
        faults: how many.
        kinds: names of those to choose from.
        long: whether it may last as long as in a long campaign.
    """
    rng = random.Random(seed)
    names = _shuffled(rng, list(kinds))
    return [_planned(rng, next(names), long=long) for _ in range(faults)]


def _shuffled(rng: random.Random, names: list[str]) -> Iterator[str]:
    while True:
        yield from rng.sample(names, len(names))


def _planned(rng: random.Random, name: str, *, long: bool) -> Planned:
    kind = KINDS[name]
    span = (kind.lasts_long or kind.lasts) if long else kind.lasts
    seconds = round(rng.uniform(*span), 1)
    return Planned(name, kind.lane, rng.random(), seconds, round(rng.uniform(*_REST), 1))
