"""Reads everything back and puts together what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from stream_dedup import Deduplicator
from stream_dedup.index.audit import Audit, audit
from stream_dedup.index.audit_decisions import Published
from stream_dedup.index.redis import RedisIndex
from stream_dedup.settings import Settings
from tests.campaign.check import Check, Violation
from tests.campaign.reading import Topics

#: One published document in so many is decided again, so many at a time.
_AGAIN, _BATCH = 40, 250


class Verdict(NamedTuple):
    """What was checked, and what is wrong.

    Attributes:
        sent: input records.
        documents: of these, documents.
        answered: annotated records.
        dead: dead letters by reason.
        originals: annotated records that are originals.
        again: published documents that were decided again, to get the same answer.
        audit: what the audit of the index found.
        violations: what is wrong.
    """

    sent: int
    documents: int
    answered: int
    dead: dict[str, int]
    originals: int
    again: int
    audit: Audit
    violations: list[Violation]


def verdict(topics: Topics, settings: Settings, tell: Callable[[str], None]) -> Verdict:
    """Check everything.

    Args:
        topics: to be read back.
        settings: of the index.
        tell: called with a line before each step.
    """
    check = Check()
    tell("reading everything back")
    for sent in topics.sent():
        check.take_sent(sent)
    for answer in topics.answers():
        check.take_answer(answer)
    for place, reason in topics.dead():
        check.take_dead(place, reason)
    tell("comparing all of it")
    violations = check.violations()
    tell("auditing the index")
    index = audit(settings, topics.published())
    violations += [Violation(f"index {one.invariant}", one.detail) for one in index.violations]
    tell("deciding some of it again")
    again = 0
    for count, wrong in _decide_again(topics, settings):
        again += count
        violations += wrong
    return Verdict(
        check.sent,
        check.documents,
        check.answered,
        check.dead,
        check.originals,
        again,
        index,
        violations,
    )


def _decide_again(topics: Topics, settings: Settings) -> Iterator[tuple[int, list[Violation]]]:
    """The same answer on replay: decide a sample as if it came again, at the same places."""
    with Deduplicator(settings, index=RedisIndex.connect(settings)) as deduplicator:
        sample = islice(topics.published(), 0, None, _AGAIN)
        while batch := list(islice(sample, _BATCH)):
            decisions = deduplicator.decide([one.document for one in batch])
            pairs = zip(batch, decisions, strict=True)
            yield (
                len(batch),
                [
                    Violation("another answer", f"{was.name}: {_said(was)}, now {now}")
                    for was, now in pairs
                    if (was.decision.status, was.decision.duplicate_id)
                    != (now.status, now.duplicate_id)
                ],
            )


def _said(published: Published) -> str:
    return f"{published.document.id} was {published.decision}"
