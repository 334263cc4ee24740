"""The headers of annotated messages and of dead letters: their names, and what they say. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from stream_dedup.stream.poison import Poison
from stream_dedup.types import Decision

#: Header names of annotated messages, and of dead letters.
HEADER_STATUS = "dedup-status"
HEADER_DUPLICATE_ID = "dedup-duplicate-id"
HEADER_ORIGINAL_ID = "dedup-original-id"
#: Where the document stood in the input, ``topic/partition/offset``; a rebuild needs it.
HEADER_SOURCE = "dedup-source"
HEADER_REASON = "dead-letter-reason"
HEADER_DETAIL = "dead-letter-detail"
HEADER_TRUNCATED = "dead-letter-truncated"
HEADER_TOPIC = "source-topic"
HEADER_PARTITION = "source-partition"
HEADER_OFFSET = "source-offset"
#: How often the message was a dead letter that was replayed; on the message itself, too.
HEADER_REPLAYS = "dead-letter-replays"

#: Our own headers are replaced when a message passes through twice, never added a second time.
ANNOTATION_HEADERS = frozenset(
    {HEADER_STATUS, HEADER_DUPLICATE_ID, HEADER_ORIGINAL_ID, HEADER_SOURCE}
)
DEAD_LETTER_HEADERS = frozenset(
    {
        HEADER_REASON,
        HEADER_DETAIL,
        HEADER_TRUNCATED,
        HEADER_TOPIC,
        HEADER_PARTITION,
        HEADER_OFFSET,
        HEADER_REPLAYS,
    }
)

Header = tuple[str, bytes]


def annotation_headers(decision: Decision) -> list[Header]:
    """Return the headers that repeat the main points of an annotation."""
    return [
        (HEADER_STATUS, decision.status.encode()),
        (HEADER_DUPLICATE_ID, decision.duplicate_id.encode()),
        (HEADER_ORIGINAL_ID, str(decision.original_id).encode()),
    ]


def dead_letter_headers(
    poison: Poison,
    topic: str,
    partition: int,
    offset: int,
    truncated: Sequence[str] = (),
    *,
    replays: int = 0,
) -> list[Header]:
    """Return the headers that say why and from where a message is a dead letter.

    Args:
        poison: why.
        topic: input topic.
        partition: input partition.
        offset: input offset.
        truncated: the parts that were cut or could not be read: ``value``, ``key``, ``headers``.
        replays: how often the message was replayed.
    """
    headers = [
        (HEADER_REASON, poison.reason.encode()),
        (HEADER_DETAIL, poison.detail.encode()),
        (HEADER_TOPIC, topic.encode()),
        (HEADER_PARTITION, str(partition).encode()),
        (HEADER_OFFSET, str(offset).encode()),
    ]
    if truncated:
        headers.append((HEADER_TRUNCATED, ",".join(truncated).encode()))
    if replays:
        headers.append((HEADER_REPLAYS, str(replays).encode()))
    return headers
