"""The values that labels are made of."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

from stream_dedup.review.estimates import Asked
from stream_dedup.review.pairs import Side


class Label(IntEnum):
    """What a labeller says of a pair."""

    NOT = 0
    DUPLICATE = 1
    UNSURE = 2


class Pair(NamedTuple):
    """A pair as a labeller sees it.

    Attributes:
        id: its number.
        left: the earlier document.
        right: the later one.
        stratum: name of its stratum.
        score: its score.
        taken: whether it is a near duplicate and its original.
    """

    id: int
    left: Side
    right: Side
    stratum: str
    score: float
    taken: bool


class LastDraw(NamedTuple):
    """The newest draw.

    Attributes:
        id: its number.
        at: when it was made, in milliseconds.
        configuration: version of the fingerprint configuration.
        seed: its seed.
        settings: settings that it was made under, by name.
        asked: how many originals were asked about, of how many.
        held: originals that they were held to.
        of: originals that there were to hold them to.
        found: pairs in each stratum, by its name.
    """

    id: int
    at: int
    configuration: str
    seed: int
    settings: dict[str, Any]
    asked: Asked
    held: int
    of: int
    found: dict[str, int]


def consensus(yes: int, no: int) -> int | None:
    """Return 1 or 0, what most say; None where as many say one as the other, or none."""
    return None if yes == no else int(yes > no)
