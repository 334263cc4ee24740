"""Four worker processes on a Redis Cluster with replicas, copies at the same moment."""

from __future__ import annotations

from benchmarks.stress import stress


def test_copies_at_the_same_moment_on_different_workers_have_one_original() -> None:
    outcome = stress(documents=10_000, workers=4)

    assert outcome.audit.violations == []
    assert outcome.wrong == []
    assert outcome.audit.decisions == outcome.documents
    assert outcome.audit.unknown_entries == outcome.audit.pending == 0
    assert sum(effort.decided for effort in outcome.efforts) == 10_000 + outcome.replayed
    # They did meet each other.
    assert sum(effort.voided + effort.retried for effort in outcome.efforts) > 0
