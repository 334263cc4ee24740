"""What every fault has in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import StrEnum
from typing import ClassVar, NamedTuple

from tests.campaign.fleet import Fleet


class Lane(StrEnum):
    """What a fault hits. Each has one fault at a time: two may be one too many for any promise."""

    WORKERS = "workers"
    KAFKA = "kafka"
    REDIS = "redis"


class Span(NamedTuple):
    """Shortest and longest time, s."""

    shortest: float
    longest: float


class Fault(ABC):
    """Something goes wrong, for a while.

    Attributes:
        hits: who it has hit, when it has begun.
    """

    #: What it is called in the plan and in the tally.
    name: ClassVar[str]
    lane: ClassVar[Lane]
    #: How long it lasts. Two zeros: it is over when it has begun.
    lasts: ClassVar[Span] = Span(0, 0)
    #: The same in a long campaign, where it differs.
    lasts_long: ClassVar[Span | None] = None

    def __init__(self, fleet: Fleet, share: float) -> None:
        """Describe it.

        Args:
            fleet: what is broken.
            share: from 0 to below 1; says which of those it may hit.
        """
        self.fleet = fleet
        self.share = share
        self.hits = ""

    @abstractmethod
    def begin(self) -> None:
        """Make it go wrong."""

    def is_done(self) -> bool:
        """Whether it may end, when its time is over; what takes steps goes on by one."""
        return True

    def end(self) -> None:  # noqa: B027 - many are over when they have begun
        """Take the cause away."""

    def is_healed(self) -> bool:
        """Whether what was hit is as it was, so that the next fault may come."""
        return self.fleet.is_whole(self.lane)
