"""The documents that are measured, and the comparison of decisions with the known truth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from stream_dedup.generate import GeneratedDocument, Kind, Language, StreamShape, Truth, generate

#: Near copies get up to this many other words, as long as resemblance stays at .85 or above:
#: clearly duplicates at a threshold of .8, and not so close that any method would find them.
EDITS = 4
#: One other word in a shorter document brings its resemblance below that.
NEAR_WORDS = 100


class Found(NamedTuple):
    """How decisions compare with the truth.

    Attributes:
        duplicates: share of the true duplicates that were attached to their original.
        near: the same of the near copies among them, whose text is not equal to their original's.
        wrong: share of the attached documents that were attached to a stranger.
    """

    duplicates: float
    near: float
    wrong: float


def stream(
    documents: int,
    *,
    duplicates: float = 0.3,
    distance: int = 1000,
    seed: int = 1,
    language: Language = "en",
    words: int = 150,
) -> list[GeneratedDocument]:
    """Return a generated stream; as it comes English, 150 words and 0.8 KB of JSON a document.

    Documents shorter than ``NEAR_WORDS`` have exact copies only.
    """
    shape = StreamShape(
        documents=documents,
        duplicate_share=duplicates,
        exact_share=0.5 if words >= NEAR_WORDS else 1,
        distance=distance,
        edits=EDITS,
        seed=seed,
        language=language,
        words=words,
    )
    return list(generate(shape))


def truth_of(document: GeneratedDocument) -> Truth:
    """Return the truth of a generated document."""
    if document.truth is None:
        msg = f"{document.id} has lost its truth"
        raise ValueError(msg)
    return document.truth


def encode(document: GeneratedDocument) -> bytes:
    """Return the JSON object of a document, without its truth."""
    return msgspec.json.encode(msgspec.structs.replace(document, truth=None))


def write(path: Path, documents: Sequence[GeneratedDocument], *, append: bool = False) -> None:
    """Write documents as JSON lines, without their truth; or write them behind what is there."""
    with path.open("ab" if append else "wb") as lines:
        lines.write(b"".join(encode(document) + b"\n" for document in documents))


def score(documents: Sequence[GeneratedDocument], attached: Sequence[str | None]) -> Found:
    """Compare decisions with the truth: for each document the id of its original, if any."""
    right: dict[Kind, int] = dict.fromkeys(Kind, 0)
    total: dict[Kind, int] = dict.fromkeys(Kind, 0)
    strangers = 0
    groups = {document.id: truth_of(document).group for document in documents}
    for document, original in zip(documents, attached, strict=True):
        truth = truth_of(document)
        total[truth.kind] += 1
        right[truth.kind] += original == truth.group
        strangers += original is not None and groups[original] != truth.group
    copies = (Kind.EXACT, Kind.NEAR)
    return Found(
        sum(right[kind] for kind in copies) / max(1, sum(total[kind] for kind in copies)),
        right[Kind.NEAR] / max(1, total[Kind.NEAR]),
        strangers / max(1, sum(original is not None for original in attached)),
    )
