"""Published decisions, checked against the index in an audit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.index.audit_entries import spread
from stream_dedup.index.audit_reading import Facts, Known
from stream_dedup.index.base import Matcher, duplicate_id
from stream_dedup.index.expiry import Horizon
from stream_dedup.types import Decision, Document, DocumentId, Status
from stream_dedup.verify.evidence import Evidence

#: Decisions that are checked at a time.
_DECISIONS = 1000


class Violation(msgspec.Struct, frozen=True, order=True):
    """Something that must not be.

    Attributes:
        invariant: I1, I2, I3 or I4.
        detail: what was found.
    """

    invariant: str
    detail: str


class Published(NamedTuple):
    """A document and the decision that was published about it.

    Attributes:
        name: where it stands, to be named in a violation.
        document: the document.
        decision: its annotation.
    """

    name: str
    document: Document
    decision: Decision


class _Fact(NamedTuple):
    """What is checked of a published decision, without the text.

    Attributes:
        name: where it stands.
        id: document id.
        decision: its annotation.
        digest: of the normalised text.
        evidence: of the text, for verification.
        time: event time, if there is one.
        keys: sum over the table keys.
    """

    name: str
    id: DocumentId
    decision: Decision
    digest: bytes
    evidence: Evidence
    time: float | None
    keys: int

    @property
    def own_name(self) -> str:
        """Name of the duplicate group that this document would begin."""
        return duplicate_id(self.id, self.digest)


class Decisions:
    """Published decisions, checked against the index.

    Attributes:
        count: decisions checked.
        others: decisions made with another configuration.
        gone: decisions whose original has expired or was forgotten.
        violations: what is wrong.
        missing: decisions whose original is not among those read; it may have come later.
    """

    def __init__(self, fingerprinter: Fingerprinter, matcher: Matcher, facts: Facts) -> None:
        self._fingerprinter = fingerprinter
        self._horizon = Horizon.of(fingerprinter.settings)
        # The same text is an original again when its original is gone.
        self._repeats = fingerprinter.settings.window is not None or facts.forgotten > 0
        self._matcher = matcher
        self._answers: dict[str, tuple[str, bool]] = {}
        self.count = self.others = self.gone = 0
        self.violations: list[Violation] = []
        self.missing: list[_Fact] = []

    def check(
        self, published: Iterable[Published], known: Known, sums: npt.NDArray[np.uint64]
    ) -> None:
        """Check all decisions against the originals, whose keys have these sums."""
        names = known.by_name()
        decisions = iter(published)
        while batch := list(islice(decisions, _DECISIONS)):
            facts = self._facts(batch)
            self._check_answers(facts)
            self.missing += self._check_originals(facts, known, names, sums)

    def check_missing(self, known: Known, facts: Facts) -> None:
        """Check once more what was missing, against a later reading.

        An original may have expired. As for the others, no more may be missing than were forgotten.
        """
        missing = self._check_originals(self.missing, known, known.by_name(), None)
        cutoff = self._horizon.expires_before(facts.watermark)
        left = [one for one in missing if one.time is None or self._earliest(one) >= cutoff]
        if len({one.decision.duplicate_id for one in left}) <= facts.forgotten:
            left = []
        self.gone = len(missing) - len(left)
        for fact in left:
            self._report_missing(fact)

    def _facts(self, batch: Sequence[Published]) -> list[_Fact]:
        mine = [
            one for one in batch if one.decision.configuration == self._fingerprinter.configuration
        ]
        self.count += len(mine)
        self.others += len(batch) - len(mine)
        prints = self._fingerprinter.fingerprint(
            [one.document.text for one in mine], [one.document.origin for one in mine]
        )
        tables = np.arange(prints.keys.shape[1], dtype=np.int64)
        sums = spread(prints.keys, tables).sum(axis=1, dtype=np.uint64)
        return [
            _Fact(
                one.name,
                one.document.id,
                one.decision,
                prints.digests[row],
                prints.evidence.rows(np.array([row])),
                one.document.time,
                int(sums[row]),
            )
            for row, one in enumerate(mine)
            if not prints.empty[row]  # an empty text is an original that nothing is compared with
        ]

    def _check_answers(self, facts: Sequence[_Fact]) -> None:
        """I3: one answer for one document, which is an original once at most."""
        for fact in facts:
            name, is_original = fact.decision.duplicate_id, fact.decision.status is Status.ORIGINAL
            own = fact.own_name
            if is_original and (name != own or fact.decision.original_id != fact.id):
                self._report("I3", fact, "is an original, but of another document's group")
            if self._repeats:
                continue
            before, was_original = self._answers.get(own, (name, False))
            if before != name:
                self._report("I3", fact, f"was decided twice: group {before} and group {name}")
            if is_original and was_original:
                self._report("I3", fact, "was published as an original twice")
            self._answers[own] = (before, is_original or was_original)

    def _check_originals(
        self,
        facts: Sequence[_Fact],
        known: Known,
        names: dict[str, int],
        sums: npt.NDArray[np.uint64] | None,
    ) -> list[_Fact]:
        """I2, and that originals stand in the index; return the decisions of unknown originals."""
        missing, found = [], []
        for fact in facts:
            row = names.get(fact.decision.duplicate_id)
            if row is None or known.ids[row] != fact.decision.original_id:
                missing.append(fact)
            elif fact.decision.status is not Status.ORIGINAL:
                found.append((fact, row))
            elif sums is not None and fact.keys != int(sums[row]):
                self._report("I4", fact, "is an original that does not stand under all its keys")
        self._check_near(found, known)
        return missing

    def _check_near(self, found: Sequence[tuple[_Fact, int]], known: Known) -> None:
        if not found:
            return
        rows = np.array([row for _, row in found], np.int64)
        mine = Evidence(
            np.concatenate([fact.evidence.sketches for fact, _ in found]),
            [payload for fact, _ in found for payload in fact.evidence.payloads],
        )
        near = self._matcher.compare(mine, known.evidence.rows(rows))[1]
        times = known.times[rows]
        own = [fact.time for fact, _ in found]
        own = [t if t is not None else other for t, other in zip(own, times, strict=True)]
        inside = self._matcher.within_window(np.array(own, np.float64), times, known.renewed[rows])
        for (fact, row), alike, close in zip(found, near, inside, strict=True):
            original = fact.decision.original_id
            equal = fact.digest == known.digest(row)
            if not close or not (alike or equal):
                self._report("I2", fact, f"is not near its original {original}")
            elif equal != (fact.decision.status is Status.EXACT_DUPLICATE):
                self._report("I2", fact, f"is no {fact.decision.status} of {original}")

    def _earliest(self, fact: _Fact) -> float:
        """Return the earliest event time that the original of a decision may have."""
        is_original = fact.decision.status is Status.ORIGINAL
        return (fact.time or 0.0) - (0.0 if is_original else self._horizon.window or 0.0)

    def _report_missing(self, fact: _Fact) -> None:
        if fact.decision.status is Status.ORIGINAL:
            self._report("I3", fact, "is an original, but not in the index")
        else:
            original = fact.decision.original_id
            self._report("I2", fact, f"has {original} for its original, which is not in the index")

    def _report(self, invariant: str, fact: _Fact, what: str) -> None:
        self.violations.append(Violation(invariant, f"{fact.name}: document {fact.id} {what}"))
