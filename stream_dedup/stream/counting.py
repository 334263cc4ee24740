"""What the loop counts of a batch that was published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from stream_dedup import metrics
from stream_dedup.stream.transport import Record
from stream_dedup.types import Decision, Status


def count_published(
    records: Sequence[Record],
    decisions: Sequence[Decision],
    reasons: Counter[str],
    *,
    tombstones: int,
    seconds: float,
    now: float,
) -> None:
    """Count a batch.

    Args:
        records: all that was polled.
        decisions: those that were published.
        reasons: number of dead letters by reason.
        tombstones: number of tombstones among the records.
        seconds: time that the batch's decisions took.
        now: the time, Unix time.
    """
    for status, count in Counter([decision.status for decision in decisions]).items():
        metrics.documents_total.labels(str(status)).inc(count)
    for reason, count in reasons.items():
        metrics.dead_letters_total.labels(reason).inc(count)
    metrics.tombstones_total.inc(tombstones)
    _observe_near(decisions)
    metrics.batch_documents.observe(len(records))
    metrics.observe_all(metrics.decision_seconds, [seconds] * len(decisions))
    metrics.last_publish_timestamp_seconds.set(now)
    ages = now - np.array([record.timestamp for record in records], np.float64) / 1000
    metrics.observe_all(metrics.end_to_end_seconds, np.maximum(ages, 0.0).tolist())


def _observe_near(decisions: Sequence[Decision]) -> None:
    """Observe how near near duplicates are, by what decided: a distance does where it is alone."""
    near_duplicate = Status.NEAR_DUPLICATE  # to look it up takes as long as the rest
    near = [one for one in decisions if one.status is near_duplicate]
    similarities = [one.similarity for one in near if one.similarity is not None]
    metrics.observe_all(metrics.near_similarity, similarities)
    if len(similarities) < len(near):
        distances = [
            one.hamming_distance
            for one in near
            if one.similarity is None and one.hamming_distance is not None
        ]
        metrics.observe_all(metrics.near_hamming_distance, distances)
