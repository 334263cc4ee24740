"""What must hold of everything that was read back, by brute force; the index is not asked.

Each input record ends once in exactly one of output and dead letters; no two originals are near
each other; the original of each duplicate was published as one, and is near; a document's group has
one name and one original.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tests.campaign.shingles import Texts

#: Resemblance from which on two texts are near: the default of the settings.
THRESHOLD = 0.8

#: Partition and offset of an input record.
Place = tuple[int, int]


class Sent(NamedTuple):
    """An input record.

    Attributes:
        place: where it is.
        id: of its document; None for what must become a dead letter.
        group: what the generator knows it to be a copy of; its own id for an original.
        letter: the reason of its dead letter.
    """

    place: Place
    id: str | None
    group: str | None
    letter: str | None = None


class Answer(NamedTuple):
    """A committed record of the output.

    Attributes:
        place: of the input record that it answers.
        id: of its document.
        text: the same.
        status: original, exact_duplicate or near_duplicate.
        duplicate_id: name of its group.
        original_id: id of its original.
    """

    place: Place
    id: str
    text: str
    status: str
    duplicate_id: str
    original_id: str


class Violation(NamedTuple):
    """Something that must not be.

    Attributes:
        kind: in a word or two.
        detail: what was found.
    """

    kind: str
    detail: str


class Check:
    """Takes everything that was read back, then tells what is wrong.

    Attributes:
        sent: input records.
        documents: of these, documents.
        answered: records of the output.
        dead: records of the dead-letter topic by reason.
        originals: answers that are originals.
    """

    def __init__(self) -> None:
        self.sent = self.documents = self.answered = self.originals = 0
        self.dead: Counter[str] = Counter()
        self._sent: dict[Place, Sent] = {}
        self._times: Counter[Place] = Counter()
        self._texts = Texts()
        #: Of each document: number of its text, status, name of its group, id of its original.
        self._answers: dict[str, list[tuple[int, str, str, str]]] = defaultdict(list)
        self._wrong: list[Violation] = []

    def take_sent(self, sent: Sent) -> None:
        """Take an input record; all of them come before the first answer."""
        self.sent += 1
        self.documents += sent.id is not None
        self._sent[sent.place] = sent

    def take_answer(self, answer: Answer) -> None:
        """Take a record of the output."""
        self.answered += 1
        self.originals += answer.status == "original"
        self._count(answer.place, answer.id, None)
        number = self._texts.add(answer.text)
        facts = (number, answer.status, answer.duplicate_id, answer.original_id)
        self._answers[answer.id].append(facts)

    def take_dead(self, place: Place, reason: str) -> None:
        """Take a dead letter."""
        self.dead[reason] += 1
        self._count(place, None, reason)

    def violations(self) -> list[Violation]:
        """Return what is wrong."""
        return [
            *self._wrong,
            *self._places(),
            *self._near_originals(),
            *self._attachments(),
            *self._groups(),
        ]

    def _count(self, place: Place, name: str | None, letter: str | None) -> None:
        self._times[place] += 1
        sent = self._sent.get(place)
        if sent is None:
            self._wrong.append(Violation("unknown", f"{place} is answered and was never sent"))
        elif (sent.id, sent.letter) != (name, letter):
            told = f"{place} is {sent.id or sent.letter} and was answered as {name or letter}"
            self._wrong.append(Violation("mistaken", told))

    def _places(self) -> Iterator[Violation]:
        """Once in exactly one of output and dead letters."""
        for place, sent in self._sent.items():
            if self._times[place] != 1:
                kind = "doubled" if self._times[place] else "lost"
                told = f"{place} ({sent.id or sent.letter}) is answered {self._times[place]} times"
                yield Violation(kind, told)

    def _near_originals(self) -> Iterator[Violation]:
        names = {
            number: name
            for name, answers in self._answers.items()
            for number, status, *_ in answers
            if status == "original"
        }
        for one, other in self._texts.near_pairs(list(names), THRESHOLD):
            resemblance = self._texts.resemblance(one, other)
            told = f"originals {names[one]} and {names[other]} resemble by {resemblance:.3f}"
            yield Violation("near originals", told)

    def _attachments(self) -> Iterator[Violation]:
        """A duplicate's original is an original of the same name, and near."""
        for name, answers in self._answers.items():
            for number, status, group, original in answers:
                if status == "original" and original != name:
                    yield Violation("dangling", f"original {name} names {original} as its own")
                elif status != "original":
                    yield from self._attachment(name, number, status, (group, original))

    def _attachment(
        self, name: str, number: int, status: str, told: tuple[str, str]
    ) -> Iterator[Violation]:
        group, original = told
        found = [
            text
            for text, other, its_group, _ in self._answers.get(original, [])
            if other == "original" and its_group == group
        ]
        if not found:
            yield Violation(
                "dangling", f"{name} is a duplicate of {original}, which is no original"
            )
            return
        resemblance = self._texts.resemblance(number, found[0])
        if resemblance < THRESHOLD:
            yield Violation("not near", f"{name} resembles {original} by {resemblance:.3f} only")
        if self._texts.same(number, found[0]) != (status == "exact_duplicate"):
            yield Violation("not exact", f"{name} is no {status} of {original}")

    def _groups(self) -> Iterator[Violation]:
        """What the generator made of one document has one name and one original; no others have."""
        names: dict[str, set[str]] = defaultdict(set)
        groups: dict[str, set[str]] = defaultdict(set)
        originals: Counter[str] = Counter()
        for _, name, truth, _ in self._sent.values():
            for _, status, group, _ in self._answers.get(name or "", []):
                names[truth or ""].add(group)
                groups[group].add(truth or "")
                originals[truth or ""] += status == "original"
        for truth, found in names.items():
            if len(found) != 1 or originals[truth] != 1:
                told = f"{truth} has {originals[truth]} originals and the names {sorted(found)}"
                yield Violation("divided", told)
        for group, members in groups.items():
            if len(members) != 1:
                yield Violation("merged", f"{group} is the name of {sorted(members)}")


def kinds(violations: Iterable[Violation]) -> dict[str, int]:
    """Count violations by kind."""
    return dict(Counter(one.kind for one in violations))
