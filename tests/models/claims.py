"""A model of the index for the claim protocol, and a scheduler that tries orders of events.

The store keeps the tables and records as Redis does. The scheduler carries out one atomic call at a
time: it picks a worker at random, kills workers in mid-document, lets several handle the same
document (redelivery while the first is still alive), and lets a dead worker's document be handled
again. ``violations`` then checks the invariants of ``stream_dedup.index.claims``.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations
from typing import Any, NamedTuple

from stream_dedup.index.claims import (
    Call,
    Fate,
    Forget,
    Mode,
    Outcome,
    Pause,
    Probe,
    Put,
    Read,
    Register,
    Registered,
    Settle,
    Sight,
    Steps,
    Withdraw,
    claim_document,
    register_document,
)

#: How a worker may begin, with all keys in one partition.
STARTS = (claim_document, register_document)


class World(NamedTuple):
    """Documents, by number: their table keys, and which pairs are near."""

    keys: list[tuple[int, ...]]
    near: set[frozenset[int]]

    def are_near(self, one: int, other: int) -> bool:
        """Say whether two documents are near: the same, or so declared and sharing a key."""
        shared = any(a == b for a, b in zip(self.keys[one], self.keys[other], strict=True))
        return one == other or (shared and frozenset((one, other)) in self.near)

    @classmethod
    def draw(cls, rng: random.Random) -> World:
        """Draw a few documents with few keys, so that many meet."""
        count, tables = rng.randint(2, 6), rng.randint(1, 4)
        keys = [tuple(rng.randrange(3) for _ in range(tables)) for _ in range(count)]
        pairs = [frozenset((a, b)) for a in range(count) for b in range(a)]
        return cls(keys, {pair for pair in pairs if rng.random() < 0.6})


class Store:
    """What Redis keeps: entries under keys, and records with their fates."""

    def __init__(self, world: World, *, by_hamming: bool = False) -> None:
        """Start empty; with ``by_hamming`` registering sees itself who is not near."""
        self._world = world
        self._by_hamming = by_hamming
        self.entries: dict[tuple[int, int], set[int]] = defaultdict(set)
        self.fates: dict[int, Fate] = {}
        self.documents: dict[int, int] = {}

    def settle(self, claim: int, fate: Fate) -> Fate:
        """Write a fate unless there is one; a claim without a record can only become void."""
        if claim not in self.fates:
            self.fates[claim] = Fate.VOID
        elif self.fates[claim] is Fate.PENDING:
            self.fates[claim] = fate
        return self.fates[claim]

    def probe(self, document: int, claim: int, table: int, mode: Mode) -> list[int]:
        """Return the others under one key, and insert."""
        entries = self.entries[table, self._world.keys[document][table]]
        others = sorted(entries - {claim})
        if mode is Mode.FORCE or (mode is Mode.IF_EMPTY and not others):
            entries.add(claim)
        return others

    def register(self, document: int, claim: int, known: tuple[int, ...]) -> Registered:
        """Insert everywhere and commit, unless somebody unknown is there."""
        places = list(enumerate(self._world.keys[document]))
        seen = {other for place in places for other in self.entries[place]} - {claim, *known}
        if self._by_hamming:
            seen = {other for other in seen if not self._is_far(document, other)}
        if seen:
            return Registered(Fate.ABSENT, tuple(sorted(seen)))
        if claim not in self.fates:
            self.fates[claim] = Fate.ORIGINAL
            self.documents[claim] = document
            for place in places:
                self.entries[place].add(claim)
        return Registered(self.fates[claim])

    def sight(self, document: int, claim: int) -> Sight:
        """Look at a claim."""
        fate = self.fates.get(claim, Fate.ABSENT)
        if fate in {Fate.ABSENT, Fate.VOID}:
            return Sight(fate, near=False, same=False)
        other = self.documents[claim]
        return Sight(fate, self._world.are_near(document, other), document == other)

    def _is_far(self, document: int, claim: int) -> bool:
        """Say whether a claim has a record, and this is not near."""
        sight = self.sight(document, claim)
        return sight.fate in {Fate.PENDING, Fate.ORIGINAL} and not sight.near

    def calls(self, document: int, call: Call) -> Iterator[Any]:  # noqa: C901 - one case each
        """Carry out a call in atomic parts, a part at each step; the last value is its reply."""
        match call:
            case Put(claim):
                self.fates.setdefault(claim, Fate.PENDING)
                self.documents[claim] = document
                yield None
            case Probe(claim, tables, mode):
                seen = []
                for table in tables:
                    seen.append(self.probe(document, claim, table, mode))
                    yield seen
            case Read(claims):
                yield [self.sight(document, claim) for claim in claims]
            case Settle(claim, fate):
                yield self.settle(claim, fate)
            case Register(claim, _, known):
                yield self.register(document, claim, known)
            case Withdraw(claim, tables):
                yield None
                for table in tables:
                    self.entries[table, self._world.keys[document][table]].discard(claim)
                    yield None
            case Forget(claim):
                self.fates.pop(claim, None)
                yield None
            case Pause():
                yield None


class Task:
    """One worker's handling of one document, advanced by atomic steps."""

    def __init__(self, store: Store, document: int, steps: Steps) -> None:
        self.document = document
        self.outcome: Outcome | None = None
        self._store = store
        self._steps = steps
        self._parts = self._run()

    def step(self) -> bool:
        """Take one step; say whether there are more."""
        return next(self._parts, None) is not None

    def _run(self) -> Iterator[bool]:
        calls = next(self._steps)
        while True:
            replies = []
            for call in calls:
                parts = []
                for part in self._store.calls(self.document, call):
                    parts.append(part)
                    yield True
                replies.append(parts[-1])
            try:
                calls = self._steps.send(replies)
            except StopIteration as end:
                self.outcome = end.value
                return


