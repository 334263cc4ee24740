"""Says why documents match or do not: the same numbers that decide, and the exact ones beside."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher

import msgspec
import numpy as np
import numpy.typing as npt

from stream_dedup.deduplicator import Deduplicator
from stream_dedup.fingerprint.fingerprinter import Fingerprints
from stream_dedup.fingerprint.simhash import SimHash
from stream_dedup.index.base import index_batch
from stream_dedup.index.memory import MemoryIndex
from stream_dedup.settings import Settings
from stream_dedup.text.normalize import nfkc_casefold
from stream_dedup.types import Document, DocumentId, Measure, Method, Score, VerifyBy
from stream_dedup.verify.evidence import Evidence, Scores

#: Differences that an explanation shows, and characters of each.
_DIFFERENCES = 5
_SHOWN = 80


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


class Sighting(msgspec.Struct, frozen=True):
    """An original in a state that shares a table key with a document.

    Attributes:
        original_id: its document id.
        tables_hit: number of tables in which they share a key.
        score: the measure that decides, or Hamming distance (SimHash).
        near: whether it passes verification.
    """

    original_id: DocumentId
    tables_hit: int
    score: float
    near: bool


def compare(deduplicator: Deduplicator, left: Document, right: Document) -> Comparison:
    """Compare two documents under the deduplicator's settings."""
    fingerprinter, settings = deduplicator.fingerprinter, deduplicator.settings
    texts, origins = [left.text, right.text], [left.origin, right.origin]
    prints = fingerprinter.fingerprint(texts, origins)
    shingles = fingerprinter.shingles(texts, origins)
    sets = [
        set(shingles.hashes[shingles.starts[text] : shingles.starts[text + 1]].tolist())
        for text in (0, 1)
    ]
    common, union = len(sets[0] & sets[1]), len(sets[0] | sets[1])
    sides = [prints.evidence.rows(np.array([text])) for text in (0, 1)]
    compared, near = (column[0] for column in _scores(deduplicator, *sides))
    score = fingerprinter.make_verifier(0.0).scores(*sides)[0]
    unrounded = score if score.similarity is None else score._replace(similarity=float(compared))
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
        reason=_reason(settings, prints, len(hit), unrounded, near=bool(near)),
        differences=list(_differences(*fingerprinter.cleaner.clean(texts, origins))),
        verify_by=None if by_sketch else settings.verify_by,
        measure=None if by_sketch else settings.measure,
        score=None if by_sketch else score.similarity,
    )


def look_up(deduplicator: Deduplicator, document: Document) -> list[Sighting]:
    """Return the originals of a memory index that share a table key with a document, best first.

    Nothing is registered.
    """
    index = deduplicator.index
    if not isinstance(index, MemoryIndex):
        msg = "only a memory index can be looked through"
        raise TypeError(msg)
    prints = deduplicator.fingerprinter.fingerprint([document.text], [document.origin])
    if prints.empty[0]:
        return []
    batch = index_batch([document], prints)
    hits = index.tables_hit(batch)
    rows = np.fromiter(hits, np.int64, len(hits))
    mine = prints.evidence.rows(np.zeros(len(rows), np.int64))
    scores, near = _scores(deduplicator, mine, index.originals.evidence.rows(rows))
    sightings = [
        Sighting(index.originals.ids[row], hits[row], round(float(score), 4), bool(is_near))
        for row, score, is_near in zip(rows.tolist(), scores, near, strict=True)
    ]
    sign = 1 if deduplicator.settings.by_hamming else -1
    return sorted(sightings, key=lambda sighting: (sign * sighting.score, -sighting.tables_hit))


def _scores(
    deduplicator: Deduplicator, left: Evidence, right: Evidence
) -> tuple[Scores, npt.NDArray[np.bool_]]:
    """Return the score of each pair, also where it is too low to matter, and which are near."""
    fingerprinter = deduplicator.fingerprinter
    scores, _ = fingerprinter.make_verifier(0.0).compare(left, right)
    return scores, fingerprinter.verifier.compare(left, right)[1]


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0


def _reason(
    settings: Settings, prints: Fingerprints, hits: int, score: Score, *, near: bool
) -> str:
    if prints.empty.any():
        return "A text with nothing left after normalisation never matches."
    if prints.digests[0] == prints.digests[1]:
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
    words = nfkc_casefold(left).split()[:2000], nfkc_casefold(right).split()[:2000]
    found = 0
    for kind, a, b, c, d in SequenceMatcher(None, *words, autojunk=False).get_opcodes():
        if kind != "equal" and found < _DIFFERENCES:
            found += 1
            yield " ".join(words[0][a:b])[:_SHOWN], " ".join(words[1][c:d])[:_SHOWN]
