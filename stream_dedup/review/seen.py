"""A decided document as the window takes it."""

from __future__ import annotations

from typing import NamedTuple

from stream_dedup.types import DocumentId, Status

#: How the window writes a status.
CODES = {Status.ORIGINAL: 0, Status.EXACT_DUPLICATE: 1, Status.NEAR_DUPLICATE: 2}
STATUSES = tuple(CODES)


class Seen(NamedTuple):
    """One document and what was decided about it.

    Attributes:
        id: the document's own id.
        duplicate_id: name of its duplicate group.
        original_id: id of the document that the group began with.
        status: what it turned out to be.
        method: ``minhash``, ``simhash`` or ``fused``.
        configuration: version of the fingerprint configuration.
        at: when it was decided, or else its time, or else when it was read; milliseconds since the
            epoch.
        text: the text; None where only its fingerprint is known.
        similarity: the measure that decided, 0 to 1.
        hamming_distance: differing fingerprint bits.
        measure: name of that measure, where it is another than resemblance.
        source: what it comes from; empty where unknown.
        link: its address, http or https; empty without one.
        place: where it stands in what was read.
    """

    id: DocumentId
    duplicate_id: str
    original_id: DocumentId
    status: Status
    method: str
    configuration: str
    at: int
    text: str | None = None
    similarity: float | None = None
    hamming_distance: int | None = None
    measure: str | None = None
    source: str = ""
    link: str = ""
    place: str = ""
