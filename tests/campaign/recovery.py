"""How long it took after a fault until all went on.

A fault that has passed is recovered from at the first moment after its end (its begin, where it has
no duration) at which

- every input partition has had an answer committed since then, or has nothing that waits, and
- fewer records wait than did at most since then: the backlog shrinks.

A *standstill* is the longest time between the begin of a fault and the recovery for which some
partition in which records waited had no answer committed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tests.campaign.watch import Timeline

Numbers = npt.NDArray[np.int64]


class Happened(NamedTuple):
    """A fault that was.

    Attributes:
        kind: its name.
        hits: who it hit.
        began: when, monotonic s.
        ended: when, the same.
    """

    kind: str
    hits: str
    began: float
    ended: float


class Recovery(NamedTuple):
    """What it took.

    Attributes:
        seconds: from its end; None when it was not seen.
        standstill: seconds for which some partition stood still.
    """

    seconds: float | None
    standstill: float


class Row(NamedTuple):
    """A line of the tally.

    Attributes:
        kind: of fault.
        faults: how many there were.
        median: seconds to recover.
        p99: the same.
        longest: the same.
        standstill: the longest.
    """

    kind: str
    faults: int
    median: float
    p99: float
    longest: float
    standstill: float


def recovery(fault: Happened, seen: Timeline) -> Recovery:
    """Tell how long a fault took to recover from."""
    start = int(np.searchsorted(seen.times, fault.ended, side="right"))
    before = _at(seen.went, start - 1)
    went, waits = seen.went[start:], seen.came[start:] - seen.went[start:]
    moves = ((went > before) | (waits <= 0)).all(axis=1)
    backlog = waits.sum(axis=1)
    shrinks = (backlog < np.maximum.accumulate(backlog)) | (backlog <= 0)
    found = np.flatnonzero(moves & shrinks)
    end = start + int(found[0]) if len(found) else len(seen.times) - 1
    seconds = float(seen.times[end] - fault.ended) if len(found) else None
    return Recovery(seconds, _standstill(seen, fault.began, end))


def tally(faults: Iterable[Happened], seen: Timeline) -> list[Row]:
    """Sum up by kind; what was never recovered from has infinite times."""
    found: dict[str, list[Recovery]] = defaultdict(list)
    for fault in faults:
        found[fault.kind].append(recovery(fault, seen))
    return [
        _row(kind, [one.seconds for one in each], max(one.standstill for one in each))
        for kind, each in sorted(found.items())
    ]


def summed(faults: Iterable[Happened], seen: Timeline) -> Row:
    """Sum up all faults."""
    each = [recovery(fault, seen) for fault in faults]
    standstill = max((one.standstill for one in each), default=0.0)
    return _row("all", [one.seconds for one in each], standstill)


def _row(kind: str, seconds: list[float | None], standstill: float) -> Row:
    times = np.array([np.inf if one is None else one for one in seconds])
    # Of few, the p99 is the largest: no value is made up between two.
    median, p99 = np.percentile(times, [50, 99], method="inverted_cdf")
    return Row(kind, len(times), float(median), float(p99), float(times.max()), standstill)


def _standstill(seen: Timeline, began: float, end: int) -> float:
    """Return the longest time without an answer in a partition in which records wait."""
    first = int(np.searchsorted(seen.times, began, side="right")) - 1
    times, went, came = (one[max(first, 0) : end + 1] for one in (seen.times, seen.went, seen.came))
    longest = 0.0
    for partition in range(went.shape[1]):
        moved = np.flatnonzero(np.diff(went[:, partition])) + 1
        idle = np.flatnonzero(came[:, partition] <= went[:, partition])
        marks = np.union1d(np.union1d(moved, idle), [0, len(times) - 1])
        longest = max(longest, float(np.diff(times[marks]).max(initial=0.0)))
    return longest


def _at(counts: Numbers, row: int) -> Numbers:
    return counts[row] if row >= 0 else np.zeros(counts.shape[1], np.int64)
