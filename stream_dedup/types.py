"""The values that pass between the stages. All are frozen.

Structs are kept from the garbage collector (``gc=False``): what they hold refers to nothing, and a
caller who keeps a million decisions would have them looked through again and again.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

import msgspec

#: A document's own name, as its producer gave it. Kept in the type it came in.
DocumentId = str | int

#: An integer of up to 64 bits, more or less, as JSON spells it.
_INTEGER = re.compile("0|-?[1-9][0-9]{0,19}")


def ids_meant_by(word: str) -> list[DocumentId]:
    """Return the document ids that a word without a type stands for.

    Digits stand for the string and for the number: ids of records' keys and of command lines.
    """
    return [word, int(word)] if _INTEGER.fullmatch(word) else [word]


class Method(StrEnum):
    """How documents are fingerprinted."""

    MINHASH = "minhash"
    SIMHASH = "simhash"
    FUSED = "fused"


class VerifyBy(StrEnum):
    """What is kept with each original to verify candidates by; see docs/verification.md."""

    SKETCH = "sketch"
    BOTTOM = "bottom"
    MOD = "mod"
    BLOOM = "bloom"
    SHINGLES = "shingles"
    TEXT = "text"


class Measure(StrEnum):
    """How near two documents are, as a number from 0 to 1; see docs/verification.md."""

    RESEMBLANCE = "resemblance"
    CONTAINMENT = "containment"
    COSINE = "cosine"
    DICE = "dice"
    OVERLAP = "overlap"
    LCS = "lcs"
    EDIT = "edit"


class Choice(StrEnum):
    """Which of several near originals a duplicate is attached to."""

    FIRST = "first"
    NEAREST = "nearest"
    EARLIEST = "earliest"
    PREFERRED = "preferred"


class Revisions(StrEnum):
    """What becomes of a new text under an id that has an original; see docs/revisions.md."""

    OFF = "off"
    LINK = "link"
    REPLACE = "replace"


class Side(StrEnum):
    """One of the two documents of a decision."""

    DOCUMENT = "document"
    ORIGINAL = "original"


class Status(StrEnum):
    """What a document turned out to be."""

    ORIGINAL = "original"
    EXACT_DUPLICATE = "exact_duplicate"
    NEAR_DUPLICATE = "near_duplicate"


class Document(msgspec.Struct, frozen=True, gc=False):
    """One document of a stream.

    Attributes:
        id: the document's own name. It need not be unique: the same id with new text is a revision.
        text: the text to compare.
        time: event time in seconds since the epoch; needed only when a window is set, or when the
            choice is ``earliest``.
        source: where in its input the document stood (for example ``topic/partition/offset``).
            A document that comes again with the same source, id and text is the same document,
            so it is never a duplicate of itself.
        origin: what it comes from (site, feed, publisher), which may have boilerplate of its own.
        rank: rank of its publisher, the smaller the better; the choice ``preferred`` goes by it. A
            document without one comes after all others.
    """

    id: DocumentId
    text: str
    time: float | None = None
    source: str = ""
    origin: str = ""
    rank: float | None = None


class Score(NamedTuple):
    """How near two documents are, as far as what is compared tells.

    Attributes:
        similarity: the measure that decides, 0 to 1; None for SimHash.
        hamming_distance: differing fingerprint bits; None for MinHash.
        contained: which of the two is contained in the other, where the measure is containment.
    """

    similarity: float | None = None
    hamming_distance: int | None = None
    contained: Side | None = None


class Decision(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What was decided about one document. Its JSON form is the ``dedup`` annotation.

    Attributes:
        status: original, exact duplicate (same normalised text) or near duplicate.
        duplicate_id: name of the duplicate group, 24 hexadecimal digits; stable under replay.
        original_id: id of the document that the group began with (its own id for an original).
        method: ``minhash``, ``simhash`` or ``fused``.
        configuration: version of the fingerprint configuration, 16 hexadecimal digits.
        similarity: the measure that decided, from 0 to 1: by default the estimated resemblance to
            the original (duplicates only; not where SimHash alone decides).
        hamming_distance: differing fingerprint bits (duplicates, where the fingerprints of
            ``simhash`` or ``fused`` decide).
        measure: name of that measure, where it is another than resemblance.
        contained: which of the two is contained in the other, the one with fewer shingles (where
            the measure is containment).
        revises: duplicate id of the original of the same document id whose text this one takes the
            place of (where ``revisions`` is ``link`` or ``replace``).
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
    measure: Measure | None = None
    contained: Side | None = None
    revises: str | None = None
    decided_at: str | None = None
