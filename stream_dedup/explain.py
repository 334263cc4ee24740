"""Says why documents match or do not: the same numbers that decide, and the exact ones beside."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import msgspec
import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field
from rapidfuzz.distance import Indel

from stream_dedup.deduplicator import Stages
from stream_dedup.fingerprint.simhash import SimHash
from stream_dedup.index.base import Attachment, IndexBatch, LookUp
from stream_dedup.index.candidates import Candidates
from stream_dedup.settings import Settings
from stream_dedup.text.normalize import nfkc_casefold
from stream_dedup.types import Document, DocumentId, Measure, Method, Score, VerifyBy
from stream_dedup.verify.evidence import Evidence, Scores

#: Candidates that an answer lists.
LISTED = 10

#: Words of a text that are compared, differences that an explanation shows, characters of each.
_WORDS = 2000
_DIFFERENCES = 5
_SHOWN = 80

#: Why an empty text matches nothing.
NEVER = "A text with nothing left after normalisation never matches."


class Comparison(msgspec.Struct, frozen=True, omit_defaults=True):
    """Two documents side by side.

    Attributes:
        shingles: distinct shingles of the first and of the second.
        shingles_in_common: how many they share.
        resemblance: shared / all distinct shingles, exact (Broder 1997).
        containment: share of each one's shingles that the other has, exact.
        estimated_resemblance: from the MinHash sketches (where these decide).
        hamming_distance: differing bits of their SimHash fingerprints.
        simhash_bits: bits of these.
        tables_hit: tables in which they share a key.
        tables: number of tables.
        exact: whether the normalised texts are equal.
        match: whether one would be called a duplicate of the other.
        reason: why, in a sentence.
        differences: the first differing runs of words after cleaning, (first, second).
        verify_by: what is compared, where it is another than the fingerprint.
        measure: the measure that decides (there only).
        score: its value (there only).
    """

    shingles: tuple[int, int]
    shingles_in_common: int
    resemblance: float
    containment: tuple[float, float]
    estimated_resemblance: float | None
    hamming_distance: int
    simhash_bits: int
    tables_hit: list[int]
    tables: int
    exact: bool
    match: bool
    reason: str
    differences: list[tuple[str, str]]
    verify_by: VerifyBy | None = None
    measure: Measure | None = None
    score: float | None = None


class Sighting(BaseModel, frozen=True):
    """An original that shares a table key with a document."""

    original_id: DocumentId = Field(description="Its document id.")
    tables_hit: int = Field(description="Number of tables in which the two share a key.")
    score: float = Field(
        description="The measure that decides, from 0 to 1; Hamming distance where SimHash does."
    )
    near: bool = Field(description="Whether it passes verification.")


class Why(BaseModel, frozen=True):
    """Why a document is a duplicate of an original, or of none."""

    reason: str = Field(description="The reason, in a sentence.")
    tables_hit: int = Field(
        description="Number of tables in which the document shares a key with that original, or "
        "with the candidate that comes nearest."
    )
    tables: int = Field(description="Number of tables.")
    candidates: list[Sighting] = Field(
        description=f"Originals that share a table key, best first; {LISTED} of them at most."
    )


def compare(
    stages: Stages, left: Document, right: Document, *, differences: bool = True
) -> Comparison:
    """Compare two documents under the settings in force.

    Args:
        stages: the settings.
        left: the first.
        right: the second.
        differences: whether to list differing words, which long texts take long for.
    """
    fingerprinter, settings = stages.fingerprinter, stages.settings
    texts, origins = [left.text, right.text], [left.origin, right.origin]
    prints = fingerprinter.fingerprint(texts, origins)
    shingles = fingerprinter.shingles(texts, origins)
    sets = [
        set(shingles.hashes[shingles.starts[text] : shingles.starts[text + 1]].tolist())
        for text in (0, 1)
    ]
    common, union = len(sets[0] & sets[1]), len(sets[0] | sets[1])
    sides = [prints.evidence.rows(np.array([text])) for text in (0, 1)]
    (score,) = fingerprinter.make_verifier(0.0).scores(*sides)
    unrounded, near = _unrounded(stages, *sides)
    hit = np.flatnonzero(prints.keys[0] == prints.keys[1]).tolist()
    exact = prints.digests[0] == prints.digests[1]
    empty = bool(prints.empty.any())
    by_sketch = settings.verify_by is VerifyBy.SKETCH
    fingerprints = SimHash(settings).sketches(shingles)
    return Comparison(
        shingles=(len(sets[0]), len(sets[1])),
        shingles_in_common=common,
        resemblance=_share(common, union),
        containment=(_share(common, len(sets[0])), _share(common, len(sets[1]))),
        estimated_resemblance=score.similarity if by_sketch else None,
        hamming_distance=int(np.bitwise_count(fingerprints[0] ^ fingerprints[1]).sum()),
        simhash_bits=settings.simhash_bits,
        tables_hit=hit,
        tables=prints.keys.shape[1],
        exact=exact and not empty,
        match=bool(near and hit) and not empty,
        reason=NEVER if empty else _reason(settings, len(hit), unrounded, near=near, exact=exact),
        differences=list(_differences(*fingerprinter.cleaner.clean(texts, origins)))
        if differences
        else [],
        verify_by=None if by_sketch else settings.verify_by,
        measure=None if by_sketch else settings.measure,
        score=None if by_sketch else score.similarity,
    )


def look_up(stages: Stages, index: LookUp, document: Document) -> list[Sighting]:
    """Return the originals that share a table key with a document, best first.

    Nothing is registered.

    Raises:
        ServiceError: the index is out of reach.
    """
    batch = stages.prepare([document])
    return _sightings(stages, batch, index.candidates(batch))


def tell_why(
    stages: Stages, batch: IndexBatch, candidates: Candidates, attachment: Attachment | None
) -> Why:
    """Say why a document belongs to an original, or to none.

    Args:
        stages: the settings in force.
        batch: the document alone.
        candidates: its candidates.
        attachment: what it was attached to, one of these.
    """
    tables = batch.prints.keys.shape[1]
    found = _sightings(stages, batch, candidates)
    wanted = attachment.original_id if attachment else found[0].original_id if found else None
    pairs = [pair for pair, original in enumerate(candidates.ids) if original == wanted]
    if attachment:
        digests = [candidates.digests[pair].tobytes() for pair in pairs]
        pairs = [pairs[digests.index(attachment.digest)]]
    if not pairs:
        none = "No original shares a table key with this document."
        reason = NEVER if batch.prints.empty[0] else none
        return Why(reason=reason, tables_hit=0, tables=tables, candidates=[])
    pair = np.array(pairs[:1])
    mine, theirs = batch.prints.evidence.rows(pair * 0), candidates.evidence.rows(pair)
    exact = bool((batch.digest_words()[0] == candidates.digests[pair[0]]).all())
    hits = int(candidates.tables[pair[0]])
    score, near = _unrounded(stages, mine, theirs)
    reason = _reason(stages.settings, hits, score, near=near, exact=exact)
    return Why(reason=reason, tables_hit=hits, tables=tables, candidates=found[:LISTED])


def _sightings(stages: Stages, batch: IndexBatch, candidates: Candidates) -> list[Sighting]:
    mine = batch.prints.evidence.rows(candidates.rows)
    scores, near = _scores(stages, mine, candidates.evidence)
    found = [
        Sighting(original_id=name, tables_hit=hits, score=round(score, 4), near=is_near)
        for name, hits, score, is_near in zip(
            candidates.ids,
            candidates.tables.tolist(),
            scores.tolist(),
            near.tolist(),
            strict=True,
        )
    ]
    sign = 1 if stages.settings.by_hamming else -1
    return sorted(found, key=lambda sighting: (sign * sighting.score, -sighting.tables_hit))


def _scores(
    stages: Stages, left: Evidence, right: Evidence
) -> tuple[Scores, npt.NDArray[np.bool_]]:
    """Return the score of each pair, also where it is too low to matter, and which are near."""
    fingerprinter = stages.fingerprinter
    scores, _ = fingerprinter.make_verifier(0.0).compare(left, right)
    return scores, fingerprinter.verifier.compare(left, right)[1]


def _unrounded(stages: Stages, left: Evidence, right: Evidence) -> tuple[Score, bool]:
    """Return what is published about a pair, but for the rounding, and whether it is near."""
    (compared,), (near,) = _scores(stages, left, right)
    (score,) = stages.fingerprinter.make_verifier(0.0).scores(left, right)
    if score.similarity is not None:
        score = score._replace(similarity=float(compared))
    return score, bool(near)


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0


def _reason(settings: Settings, hits: int, score: Score, *, near: bool, exact: bool) -> str:
    if exact:
        return "The normalised texts are equal: an exact duplicate."
    if not hits:
        return "They share no table key, so neither is a candidate of the other."
    rules = []
    if score.similarity is not None:
        relation = "reaches" if score.similarity >= settings.near_from else "is below"
        exact = settings.verify_by in {VerifyBy.SHINGLES, VerifyBy.TEXT}
        name = settings.measure.value if exact else f"estimated {settings.measure}"
        rules.append(
            f"the {name} {score.similarity:.3f} {relation} the threshold {settings.near_from}"
        )
    if score.hamming_distance is not None:
        relation = "within" if score.hamming_distance <= settings.hamming else "beyond"
        rules.append(
            f"the Hamming distance {score.hamming_distance} is {relation} {settings.hamming}"
        )
    if settings.method is Method.FUSED and settings.verify_by is VerifyBy.SKETCH:
        rules[-1] += f" (which counts from a resemblance of {settings.fused_resemblance} on)"
    ending = "a near duplicate" if near else "no match"
    keys = "key" if hits == 1 else "keys"
    return f"They share {hits} table {keys} and {' and '.join(rules)}: {ending}."


def _differences(left: str, right: str) -> Iterator[tuple[str, str]]:
    """Yield the first differing runs of words, by a longest common subsequence.

    RapidFuzz aligns bit by bit, in time that is bounded by the number of words; ``difflib`` takes
    minutes for two thousand words of which many are equal.
    """
    words = [nfkc_casefold(text).split()[:_WORDS] for text in (left, right)]
    numbers: dict[str, int] = {}
    sides = [[numbers.setdefault(word, len(numbers)) for word in own] for own in words]
    runs = groupby(Indel.opcodes(*sides), key=lambda block: block.tag == "equal")
    changes = [list(run) for equal, run in runs if not equal]
    for run in changes[:_DIFFERENCES]:
        first = words[0][run[0].src_start : run[-1].src_end]
        second = words[1][run[0].dest_start : run[-1].dest_end]
        yield " ".join(first)[:_SHOWN], " ".join(second)[:_SHOWN]
