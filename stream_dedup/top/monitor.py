"""What the view remembers between two looks."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from stream_dedup.top.figures import Figures, figures_of
from stream_dedup.top.scrape import Change, Scrape
from stream_dedup.top.sources import Source

#: Points of the curve that are kept.
_POINTS = 1000


class View(NamedTuple):
    """What there is to show.

    Attributes:
        figures: of all endpoints that answer.
        curve: documents a second, oldest first.
        answering: endpoints that answer.
        problems: what is wrong with the others, by their names.
    """

    figures: Figures
    curve: list[float]
    answering: list[str]
    problems: dict[str, str]


class Monitor:
    """Looks at a source again and again, and computes figures over its window."""

    def __init__(self, source: Source) -> None:
        self._source = source
        #: Of each endpoint the scrapes within the window, and one from before it at most.
        self._scrapes: dict[str, deque[Scrape]] = {}
        self._curve: deque[float] = deque(maxlen=_POINTS)

    def look(self) -> View:
        """Look, and compute."""
        look = self._source.look()
        pairs: list[tuple[Scrape | None, Scrape]] = []
        steps: list[tuple[Scrape | None, Scrape]] = []
        for name, latest in look.scrapes.items():
            known = self._scrapes.setdefault(name, deque())
            steps.append((known[-1] if known else None, latest))
            while len(known) > 1 and known[1].at <= latest.at - self._source.window:
                known.popleft()
            pairs.append((look.before.get(name) or (known[0] if known else None), latest))
            known.append(latest)
        self._remember(look.curve, Change(steps))
        return View(figures_of(Change(pairs)), list(self._curve), list(look.scrapes), look.problems)

    def _remember(self, curve: list[float] | None, step: Change) -> None:
        if curve is not None:
            self._curve.clear()
            self._curve.extend(curve)
        elif (rate := step.rate("documents_total")) is not None:
            self._curve.append(rate)
