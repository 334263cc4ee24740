"""Random schedules of the claim protocol, carried out by the Functions in a real Redis.

A schedule is drawn and run as in ``tests.models.claims``: workers take turns at random, one atomic
call at a time, crash, and handle a document that another still handles. In addition calls come
twice, the second time late; the calls of one list come in any order, as from several nodes; and the
clocks that claim ids are minted from disagree. It only yields its calls, so the model's store and
Redis can carry out the same one, and must come to the same end.

On Redis hundreds of schedules go side by side, each taking one call in every round. They have
nothing in common, neither keys nor claims, so each is as if it were alone.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Generator, Iterator, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stream_dedup.fingerprint.fingerprinter import Fingerprints
from stream_dedup.fingerprint.simhash import SimHash
from stream_dedup.index.base import IndexBatch, Matcher
from stream_dedup.index.claims import (
    Call,
    Fate,
    Outcome,
    Pause,
    Probe,
    Read,
    Steps,
    Withdraw,
)
from stream_dedup.index.driver import Driver
from stream_dedup.index.records import RecordFormat
from stream_dedup.index.store import RedisStore
from stream_dedup.settings import Settings
from stream_dedup.types import Method, Score
from stream_dedup.verify.verifier import SketchMethod, SketchVerifier
from tests.models.claims import STARTS, Schedule, Store, Task, World

#: Bits of a claim id below the number of its schedule.
_CLAIM_BITS = 20
_WORKER_BITS = 6
#: Keys that a world draws from; see ``World.draw``.
_KEYS = 3
#: First of the keys that one document has for itself; above all that worlds draw.
_OWN_KEYS = 1 << 20
#: Odd, so that different numbers stay different; spreads them over the sorted sets.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
#: Atomic calls after which a schedule is not believed to end.
PATIENCE = 5_000
_SKETCH_BYTES = 4
RECORDS = RecordFormat(_SKETCH_BYTES)
#: Bits that are set in each of ``fingerprints``: as many as there may be others in a world.
_ONES = 5
NEAR_BITS = 2 * _ONES - 2

#: An atomic call, and the document it is made for.
Step = tuple[int, Call]
#: Yields steps and is sent their replies.
Play = Generator[Step, Any, None]


def atoms(call: Call) -> list[Call]:
    """Cut a call into those that are carried out at one place and at once."""
    match call:
        case Probe() | Withdraw():
            return [call._replace(tables=(table,)) for table in call.tables]
        case Read(claims):
            return [Read((claim,)) for claim in claims]
        case Pause():
            return []
    return [call]


def joined(call: Call, replies: list[Any]) -> Any:
    """Put the replies to the atoms of a call together."""
    match call:
        case Probe() | Read():
            return [reply[0] for reply in replies]
        case Withdraw() | Pause():
            return None
    return replies[0]


class Handling(Task):
    """One worker's handling of one document; it names its calls and is told their replies."""

    def __init__(self, store: Store, document: int, steps: Steps) -> None:
        super().__init__(store, document, steps)
        self._calls = next(steps)
        self._replies: list[list[Any]] = []
        self._open: list[tuple[int, int, Call]] = []
        self._begin()

    def _begin(self) -> None:
        parts = [atoms(call) for call in self._calls]
        self._replies = [[None] * len(part) for part in parts]
        self._open = [(at, n, atom) for at, part in enumerate(parts) for n, atom in enumerate(part)]

    def take(self, rng: random.Random, *, listed: bool) -> tuple[int, int, Call] | None:
        """Return the next atomic call and where its reply goes; None when all is done."""
        while not self._open:
            replies = map(joined, self._calls, self._replies)
            try:
                self._calls = self._steps.send(list(replies))
            except StopIteration as end:
                self.outcome = end.value
                return None
            self._begin()
        return self._open.pop(0 if listed else rng.randrange(len(self._open)))

    def put_reply(self, at: int, part: int, reply: Any) -> None:
        """Take the reply to an atomic call."""
        self._replies[at][part] = reply


