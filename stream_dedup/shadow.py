"""Two configurations over the same documents: what each decided, held against the other.

A *shadow* is a second configuration that decides beside the live one and publishes nothing. Here
its decisions are compared: counts of each *kind* of agreement and difference, and a bounded sample
of the differences. Pure: where the documents come from is not known here.

The sample is the same whatever the batches and however many processes compare them. Each difference
has a priority that a hash of its document's place and id gives, and of each kind those with the
least priorities are kept: a simple random sample without replacement, as far as the hash is random
(bottom-k sampling, Cohen and Kaplan 2007), and two samples are merged by the same rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product, starmap
from typing import Literal, NamedTuple, Self

import msgspec
import xxhash

from stream_dedup.fingerprint.hashing import id_seeds
from stream_dedup.settings import Settings
from stream_dedup.types import Decision, Document, DocumentId, Status

#: Whose decision makes a pair of a document and an original.
By = Literal["live", "shadow", "both"]

#: What the digest of a normalised text, and so the name of a duplicate group, follows from.
_NAMING = ("seed", "clean", "boilerplate_file")


class Kind(NamedTuple):
    """What two decisions on one document have to do with each other.

    Attributes:
        live: status by the live configuration.
        shadow: status by the shadow.
        same: whether both name the same original (its own self, where both call it one).
    """

    live: Status
    shadow: Status
    same: bool

    @property
    def agrees(self) -> bool:
        """Whether there is no difference."""
        return self.same and self.live == self.shadow


#: Every kind there can be, for metrics that are there from the beginning.
KINDS = tuple(starmap(Kind, product(Status, Status, (True, False))))


class Difference(NamedTuple):
    """A document that the two decided differently; its text may be cut."""

    id: DocumentId
    text: str
    live: Decision
    shadow: Decision


class Sample(msgspec.Struct, frozen=True):
    """A pair that a difference is about, for a person to label; one line of a sample.

    ``stream-dedup evaluate --pairs`` reads labelled ones. A difference between two originals makes
    two pairs, one of each.

    Attributes:
        id: id of the original.
        other_id: id of the document.
        similarity: as the decision says that makes the pair; None where that has none.
        stratum: which kind of difference it was drawn from.
        stratum_pairs: pairs that the stratum has in all.
        label: 1 for duplicates, 0 for others; null until somebody has looked.
        text: text of the original, maybe cut; None where it is not known.
        other_text: text of the document, maybe cut; None where texts are left out.
        by: whose decision makes the pair.
        live: the live decision.
        shadow: the shadow's decision.
    """

    id: DocumentId
    other_id: DocumentId
    similarity: float | None
    stratum: str
    stratum_pairs: int
    label: int | None
    text: str | None
    other_text: str | None
    by: By
    live: Decision
    shadow: Decision


class Similarities(NamedTuple):
    """How far apart the two measure what both attach to the same original.

    Attributes:
        documents: documents for which both give a similarity.
        total: sum of the shadow's minus the live one, over these.
        largest: the largest absolute difference.
    """

    documents: int = 0
    total: float = 0.0
    largest: float = 0.0

    def plus(self, other: Similarities) -> Similarities:
        """Put two together."""
        return Similarities(
            self.documents + other.documents,
            self.total + other.total,
            max(self.largest, other.largest),
        )


class Comparison:
    """Decisions of two configurations on the same documents.

    Attributes:
        counts: documents of each kind.
        similarities: how far apart their similarities are.
    """

    def __init__(
        self, size: int, characters: int, *, same_names: bool, sample_seed: int = 0
    ) -> None:
        """Begin with nothing.

        Args:
            size: differences of each kind that are kept.
            characters: characters of each text that are kept; 0 leaves texts out.
            same_names: whether both name a duplicate group alike; see ``same_names``.
            sample_seed: of the hashes by which differences are drawn (``IdSeeds.sample``).
        """
        self._sample_seed = sample_seed
        self._size = size
        self._characters = characters
        self._same_names = same_names
        self._kept: dict[Kind, list[tuple[int, Difference]]] = {}
        self.counts: Counter[Kind] = Counter()
        self.similarities = Similarities()

    @classmethod
    def of(cls, live: Settings, shadow: Settings) -> Self:
        """Begin with nothing, as the live settings say about samples."""
        names = same_names(live, shadow)
        seed = id_seeds(live.seed.get_secret_value()).sample
        return cls(live.shadow_sample, live.shadow_text, same_names=names, sample_seed=seed)

    def add(
        self, documents: Sequence[Document], live: Sequence[Decision], shadow: Sequence[Decision]
    ) -> None:
        """Compare the decisions on some documents."""
        kinds = []
        for one, other in zip(live, shadow, strict=True):
            same = one.duplicate_id == other.duplicate_id
            if not (same or self._same_names):
                same = one.original_id == other.original_id
            kinds.append(Kind(one.status, other.status, same))
        self.counts.update(kinds)
        for document, kind, one, other in zip(documents, kinds, live, shadow, strict=True):
            if not kind.agrees:
                self._keep(document, kind, one, other)
            if kind.same and one.similarity is not None and other.similarity is not None:
                apart = other.similarity - one.similarity
                found = Similarities(1, apart, abs(apart))
                self.similarities = self.similarities.plus(found)
        self._cut(2 * self._size)

    def merge(self, other: Comparison) -> None:
        """Add what another comparison, of other documents, has found."""
        self.counts.update(other.counts)
        self.similarities = self.similarities.plus(other.similarities)
        for kind, kept in other._kept.items():
            self._kept.setdefault(kind, []).extend(kept)
        self._cut(2 * self._size)

    def differences(self) -> dict[Kind, list[Difference]]:
        """Return the sample of each kind of difference, in the order of ``KINDS``."""
        self._cut(self._size)
        known = [kind for kind in KINDS if kind in self._kept]
        return {kind: [difference for _, difference in self._kept[kind]] for kind in known}

    def samples(self, window: str = "") -> Iterator[Sample]:
        """Return the pairs of the sample, for a person to label.

        A pair of two documents with one id is left out: a label could not name it.

        Args:
            window: told in the names of the strata, when there are more samples than this one.
        """
        for kind, differences in self.differences().items():
            for difference in differences:
                for by, decision in _pairs(kind, difference):
                    if str(decision.original_id) != str(difference.id):
                        stratum = f"{window}{kind.live}-{kind.shadow}-{by}"
                        yield self._sample(difference, by, decision, stratum, self.counts[kind])

    def _sample(
        self, difference: Difference, by: By, decision: Decision, stratum: str, pairs: int
    ) -> Sample:
        return Sample(
            id=decision.original_id,
            other_id=difference.id,
            similarity=decision.similarity,
            stratum=stratum,
            stratum_pairs=pairs,
            label=None,
            text=None,
            other_text=difference.text if self._characters else None,
            by=by,
            live=difference.live,
            shadow=difference.shadow,
        )

    def _keep(self, document: Document, kind: Kind, live: Decision, shadow: Decision) -> None:
        place = f"{document.source}\0{document.id}".encode("utf-8", "surrogatepass")
        text = document.text[: self._characters]
        priority = xxhash.xxh3_64_intdigest(place, self._sample_seed)
        difference = Difference(document.id, text, live, shadow)
        self._kept.setdefault(kind, []).append((priority, difference))

    def _cut(self, limit: int) -> None:
        """Where more than ``limit`` differences are kept, keep those with the least priorities."""
        for kept in self._kept.values():
            if len(kept) > limit:
                kept.sort(key=lambda item: item[0])
                del kept[self._size :]


def with_texts(
    samples: Sequence[Sample], texts: Mapping[str, str], characters: int
) -> list[Sample]:
    """Fill in the texts of originals, by duplicate id, as far as they are known."""
    filled = []
    for sample in samples:
        decision = sample.live if sample.by == "live" else sample.shadow
        text = texts.get(decision.duplicate_id)
        known = None if text is None else text[:characters]
        filled.append(msgspec.structs.replace(sample, text=known))
    return filled


def same_names(live: Settings, shadow: Settings) -> bool:
    """Tell whether two configurations give a duplicate group the same name.

    Where they do not, originals are told apart by their document ids alone.
    """
    return all(getattr(live, name) == getattr(shadow, name) for name in _NAMING)


def _pairs(kind: Kind, difference: Difference) -> Iterator[tuple[By, Decision]]:
    """Return the decisions that put a document to another one."""
    if kind.same:
        yield "both", difference.shadow
        return
    if kind.live is not Status.ORIGINAL:
        yield "live", difference.live
    if kind.shadow is not Status.ORIGINAL:
        yield "shadow", difference.shadow
