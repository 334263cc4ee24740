"""When an original expires: watermark, lateness, renewal. Pure; the same for every index.

Matching goes by event time alone (``Matcher.within_window``) and never by what is here, so a sweep
that comes late, or never, changes no decision about a document that is itself in time.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from stream_dedup.settings import Settings

Times = npt.NDArray[np.float64]

#: The watermark of an index that has seen no event time.
NEVER = float("-inf")


class Swept(NamedTuple):
    """What a sweep removed.

    Attributes:
        expired: originals whose time was over.
        claims: claims that never became originals, or were forgotten (Redis only).
        entries: entries of all of these in tables.
        originals: originals that stay.
    """

    expired: int = 0
    claims: int = 0
    entries: int = 0
    originals: int = 0


class Horizon(NamedTuple):
    """What the settings say of time, all in seconds.

    Attributes:
        window: see the setting; None: nothing expires.
        lateness: how long after its window an original stays, by the watermark.
        max_future: how far the watermark may be ahead of the clock.
    """

    window: float | None
    lateness: float
    max_future: float

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return what these settings say."""
        return cls(settings.window, settings.lateness, settings.max_future)

    def watermark(self, times: Times, now: float) -> float:
        """Return the watermark after these event times: the largest, held back by the clock.

        A document from the future, by a wrong clock, must not make everything else expire.
        """
        return min(float(times.max(initial=NEVER)), now + self.max_future)

    def expires_before(self, watermark: float) -> float:
        """Return the event time (or time of renewal) before which an original has expired."""
        return NEVER if self.window is None else watermark - self.window - self.lateness

    def late(self, times: Times, watermark: float) -> int:
        """Count the documents that are later than ``lateness``: some originals may have gone."""
        if self.window is None:
            return 0
        return int(np.count_nonzero(times < watermark - self.lateness))

    def ahead(self, times: Times, now: float) -> int:
        """Count the documents that are further ahead of the clock than ``max_future``."""
        if self.window is None:
            return 0
        return int(np.count_nonzero(times > now + self.max_future))