class RedisSchedule(Schedule):
    """A schedule whose calls are carried out by others.

    Attributes:
        number: tells its claims and keys from those of other schedules.
        one_partition: whether documents may be registered at once.
        by_hamming: whether these pass over who is not near by Hamming distance.
        taken: atomic calls so far.
    """

    def __init__(
        self, seed: int, number: int = 0, *, one_partition: bool = False, by_hamming: bool = False
    ) -> None:
        super().__init__(seed)
        self.store = Store(self.world, by_hamming=by_hamming)
        self.by_hamming = by_hamming
        self.number = number
        self.one_partition = one_partition
        self._starts = STARTS if one_partition else STARTS[:1]
        self.taken = 0
        self._listed = self._rng.random() < 0.5
        self._skewed = self._rng.random() < 0.5
        self._workers = 0
        #: Calls that will come once more.
        self._late: list[Step] = []

    @property
    def outcomes(self) -> list[tuple[int, Outcome | None]]:
        """How each document ended, in the order of their ends."""
        return [(task.document, task.outcome) for task in self.finished]

    def run(self) -> list[str]:
        """Let the model's store carry out all calls."""
        play = self.play()
        try:
            document, call = next(play)
            while True:
                *_, reply = self.store.calls(document, call)
                document, call = play.send(reply)
        except StopIteration:
            return self.violations()

    def violations(self) -> list[str]:
        """Return what does not hold of the store and the outcomes."""
        endless = [f"no end after {self.taken} calls"] if self.taken >= PATIENCE else []
        return endless + list(self._violations())

    def play(self) -> Play:
        """Let every document be handled to its end at least once."""
        rng = self._rng
        waiting = [d for d in range(len(self.world.keys)) for _ in range(rng.choice([1, 1, 2]))]
        rng.shuffle(waiting)
        running: list[Handling] = []
        crashes = 4
        while (waiting or running or self._late) and self.taken < PATIENCE:
            if self._late and (not (waiting or running) or rng.random() < 0.03):
                yield self._count(self._late.pop(rng.randrange(len(self._late))))
            elif waiting and (not running or (len(running) < 4 and rng.random() < 0.2)):
                running.append(self._handle(waiting.pop()))
            elif crashes and running and rng.random() < 0.02:
                crashes -= 1
                waiting.append(running.pop(rng.randrange(len(running))).document)
            else:
                yield from self._advance(running)

    def _advance(self, running: list[Handling]) -> Play:
        """Let one of the workers make a call."""
        handling = self._rng.choice(running)
        taken = handling.take(self._rng, listed=self._listed)
        if taken is None:
            running.remove(handling)
            self.finished.append(handling)
            return
        at, part, call = taken
        if self._rng.random() < 0.05:
            self._late.append((handling.document, call))
        handling.put_reply(at, part, (yield self._count((handling.document, call))))

    def _count(self, step: Step) -> Step:
        self.taken += 1
        return step

    def _handle(self, document: int) -> Handling:
        self._workers += 1
        worker = self._workers
        ahead = self._rng.randrange(8) if self._skewed else 0

        def mint() -> int:
            self._last_claim += 1
            ticks = (self._last_claim + ahead) << _WORKER_BITS
            return self.number << _CLAIM_BITS | ticks | worker

        start = self._rng.choice(self._starts)
        steps = start(len(self.world.keys[document]), mint, grace=0.0)
        return Handling(self.store, document, steps)


