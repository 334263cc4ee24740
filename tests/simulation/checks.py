"""What must hold when everything has been answered, looked at by brute force."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from stream_dedup.stream.attempts import LIVES
from stream_dedup.stream.headers import (
    HEADER_OFFSET,
    HEADER_PARTITION,
    HEADER_REASON,
    HEADER_SOURCE,
    HEADER_TOPIC,
)
from stream_dedup.stream.poison import Reason
from tests.simulation.broker import Entry
from tests.simulation.world import INPUT, Input, World

#: Partition and offset of an input record.
Place = tuple[int, int]
#: What was published of a document: status, duplicate id and id of the original.
Answer = tuple[str, str, str]


class Found(NamedTuple):
    """What is left of a run.

    Attributes:
        outputs: committed annotations and tombstones.
        letters: committed dead letters.
        offsets: where the group has come to, by partition.
        tables: all keys of Redis.
        is_open: whether a transaction never ended.
        alone: how many lives had a record to themselves.
    """

    outputs: Sequence[Entry]
    letters: Sequence[Entry]
    offsets: Mapping[int, int]
    tables: Mapping[bytes, Mapping[bytes, bytes]]
    is_open: bool
    alone: Mapping[Place, int]

    def given_up(self) -> set[Place]:
        """Return the records that processes died at, as the dead letters have it."""
        return {
            _source(entry)
            for entry in self.letters
            if dict(entry.headers)[HEADER_REASON] == Reason.FATAL.encode()
        }

    def answers(self) -> dict[Place, Answer]:
        """Return what was published of each document."""
        found = {}
        for entry in self.outputs:
            if entry.value is not None:
                told = json.loads(entry.value)["dedup"]
                answer = (told["status"], told["duplicate_id"], told["original_id"])
                found[_source(entry)] = answer
        return found

    def differences(self, world: World, first: Found) -> list[str]:
        """Say which documents got another answer than the first time.

        A document that is near two originals which are not near each other may belong to the other
        one, if these were registered at the same moment (see ``index.base``).
        """
        wrong = []
        before, now = first.answers(), self.answers()
        inputs = documents(world)
        originals = [place for place, answer in before.items() if answer[0] == "original"]
        for place, answer in before.items():
            again = now.get(place)
            if again == answer:
                continue
            text = inputs[place].text
            near = [
                one
                for one in originals
                if world.prints.are_near(text or "", inputs[one].text or "")
            ]
            fickle = again and "original" not in (answer[0], again[0]) and len(near) > 1
            if not fickle:
                wrong.append(f"I3: {place} was {answer}, and is {again} when it comes again")
        return wrong


def documents(world: World) -> dict[Place, Input]:
    """Return all input records by their places."""
    return {
        (number, offset): one
        for number, log in enumerate(world.logs)
        for offset, one in enumerate(log)
        if one is not None
    }


def violations(
    world: World, found: Found, *, durable: bool = True, in_order: bool = False
) -> list[str]:
    """Return what does not hold.

    Args:
        world: the input.
        found: what is left.
        durable: whether Redis kept everything; else only messages are looked at.
        in_order: whether nothing was decided beside, or after, what came later.
    """
    wrong = [*_messages(world, found), *_guard(world, found), *_positions(world, found)]
    if durable and not wrong:
        wrong += _index(found)
        wrong += _decisions(world, found)
        wrong += _forgotten(world, found) if in_order else []
    return wrong


def _source(entry: Entry) -> Place:
    headers = dict(entry.headers)
    if HEADER_SOURCE in headers:
        topic, partition, offset = headers[HEADER_SOURCE].decode().split("/")
    else:
        topic, partition, offset = (
            headers[name].decode() for name in (HEADER_TOPIC, HEADER_PARTITION, HEADER_OFFSET)
        )
    assert topic == INPUT
    return int(partition), int(offset)


def _messages(world: World, found: Found) -> Iterator[str]:
    """Each input record must be in exactly one place of output and dead letters."""
    inputs, answers, given_up = documents(world), found.answers(), found.given_up()
    answered = Counter(
        _source(entry) for entry in [*found.outputs, *found.letters] if entry.value is not None
    )
    tombstones = Counter(entry.key for entry in found.outputs if entry.value is None)
    for place, one in inputs.items():
        if one.value is None and one.key:
            continue
        count = answered.pop(place, 0)
        if count != 1:
            yield f"messages: {place} is answered {count} times"
        wanted = one.text is not None and not one.refused and place not in given_up
        if count == 1 and wanted != (place in answers):
            yield f"messages: {place} is in the wrong topic"
    if answered:
        yield f"messages: answers to nothing: {dict(answered)}"
    wanted_tombstones = Counter(one.key for one in inputs.values() if one.value is None and one.key)
    if tombstones != wanted_tombstones:
        yield f"messages: tombstones {dict(tombstones)} and not {dict(wanted_tombstones)}"
    if found.is_open:
        yield "messages: a transaction is open for ever"


def _guard(world: World, found: Found) -> Iterator[str]:
    """What processes die at is given up, and nothing before enough of them have died at it."""
    given_up = found.given_up()
    for place in given_up:
        # Where everything is killed all the time it may be a record that did no harm.
        if found.alone.get(place, 0) <= LIVES:  # one more has given it up
            yield f"guard: {place} is given up after {found.alone.get(place, 0)} lives"
    for place, one in documents(world).items():
        if one.kills and place not in given_up:
            yield f"guard: {place} kills, and is not given up"


def _positions(world: World, found: Found) -> Iterator[str]:
    """The group must stand behind the last record of each partition, and not further."""
    for number, log in enumerate(world.logs):
        last = max((at + 1 for at, one in enumerate(log) if one is not None), default=0)
        stands = found.offsets.get(number, 0)
        if not last <= stands <= len(log):
            yield f"offsets: partition {number} stands at {stands}, its last record at {last - 1}"


def _index(found: Found) -> Iterator[str]:
    """Each original must be under as many keys as every other (I4), and under its id.

    Only of a record that was given up the id may be missing: its process died between the commit
    and that entry, and nobody decides it again.
    """
    entries: Counter[bytes] = Counter()
    named: set[bytes] = set()
    originals = []
    for name, table in found.tables.items():
        kind = name.rpartition(b"}:")[2][:1]
        if kind == b"c":
            originals += [claim for claim, value in table.items() if value[:1] == b"O"]
        elif kind == b"i":
            named.update(table)
        elif kind == b"t":
            entries.update(table.keys())
    counts = {entries[claim] for claim in originals}
    if len(counts) > 1:
        yield f"I4: originals are under {sorted(counts)} keys"
    nameless = len(set(originals) - named)
    if nameless > len(found.given_up()):
        yield f"I4: {nameless} originals are not under their ids"


def _originals(
    inputs: Mapping[Place, Input], answers: Mapping[Place, Answer]
) -> dict[str, list[Place]]:
    """Return the originals, by the ids of their documents."""
    originals: dict[str, list[Place]] = defaultdict(list)
    for place, (status, _, original) in answers.items():
        if status == "original":
            originals[original].append(place)
    for place, one in inputs.items():
        given_up = (one.refused or place not in answers) and one.id is not None
        if given_up and one.id is not None:  # it may be one, and nobody has been told
            originals[one.id].append(place)
    return originals


def _decisions(world: World, found: Found) -> Iterator[str]:
    """No two near originals (I1), and each duplicate near a document that is one (I2)."""
    inputs, answers, near = documents(world), found.answers(), world.prints.are_near
    gone = {one.key.decode() for one in inputs.values() if one.value is None and one.key}
    originals = _originals(inputs, answers)
    text = {place: one.text or "" for place, one in inputs.items()}
    told = [(name, p) for name, places in originals.items() for p in places if p in answers]
    for (name, place), (other, second) in combinations(told, 2):
        if near(text[place], text[second]) and not gone & {name, other}:
            yield f"I1: originals {place} and {second} are near"
    for place, (status, name, original) in answers.items():
        if status == "original":
            continue
        standing = originals.get(original, [])
        if not standing and original not in gone:
            yield f"I2: {place} is a duplicate of {original}, which is no original"
        if standing and not any(near(text[place], text[one]) for one in standing):
            yield f"I2: {place} is a duplicate of {original} ({name}), which is not near"


def doubled(world: World, found: Found, begun: Collection[str]) -> list[str]:
    """Return originals with equal texts, both begun to be decided after Redis went back in time.

    Only of equal texts can that be said: what was lost may have been near to both of two others.
    """
    inputs, answers = documents(world), found.answers()
    gone = {one.key.decode() for one in inputs.values() if one.value is None and one.key}
    fresh = [
        (place, inputs[place])
        for place, (status, _, original) in answers.items()
        if status == "original" and source(place) in begun and original not in gone
    ]
    return [
        f"I1: {one} and {other} have one text, and became originals after Redis went back"
        for (one, mine), (other, theirs) in combinations(fresh, 2)
        if mine.text == theirs.text and world.prints.are_near(mine.text or "", theirs.text or "")
    ]


def source(place: Place) -> str:
    """Return what a document from this place has as its source."""
    return f"{INPUT}/{place[0]}/{place[1]}"


def _forgotten(world: World, found: Found) -> Iterator[str]:
    """No document behind a tombstone is attached to what that has named."""
    inputs, answers = documents(world), found.answers()
    for (partition, offset), stone in inputs.items():
        if stone.value is not None or not stone.key:
            continue
        name = stone.key.decode()
        named = [place for place, one in inputs.items() if one.id == name]
        if any(place[0] != partition or place[1] > offset for place in named):
            continue
        for place, (status, _, original) in answers.items():
            if place[0] == partition and place[1] > offset and original == name:
                yield f"tombstones: {place} is a {status} of {name}, gone at {offset}"