class Schedule:
    """Runs one random schedule to its end."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self.world = World.draw(self._rng)
        self.store = Store(self.world)
        self._last_claim = 0
        self.finished: list[Task] = []

    def run(self) -> list[str]:
        """Let every document be handled to its end at least once; return the violations."""
        rng = self._rng
        waiting = [
            document
            for document in range(len(self.world.keys))
            for _ in range(rng.choice([1, 1, 2]))
        ]
        rng.shuffle(waiting)
        running: list[Task] = []
        crashes = 4
        while waiting or running:
            if waiting and (not running or (len(running) < 4 and rng.random() < 0.2)):
                running.append(self._start(waiting.pop()))
                continue
            task = rng.choice(running)
            if crashes and rng.random() < 0.02:
                crashes -= 1
                running.remove(task)
                waiting.append(task.document)
            elif not task.step():
                running.remove(task)
                self.finished.append(task)
        return list(self._violations())

    def _start(self, document: int) -> Task:
        start = self._rng.choice(STARTS)
        steps = start(len(self.world.keys[document]), self._mint, grace=0.0)
        return Task(self.store, document, steps)

    def _mint(self) -> int:
        self._last_claim += 1
        return self._last_claim

    def _violations(self) -> Iterator[str]:
        store, world = self.store, self.world
        originals = [claim for claim, fate in store.fates.items() if fate is Fate.ORIGINAL]
        for one, other in combinations(originals, 2):
            if world.are_near(store.documents[one], store.documents[other]):
                yield f"I1: originals {one} and {other} are near"
        for claim in originals:
            for table, key in enumerate(world.keys[store.documents[claim]]):
                if claim not in store.entries[table, key]:
                    yield f"I4: original {claim} is missing from table {table}"
        yield from self._wrong_answers()

    def _wrong_answers(self) -> Iterator[str]:
        answers: dict[int, set[int]] = defaultdict(set)
        for task in self.finished:
            assert task.outcome is not None
            original, document = task.outcome.original, task.document
            if self.store.fates.get(original) is not Fate.ORIGINAL:
                yield f"I2: document {document} belongs to {original}, no original"
            elif not self.world.are_near(document, self.store.documents[original]):
                yield f"I2: document {document} is not near its original {original}"
            answers[document].add(original if task.outcome.is_original else 0)
        yield from (f"I3: document {d} got {a}" for d, a in answers.items() if len(a) > 1)
