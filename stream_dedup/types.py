"""The values that pass between the stages. All are frozen."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec

#: A document's own name, as its producer gave it. Kept in the type it came in.
DocumentId = str | int


class Method(StrEnum):
    """How documents are fingerprinted."""

    MINHASH = "minhash"
    SIMHASH = "simhash"
    FUSED = "fused"


class Status(StrEnum):
    """What a document turned out to be."""

    ORIGINAL = "original"
    EXACT_DUPLICATE = "exact_duplicate"
    NEAR_DUPLICATE = "near_duplicate"


class Document(msgspec.Struct, frozen=True):
    """One document of a stream.

    Attributes:
        id: the document's own name. It need not be unique: the same id with new text is a revision.
        text: the text to compare.
        time: event time in seconds since the epoch; needed only when a window is set.
        source: where in its input the document stood (for example ``topic/partition/offset``).
            A document that comes again with the same source, id and text is the same document,
            so it is never a duplicate of itself.
        origin: what it comes from (site, feed, publisher), which may have boilerplate of its own.
    """

    id: DocumentId
    text: str
    time: float | None = None
    source: str = ""
    origin: str = ""


class Score(NamedTuple):
    """How near two documents are, as far as their sketches tell.

    Attributes:
        similarity: estimated resemblance, 0 to 1; None for SimHash.
        hamming_distance: differing fingerprint bits; None for MinHash.
    """

    similarity: float | None = None
    hamming_distance: int | None = None


class Decision(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was decided about one document. Its JSON form is the ``dedup`` annotation.

    Attributes:
        status: original, exact duplicate (same normalised text) or near duplicate.
        duplicate_id: name of the duplicate group, 24 hexadecimal digits; stable under replay.
        original_id: id of the document that the group began with (its own id for an original).
        method: ``minhash``, ``simhash`` or ``fused``.
        configuration: version of the fingerprint configuration, 16 hexadecimal digits.
        similarity: estimated resemblance to the original, 0 to 1 (duplicates, not by SimHash).
        hamming_distance: differing fingerprint bits (duplicates, not by MinHash).
        decided_at: time of the decision, RFC 3339 in UTC (set by the Kafka worker only, because
            a run over a file must give the same bytes twice).
    """

    status: Status
    duplicate_id: str
    original_id: DocumentId
    method: Method
    configuration: str
    similarity: float | None = None
    hamming_distance: int | None = None
    decided_at: str | None = None