class WorldMethod:
    """Compares sketches that are rows, near as the worlds of the schedules say."""

    sketch_bytes = _SKETCH_BYTES

    def __init__(self, near: set[tuple[int, int]]) -> None:
        self._near = near

    def compare(
        self, left: npt.NDArray[np.uint8], right: npt.NDArray[np.uint8]
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        rows = (np.ascontiguousarray(side).view("<u4").ravel().tolist() for side in (left, right))
        near = np.array([pair in self._near for pair in zip(*rows, strict=True)], np.bool_)
        return near.astype(np.float64), near

    def scores(self, left: npt.NDArray[np.uint8], right: npt.NDArray[np.uint8]) -> list[Score]:
        return [Score(similarity=value) for value in self.compare(left, right)[0].tolist()]


def fingerprints(world: World) -> list[int]:
    """Return 64-bit fingerprints, near pairs ``NEAR_BITS`` bits apart and the others two more.

    Each has ``_ONES`` bits set: one for each document that is near, shared with that, and others
    that are its own.
    """
    count = len(world.keys)
    found = [0] * count
    for bit, (one, other) in enumerate(combinations(range(count), 2)):
        if world.are_near(one, other):
            found[one] |= 1 << bit
            found[other] |= 1 << bit
    for one, shared in enumerate(found):
        for own in range(_ONES - shared.bit_count()):
            found[one] |= 1 << (63 - _ONES * one - own)
    return found


class Group:
    """Schedules side by side on one Redis, which must be empty."""

    def __init__(
        self, store: RedisStore, seeds: Sequence[int], *, by_hamming: bool = False
    ) -> None:
        """Draw schedules; with ``by_hamming`` the Functions see themselves who is not near."""
        one = store.layout.partitions == 1
        self.schedules = [
            RedisSchedule(seed, number, one_partition=one, by_hamming=by_hamming)
            for number, seed in enumerate(seeds)
        ]
        #: Row of each schedule's first document.
        self._first: list[int] = []
        #: Table keys of each document, and the pairs of near documents, by row.
        self._keys: list[npt.NDArray[np.uint64]] = []
        self._near: set[tuple[int, int]] = set()
        prefix_bits = store.layout.prefix_bits
        for schedule in self.schedules:
            self._add(schedule.number, schedule.world, prefix_bits)
        self._records, sketches = RECORDS, None
        method: SketchMethod = WorldMethod(self._near)
        if by_hamming:
            method = SimHash(Settings(method=Method.SIMHASH, hamming=NEAR_BITS))
            self._records = RecordFormat(method.sketch_bytes, hamming=NEAR_BITS)
            words = [one for schedule in self.schedules for one in fingerprints(schedule.world)]
            sketches = np.array(words, "<u8").view(np.uint8).reshape(len(words), -1)
        self._batch = batch_of(np.array(self._keys), sketches)
        matcher = Matcher(SketchVerifier(method, by_hamming=by_hamming), None)
        self._driver = Driver(store, self._batch, matcher, self._records)

    def run(self) -> None:
        """Carry out all calls on Redis; the schedules' stores then hold what Redis holds."""
        plays = {schedule.number: schedule.play() for schedule in self.schedules}
        steps = {number: next(play) for number, play in plays.items()}
        while steps:
            wanted = {self._first[n] + document: [call] for n, (document, call) in steps.items()}
            replies = self._driver._carry_out(wanted)
            for number, (document, _) in list(steps.items()):
                (reply,) = replies[self._first[number] + document]
                try:
                    steps[number] = plays[number].send(reply)
                except StopIteration:
                    del steps[number]
        self._read_back()

    def _add(self, number: int, world: World, prefix_bits: Sequence[int]) -> None:
        """Give the documents of a world rows, and keys that no other world has."""
        first = len(self._keys)
        self._first.append(first)
        widths = 64 - np.array(prefix_bits, np.uint64)
        for one, keys in enumerate(world.keys):
            # Tables that the world does not have: what is registered at once is put there as well.
            row = np.full(len(prefix_bits), _OWN_KEYS + first + one, np.uint64)
            row[: len(keys)] = np.array(keys, np.uint64) + np.uint64(number * _KEYS)
            # The low bits, so that they stay different however few there are.
            self._keys.append((row * _SPREAD) << widths >> widths)
            others = (other for other in range(len(world.keys)) if world.are_near(one, other))
            self._near |= {(first + one, first + other) for other in others}

    def _read_back(self) -> None:
        for schedule in self.schedules:
            schedule.store = Store(schedule.world)
        places = self._places()
        client: Any = self._driver.store.client
        for key in client.scan_iter(count=1000):
            kind = key.rpartition(b"}:")[2][:1]
            if kind == b"c":
                for claim, value in client.hgetall(key).items():
                    self._keep_record(int.from_bytes(claim, "big"), value)
            elif kind == b"t":
                for member, score in client.zrange(key, 0, -1, withscores=True):
                    claim = int.from_bytes(member, "big")
                    number, table, name = places[key, score]
                    assert number == claim >> _CLAIM_BITS, "a claim stands under a strange key"
                    if name < _OWN_KEYS:
                        self.schedules[number].store.entries[table, name].add(claim)

    def _keep_record(self, claim: int, value: bytes) -> None:
        number = claim >> _CLAIM_BITS
        store = self.schedules[number].store
        store.fates[claim] = Fate(value[0])
        if len(value) > 1:
            row = self._records.decode(value[1:]).document_id
            store.documents[claim] = int(row) - self._first[number]

    def _places(self) -> dict[tuple[bytes, float], tuple[int, int, int]]:
        """Return the schedule, table and key that each Redis key and score stand for."""
        layout = self._driver.store.layout
        suffixes, scores, partitions = layout.place(self._batch.prints.keys)
        found = {}
        for schedule, first in zip(self.schedules, self._first, strict=True):
            for document, keys in enumerate(schedule.world.keys):
                row = first + document
                own = [_OWN_KEYS + row] * (len(layout.prefix_bits) - len(keys))
                for table, key in enumerate([*keys, *own]):
                    prefix = layout.partition_key(int(partitions[row, table])).encode()
                    place = (prefix + bytes(suffixes[row, table]), float(scores[row, table]))
                    found[place] = (schedule.number, table, key)
        return found


class Ending(NamedTuple):
    """What a schedule came to, to be compared."""

    outcomes: list[tuple[int, Outcome | None]]
    fates: dict[int, Fate]
    entries: dict[tuple[int, int], set[int]]

    @classmethod
    def of(cls, schedule: RedisSchedule) -> Ending:
        """Return how a schedule ended that has been run."""
        entries = {place: claims for place, claims in schedule.store.entries.items() if claims}
        return cls(schedule.outcomes, schedule.store.fates, entries)


def findings(schedules: Sequence[RedisSchedule], seeds: Sequence[int]) -> Iterator[str]:
    """Yield violations, and the schedules that end otherwise than on the model's store."""
    for schedule, seed in zip(schedules, seeds, strict=True):
        yield from (f"seed {seed}: {violation}" for violation in schedule.violations())
        model = RedisSchedule(
            seed,
            schedule.number,
            one_partition=schedule.one_partition,
            by_hamming=schedule.by_hamming,
        )
        model.run()
        if Ending.of(model) != Ending.of(schedule):
            yield f"seed {seed}: Redis and the model differ"


def counts(schedules: Sequence[RedisSchedule]) -> dict[str, int]:
    """Count what happened in schedules, to see that they reach the rare paths."""
    total: dict[str, int] = defaultdict(int)
    for schedule in schedules:
        total["calls"] += schedule.taken
        for _, outcome in schedule.outcomes:
            assert outcome is not None
            total["retried"] += outcome.attempts > 1
            total["voided"] += outcome.voided
            total["duplicates"] += not outcome.is_original
    return dict(total)


def batch_of(
    keys: npt.NDArray[np.uint64], sketches: npt.NDArray[np.uint8] | None = None
) -> IndexBatch:
    """Make documents, each different from all others, with these table keys.

    Their sketches are their rows, if none are given.
    """
    count = len(keys)
    rows = range(count)
    if sketches is None:
        sketches = np.arange(count, dtype="<u4").view(np.uint8).reshape(count, _SKETCH_BYTES)
    return IndexBatch(
        ids=list(rows),
        identities=np.arange(count, dtype=np.uint64),
        times=np.zeros(count),
        prints=Fingerprints(
            empty=np.zeros(count, np.bool_),
            digests=[row.to_bytes(16, "little") for row in rows],
            keys=keys,
            sketches=sketches,
        ),
        ranks=np.full(count, np.inf),
    )
