"""What the claims of a batch went through, for metrics."""

from __future__ import annotations

from operator import add
from typing import NamedTuple


class ClaimCounts(NamedTuple):
    """What the claims of one batch went through.

    Attributes:
        voided: claims of others that were voided.
        retried: attempts beyond the first.
        capped: probes that had more candidates than they return.
        late: documents that are later than ``lateness``.
        ahead: documents that are further ahead of the clock than ``max_future``.
        probes: table keys that were looked under.
        candidates: pairs of a document and a claim that it came upon there, in however many tables;
            those that Redis ruled out by their Hamming distance too.
        accepted: candidates that were verified, and near and within the window.
        rejected: candidates that were verified, and not; those that Redis ruled out too.
    """

    voided: int = 0
    retried: int = 0
    capped: int = 0
    late: int = 0
    ahead: int = 0
    probes: int = 0
    candidates: int = 0
    accepted: int = 0
    rejected: int = 0

    def plus(self, others: ClaimCounts) -> ClaimCounts:
        """Add what other claims went through."""
        return ClaimCounts(*map(add, self, others))


class Effort(NamedTuple):
    """What a driver has done; see ``ClaimCounts``."""

    capped: int
    probes: int
    candidates: int
    accepted: int
    rejected: int
