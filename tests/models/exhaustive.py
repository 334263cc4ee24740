"""A checker that tries every order of events for a few documents and workers.

``tests.models.claims`` draws schedules; this module visits all of them. A state is what the store
holds and how far each worker has come; a step is one atomic call of one worker. The protocol is not
modelled: it is ``claim_document`` (or ``register_document``) itself. A generator cannot be copied,
so a worker is known by its *history*, the replies it has had since it minted its claim; what it
does next is found by replaying the history, once, and remembered. Histories that leave the
generator at the same place with the same variables count as one, and asking for another claim
starts a new history.

What counts as a step:

- a probe, a read or a withdrawal is a step for each of its tables or claims, any other call is one;
  the calls of a list come in any order, as they go to different nodes, or as ``listed``;
- minting a claim is a step, since the order of claim ids matters; with ``skewed`` clocks a new id
  may come anywhere among those of others;
- a pause takes no step: what follows it may come at any time anyway;
- a crash takes no step: a worker that crashed is one that is never chosen again, so every state is
  also one in which any of the workers have crashed. Redelivery is another worker with the document;
- with ``late``, a list of calls may be sent twice, as a client does that missed the replies: the
  calls of the second copy come at any time, or never, and nobody reads their replies.

States that differ only in names are one: claims are numbered by age, void ones that nobody can come
upon any more are dropped, and workers with the same document are interchangeable. Stores and
workers are numbered and what a worker may do next is remembered for each pair of them, so a state
is an integer and most steps are a few look-ups.

Checked in every state: I1 to I4 of ``stream_dedup.index.claims``, and that each worker would come
to its end if from now on it were the only one. So no crash of others, and nothing they left
behind, can hold a worker up.
"""

from __future__ import annotations

import dis
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import combinations
from types import CodeType, GeneratorType
from typing import Any, NamedTuple

from stream_dedup.index import claims
from stream_dedup.index.claims import Call, Fate, Outcome, Pause, Probe, Read, Register, Withdraw
from tests.models.claims import Store, World

_BITS = 21
_MASK = (1 << _BITS) - 1
#: Steps within which a worker that is alone must come to its end.
_PATIENCE = 60

#: New number of each claim, 0 for one that is dropped.
Renaming = tuple[int, ...]


class Setup(NamedTuple):
    """What is checked.

    Attributes:
        world: documents and which are near.
        workers: the document of each worker, in order; equal ones are redeliveries.
        listed: carry out the calls of a list in order, as on a single node.
        skewed: let a new claim be older than those of others.
        late: lists of calls that may be sent twice.
        most: claims that may be in use when another is minted; this bounds how often workers that
            void each other start again.
        at_once: documents whose handling begins with ``register_document``.
    """

    world: World
    workers: tuple[int, ...]
    listed: bool = False
    skewed: bool = False
    late: int = 0
    most: int = 9
    at_once: tuple[int, ...] = ()


class Report(NamedTuple):
    """What a check came to.

    Attributes:
        states: distinct states visited.
        alone: most steps that a worker needed to its end when alone.
        violation: the first violation, empty if there is none.
        trace: the states on the shortest way to it, and it.
    """

    states: int
    alone: int
    violation: str = ""
    trace: tuple[str, ...] = ()


class Violation(Exception):  # noqa: N818
    """An invariant does not hold."""


def check(setup: Setup) -> Report:
    """Visit every state, up to the first violation."""
    report = _Search(setup).run()
    if report.violation:
        report = report._replace(trace=_Search(setup).trace())
    return report


class Kept(NamedTuple):
    """What the store keeps of one claim: its fate, whose it is, the keys it stands under."""

    fate: Fate
    document: int
    places: tuple[tuple[int, int], ...]


#: The store: a ``Kept`` for each claim, the oldest first.
Snapshot = tuple[Kept, ...]

_NOTHING = Kept(Fate.ABSENT, -1, ())


class Waiting(NamedTuple):
    """A worker about to mint a claim."""

    document: int


class Running(NamedTuple):
    """A worker with a claim.

    Attributes:
        document: what it handles.
        shape: how far it has come, see ``Protocol``.
        claims: the claims that stand for those of the shape.
        replies: to the atomic calls it has made, as far as they have come.
    """

    document: int
    shape: int
    claims: tuple[int, ...]
    replies: tuple[Any, ...]


class Finished(NamedTuple):
    """A worker that has decided."""

    document: int
    original: int
    is_original: bool

    @property
    def answer(self) -> int:
        """What is published of an original is its id, of a duplicate that it is one."""
        return self.original if self.is_original else 0


class _Sent(NamedTuple):
    """An atomic call for a document; as tuples, ``Put(1)`` and ``Forget(1)`` would be equal."""

    kind: type[Call]
    document: int
    call: Call


class Repeat(NamedTuple):
    """Calls that were sent twice and have yet to come; not sent, as long as ``calls`` is None."""

    calls: tuple[_Sent, ...] | None


Actor = Waiting | Running | Finished | Repeat

#: Stands for a reply that has not come.
_OPEN = "open"


class Claim(int):
    """A claim id, told from other numbers."""


class _AttemptOver(Exception):  # noqa: N818
    """The protocol asks for another claim."""


class Shape(NamedTuple):
    """How far an attempt has come: it makes calls, ends, or (neither) starts again.

    Attributes:
        calls: calls it yields.
        parts: the same, each cut into those that are atomic.
        outcome: how it ended.
        hints: claims that it only compares others with.
    """

    calls: tuple[Call, ...] = ()
    parts: tuple[Call, ...] = ()
    outcome: Outcome | None = None
    hints: tuple[int, ...] = ()


class _Example(NamedTuple):
    """A history that leads to a shape.

    Attributes:
        claim: the attempt's own claim.
        history: replies it was sent.
        live: the claims in them that stand for those of the shape.
        dropped: claims that nobody can come upon any more.
        at_once: whether it is one of ``register_document``.
    """

    claim: Claim
    history: tuple[Any, ...]
    live: tuple[int, ...]
    dropped: frozenset[int]
    at_once: bool = False


class Protocol:
    """``claim_document`` or ``register_document``, as a function from histories to what comes next.

    Histories after which the generator stands at the same place with the same variables have one
    *shape*. A shape numbers the claims it still knows from 1, by age.
    """

    def __init__(self, tables: int) -> None:
        self._tables = tables
        self.shapes: list[Shape] = []
        self._examples: list[_Example] = []
        self._numbers: dict[Any, int] = {}

    def begin(self, claim: int, *, at_once: bool = False) -> tuple[int, tuple[int, ...]]:
        """Return the shape of an attempt that has just minted its claim, and the claims of it."""
        return self._shape(_Example(Claim(1), (), (), frozenset(), at_once), {1: claim})

    def after(
        self, shape: int, claims: tuple[int, ...], replies: tuple[Any, ...]
    ) -> tuple[int, tuple[int, ...]]:
        """Return the shape after replies to all calls, and the claims of it."""
        example = self._examples[shape]
        ages = _ages(example, claims, set(_claims_in(replies)))
        order = sorted(ages)
        numbers = {age: Claim(number) for number, age in enumerate(order, 1)}
        old = {claim: numbers[age] for age, claim in ages.items() if claim}
        new = {age[0]: numbers[age] for age in order if not age[1]}
        history = (*_renamed(example.history, old), _renamed(replies, new))
        dropped = frozenset(old[claim] for claim in example.dropped)
        extended = _Example(old[example.claim], history, (), dropped, example.at_once)
        return self._shape(extended, {number: claim for claim, number in new.items()})

    def without(
        self, shape: int, claims: tuple[int, ...], gone: set[int]
    ) -> tuple[int, tuple[int, ...]]:
        """Return the shape without claims that nobody can come upon any more."""
        example = self._examples[shape]
        known = dict(zip(example.live, claims, strict=True))
        dropped = {number for number, claim in known.items() if claim in gone}
        return self._shape(example._replace(dropped=example.dropped | dropped), known)

    def named(self, value: Any, claims: tuple[int, ...]) -> Any:
        """Return what is part of a shape, with claim ids in place of its numbers."""
        return _renamed(value, dict(enumerate(claims, 1)))

    def _shape(self, example: _Example, known: dict[int, int]) -> tuple[int, tuple[int, ...]]:
        """Find the shape of a history, and which claims, of those known, it has."""
        calls, outcome, place = self._replay(example)
        strong = set(_claims_in((calls, outcome, place)))
        assert not strong & example.dropped, "a claim was dropped that the protocol still uses"
        hints = set(_claims_in(place, hints=True)) - example.dropped
        live = tuple(sorted(strong | hints))
        names = {claim: Claim(number) for number, claim in enumerate(live, 1)}
        key = _renamed((calls, outcome, place), names)
        number = self._numbers.setdefault(key, len(self.shapes))
        if number == len(self.shapes):
            calls, outcome, _ = key
            parts = tuple(part for call in calls for part in _cut(call))
            weak = tuple(names[claim] for claim in sorted(hints - strong))
            self.shapes.append(Shape(calls, parts, outcome, weak))
            self._examples.append(example._replace(live=live))
        return number, tuple(known[claim] for claim in live)

    def _replay(self, example: _Example) -> tuple[Any, Any, Any]:
        """Return the calls the protocol makes after a history, or its outcome, and its place."""
        minted = [example.claim]

        def mint() -> int:
            if not minted:
                raise _AttemptOver
            return minted.pop()

        start = claims.register_document if example.at_once else claims.claim_document
        steps = start(self._tables, mint, grace=0.0)
        try:
            calls = next(steps)
            for replies in example.history:
                calls = steps.send(list(replies))
        except _AttemptOver:
            return (), None, ()
        except StopIteration as end:
            return (), end.value, ()
        return tuple(calls), None, _place(steps)


def _ages(
    example: _Example, claims: tuple[int, ...], seen: set[int]
) -> dict[tuple[int, int, int], int]:
    """Order the claims of a history and new ones by age; the history's are the values."""
    now = dict(zip(example.live, claims, strict=True))
    ages = {(claim, 0, 0): 0 for claim in seen}
    below = 0
    for claim in sorted({example.claim, *_claims_in(example.history)}):
        below = now.get(claim, below)
        ages[(below, 0, 0) if claim in now else (below, 1, claim)] = claim
    return ages


#: Variables that decide nothing but what the outcome tells of the way.
_COUNTS = frozenset({"attempts", "voided", "grace"})
#: Variables in which claims stand to be compared with those that come.
_HINTS = frozenset({"passed", "seen"})


class _Hint(NamedTuple):
    """The value of a variable of ``_HINTS``."""

    value: Any


def _place(steps: Any) -> tuple[Any, ...]:
    """Describe where a generator stands: in each frame the instruction and the variables in use."""
    frames: list[Any] = []
    while steps is not None:
        frame = steps.gi_frame
        live = _live(frame.f_code, frame.f_lasti)
        variables = {k: v for k, v in frame.f_locals.items() if k in live}
        frames.append((frame.f_code.co_name, str(frame.f_lasti), _described(variables)))
        steps = steps.gi_yieldfrom
    return tuple(frames)


def _described(value: Any) -> Any:
    """Turn a value into one that can be compared."""
    match value:
        case dict():
            return tuple((k, _variable(k, v)) for k, v in value.items() if k not in _COUNTS)
        case set() | frozenset():
            return tuple(sorted(value))
        case list():
            return tuple(_described(item) for item in value)
        case GeneratorType():
            return _place(value)
        case int() | tuple() | str() | None:
            return value
    return _described(vars(value)) if hasattr(value, "__dict__") else repr(value)


def _variable(name: Any, value: Any) -> Any:
    return _Hint(_described(value)) if name in _HINTS else _described(value)


@cache
def _live(code: CodeType, at: int) -> frozenset[str]:
    """Return the variables that are read after an instruction before they are written."""
    instructions = list(dis.get_instructions(code))
    offsets = [instruction.offset for instruction in instructions]
    following = dict(zip(offsets, [*offsets[1:], -1], strict=True))
    live: dict[int, frozenset[str]] = dict.fromkeys([*offsets, -1], frozenset())
    before: dict[int, frozenset[str]] = {}
    while before != live:
        before = live.copy()
        for instruction in reversed(instructions):
            after = live[following[instruction.offset]]
            if instruction.opcode in _JUMPS:
                after |= live[instruction.argval]
                loop = range(instruction.offset, instruction.argval)
                assert instruction.opname != "FOR_ITER" or at not in loop, "a loop is no variable"
            live[instruction.offset] = _before(instruction, after)
    return live[following[at]]


def _before(instruction: dis.Instruction, after: frozenset[str]) -> frozenset[str]:
    """Return the variables in use before an instruction, given those in use after it."""
    name, variables = instruction.opname, instruction.argval
    if name in {"STORE_FAST", "STORE_DEREF"}:
        return after - {variables}
    if instruction.opcode in _VARIABLES:
        return after | (set(variables) if isinstance(variables, tuple) else {variables})
    return after


_JUMPS = frozenset(dis.hasjrel) | frozenset(dis.hasjabs)
_VARIABLES = frozenset(dis.haslocal) | frozenset(dis.hasfree)


def _sent(document: int, call: Call) -> _Sent:
    return _Sent(type(call), document, call)


def _cut(call: Call) -> list[Call]:
    """Cut a call into atomic ones."""
    match call:
        case Probe() | Withdraw():
            return [call._replace(tables=(table,)) for table in call.tables]
        case Read(claims):
            return [Read((claim,)) for claim in claims]
        case Pause():
            return []
    return [call]


def _joined(calls: tuple[Call, ...], replies: tuple[Any, ...]) -> tuple[Any, ...]:
    """Put the replies to atomic calls together to those the protocol is sent."""
    left = iter(replies)
    return tuple(_reply(call, [next(left) for _ in _cut(call)]) for call in calls)


def _reply(call: Call, replies: list[Any]) -> Any:
    match call:
        case Probe() | Read():
            return tuple(replies)
        case Withdraw() | Pause():
            return None
    return replies[0]


def _claims_in(value: Any, *, hints: bool = False) -> Iterator[int]:
    """Yield the claims in a value, those of hints only if wanted."""
    if isinstance(value, Claim):
        yield value
    elif isinstance(value, tuple) and (hints or not isinstance(value, _Hint)):
        for item in value:
            yield from _claims_in(item, hints=hints)


def _renamed(value: Any, names: Mapping[int, int]) -> Any:
    """Give the claims in a value their new ids; drop those from hints that have none."""
    match value:
        case Claim():
            return Claim(names[value])
        case _Hint():
            return _Hint(_without(value.value, names))
        case tuple():
            renamed = (_renamed(item, names) for item in value)
            return value._make(renamed) if hasattr(value, "_make") else tuple(renamed)
    return value


def _without(value: Any, names: Mapping[int, int]) -> Any:
    if isinstance(value, tuple):
        kept = (v for v in value if not isinstance(v, Claim) or v in names)
        return tuple(_without(item, names) for item in kept)
    return _renamed(value, names)


def _bits(claims: Iterable[int]) -> int:
    """Return a set of claims as a bit mask."""
    mask = 0
    for claim in claims:
        mask |= 1 << (claim - 1)
    return mask


@cache
def _squeezed(used: int) -> Renaming:
    """Number the claims of a mask from 1, in order."""
    return tuple(
        (used & ((2 << bit) - 1)).bit_count() if used >> bit & 1 else 0
        for bit in range(used.bit_length())
    )


def _rename_snapshot(snapshot: Snapshot, names: Renaming) -> Snapshot:
    kept = {new: k for new, k in zip(names, snapshot, strict=False) if new and k != _NOTHING}
    return tuple(kept.get(claim, _NOTHING) for claim in range(1, max(kept, default=0) + 1))


def _thaw(world: World, snapshot: Snapshot) -> Store:
    store = Store(world)
    for claim, kept in enumerate(snapshot, 1):
        if kept.fate is not Fate.ABSENT:
            store.fates[claim] = kept.fate
        store.documents[claim] = kept.document
        for place in kept.places:
            store.entries[place].add(claim)
    return store


def _freeze(store: Store) -> Snapshot:
    places: dict[int, list[tuple[int, int]]] = {}
    for place, members in store.entries.items():
        for claim in members:
            places.setdefault(claim, []).append(place)
    return tuple(
        _kept(store, claim, places.get(claim, []))
        for claim in range(1, max([*store.fates, *places], default=0) + 1)
    )


def _kept(store: Store, claim: int, places: list[tuple[int, int]]) -> Kept:
    fate = store.fates.get(claim, Fate.ABSENT)
    document = store.documents[claim] if fate in {Fate.PENDING, Fate.ORIGINAL} else -1
    return Kept(fate, document, tuple(sorted(places)))


def _violations(world: World, snapshot: Snapshot) -> Iterator[str]:
    """Yield what is wrong with a store: I1 and I4."""
    originals = [(at, k) for at, k in enumerate(snapshot, 1) if k.fate is Fate.ORIGINAL]
    for (one, left), (other, right) in combinations(originals, 2):
        if world.are_near(left.document, right.document):
            yield f"I1: originals {one} and {other} are near"
    for claim, kept in originals:
        for place in enumerate(world.keys[kept.document]):
            if place not in kept.places:
                yield f"I4: original {claim} is missing from table {place[0]}"


class _Numbers:
    """Numbers for values, and the values by number."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.numbers: dict[Any, int] = {}

    def of(self, value: Any) -> tuple[int, bool]:
        """Return the number of a value, and whether it is a new one."""
        number = self.numbers.setdefault(value, len(self.values))
        new = number == len(self.values)
        if new:
            self.values.append(value)
            if number > _MASK:
                msg = "more parts of states than a state has bits for"
                raise OverflowError(msg)
        return number, new


class Step(NamedTuple):
    """What one step makes of a store and an actor.

    Attributes:
        store: number of the store after it.
        actor: number of the actor after it.
        used: claims in use by these two.
        loose: void claims, and those that the actor has hints of.
        ended: whether the actor is a worker that has come to its end.
    """

    store: int
    actor: int
    used: int
    loose: int
    ended: bool


class _Parts:
    """Stores and actors by number, and the steps from each pair."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self._protocol = Protocol(len(setup.world.keys[0]))
        self._advances: dict[Running, Actor] = {}
        self.stores = _Numbers()
        self.actors = _Numbers()
        #: For each store, the claims in use and those that are void; for each actor, the former.
        self.used_by_store: list[int] = []
        self.void_in_store: list[int] = []
        self.used_by_actor: list[int] = []
        #: For each actor, claims that it only compares others with.
        self.hints_of_actor: list[int] = []
        #: Actors that are about to mint a claim.
        self.waiting: set[int] = set()
        self._effects: dict[tuple[int, _Sent], tuple[int, Any]] = {}
        self._renamed_stores: dict[tuple[int, Renaming], int] = {}
        self._renamed_actors: dict[tuple[int, Renaming], int] = {}

    def store(self, snapshot: Snapshot) -> int:
        """Return the number of a store; I1 and I4 are checked when it is new."""
        if snapshot not in self.stores.numbers:
            for violation in _violations(self.setup.world, snapshot):
                raise Violation(violation)
        number, new = self.stores.of(snapshot)
        if new:
            holding = enumerate(snapshot, 1)
            used = [c for c, k in holding if k.places or k.fate in {Fate.PENDING, Fate.ORIGINAL}]
            self.used_by_store.append(_bits(used))
            void = [c for c, k in enumerate(snapshot, 1) if k.fate is Fate.VOID]
            self.void_in_store.append(_bits(void))
        return number

    def actor(self, actor: Actor) -> int:
        """Return the number of an actor."""
        number, new = self.actors.of(actor)
        if new:
            used, hints = self._claims_of(actor)
            self.used_by_actor.append(_bits(used))
            self.hints_of_actor.append(_bits(hints))
            if isinstance(actor, Waiting):
                self.waiting.add(number)
        return number

    def begin(self, waiting: int, claim: int) -> int:
        """Return a worker that has just minted a claim."""
        document = self.actors.values[waiting].document
        at_once = document in self.setup.at_once
        shape, claims = self._protocol.begin(claim, at_once=at_once)
        return self.actor(self._going_on(document, shape, claims))

    def described(self, number: int) -> str:
        """Describe an actor for a reader: a worker by its claims and the calls it waits for."""
        actor = self.actors.values[number]
        if not isinstance(actor, Running):
            return str(actor)
        calls = [self._part(actor, at) for at, r in enumerate(actor.replies) if r is _OPEN]
        return f"document {actor.document} {actor.claims}: {', '.join(map(str, calls))}"

    def _claims_of(self, actor: Actor) -> tuple[set[int], set[int]]:
        """Return the claims that an actor may still come upon, and those it has hints of."""
        match actor:
            case Running(_, number, claims, replies):
                weak = set(self._protocol.shapes[number].hints)
                hints = {claim for at, claim in enumerate(claims, 1) if at in weak}
                used = {*_claims_in(replies), *(set(claims) - hints)}
                return used, hints - used
            case Finished(_, original, _):
                return {original}, set()
            case Repeat(tuple(calls)):
                return set(_claims_in(calls)), set()
        return set(), set()

    def rename_store(self, store: int, names: Renaming) -> int:
        """Return a store with other claim ids."""
        renamed = self._renamed_stores.get((store, names))
        if renamed is None:
            renamed = self.store(_rename_snapshot(self.stores.values[store], names))
            self._renamed_stores[store, names] = renamed
        return renamed

    def rename_actor(self, actor: int, names: Renaming) -> int:
        """Return an actor with other claim ids."""
        renamed = self._renamed_actors.get((actor, names))
        if renamed is None:
            new = {old: name for old, name in enumerate(names, 1) if name}
            renamed = self.actor(self._rename(self.actors.values[actor], new))
            self._renamed_actors[actor, names] = renamed
        return renamed

    def steps(self, store: int, number: int) -> tuple[Step, ...]:
        """Return all steps that an actor may take, but for minting; I2 is checked as well."""
        actor = self.actors.values[number]
        match actor:
            case Running():
                found = [self._answered(store, actor, at) for at in self.ready(actor)]
            case Repeat(tuple(calls)):
                found = [self._repeated(store, calls, at) for at in range(len(calls))]
            case Finished():
                self._check_answer(store, actor)
                found = []
            case _:
                found = []
        return tuple(self._step(after, self.actor(then)) for after, then in found)

    def ready(self, actor: Running) -> list[int]:
        """Return which of its calls may be carried out next."""
        waiting = [at for at, reply in enumerate(actor.replies) if reply is _OPEN]
        return waiting[:1] if self.setup.listed else waiting

    def repeat(self, number: int) -> int | None:
        """Return the second copy of calls that have just been sent."""
        actor = self.actors.values[number]
        if not isinstance(actor, Running) or any(reply is not _OPEN for reply in actor.replies):
            return None
        parts = [self._part(actor, at) for at in range(len(actor.replies))]
        calls = tuple(_sent(actor.document, part) for part in parts if not isinstance(part, Read))
        return self.actor(Repeat(calls)) if calls else None

    def _rename(self, actor: Actor, names: Mapping[int, int]) -> Actor:
        match actor:
            case Running(document, shape, claims, replies):
                gone = {claim for claim in claims if claim not in names}
                if gone:
                    shape, claims = self._protocol.without(shape, claims, gone)
                claims = tuple(names[claim] for claim in claims)
                return Running(document, shape, claims, _renamed(replies, names))
            case Finished(_, original, _):
                return actor._replace(original=names[original])
            case Repeat(tuple(calls)):
                return Repeat(_renamed(calls, names))
        return actor

    def _part(self, actor: Running, at: int) -> Call:
        """Return one of the atomic calls that a worker is waiting for."""
        parts = self._protocol.shapes[actor.shape].parts
        part: Call = self._protocol.named(parts[at], actor.claims)
        return part

    def _answered(self, store: int, actor: Running, at: int) -> tuple[int, Actor]:
        """Carry out one call of a worker and hand it the reply."""
        after, reply = self._carry_out(store, _sent(actor.document, self._part(actor, at)))
        replies = (*actor.replies[:at], reply, *actor.replies[at + 1 :])
        return after, self._advanced(actor._replace(replies=replies))

    def _repeated(self, store: int, calls: tuple[_Sent, ...], at: int) -> tuple[int, Actor]:
        after, _ = self._carry_out(store, calls[at])
        return after, Repeat(calls[:at] + calls[at + 1 :])

    def _advanced(self, actor: Running) -> Actor:
        """Let a worker go on if it has all replies."""
        if any(reply is _OPEN for reply in actor.replies):
            return actor
        then = self._advances.get(actor)
        if then is None:
            calls = self._protocol.shapes[actor.shape].calls
            replies = _joined(calls, actor.replies)
            shape, claims = self._protocol.after(actor.shape, actor.claims, replies)
            then = self._advances[actor] = self._going_on(actor.document, shape, claims)
        return then

    def _going_on(self, document: int, number: int, claims: tuple[int, ...]) -> Actor:
        """Return a worker whose attempt has come to a shape, past calls that need no reply."""
        shape = self._protocol.shapes[number]
        if shape.parts:
            return Running(document, number, claims, (_OPEN,) * len(shape.parts))
        if shape.calls:
            replies = (None,) * len(shape.calls)
            return self._going_on(document, *self._protocol.after(number, claims, replies))
        if shape.outcome is None:
            return Waiting(document)
        return Finished(document, claims[shape.outcome.original - 1], shape.outcome.is_original)

    def _carry_out(self, store: int, sent: _Sent) -> tuple[int, Any]:
        """Return the store after a call and the reply, both by the model."""
        effect = self._effects.get((store, sent))
        if effect is None:
            thawed = _thaw(self.setup.world, self.stores.values[store])
            *_, reply = thawed.calls(sent.document, sent.call)
            if sent.kind is Read:
                (reply,) = reply
            elif sent.kind is Probe:
                reply = tuple(Claim(claim) for claim in reply[0])
            elif sent.kind is Register:
                reply = reply._replace(seen=tuple(Claim(claim) for claim in reply.seen))
            effect = self.store(_freeze(thawed)), reply
            self._effects[store, sent] = effect
        return effect

    def _step(self, store: int, actor: int) -> Step:
        used = self.used_by_store[store] | self.used_by_actor[actor]
        ended = isinstance(self.actors.values[actor], Finished)
        loose = self.void_in_store[store] | self.hints_of_actor[actor]
        return Step(store, actor, used, loose, ended)

    def _check_answer(self, store: int, actor: Finished) -> None:
        snapshot = self.stores.values[store]
        document, original, _ = actor
        kept = snapshot[original - 1] if original <= len(snapshot) else _NOTHING
        if kept.fate is not Fate.ORIGINAL:
            msg = f"I2: document {document} belongs to {original}, no original"
            raise Violation(msg)
        if not self.setup.world.are_near(document, kept.document):
            msg = f"I2: document {document} is not near its original {original}"
            raise Violation(msg)


class _Search:
    """Visits all states of a setup, those that take fewer steps first."""

    def __init__(self, setup: Setup) -> None:
        self._parts = _Parts(setup)
        self._setup = setup
        documents = sorted(setup.workers)
        first = [self._parts.actor(Waiting(document)) for document in documents]
        first += [self._parts.actor(Repeat(None))] * setup.late
        self._spare = first[-1] if setup.late else -1
        self._top = _BITS * len(first)
        self._shifts = [_BITS * slot for slot in range(len(first))]
        self._groups = _groups([*documents, *[-1] * setup.late])
        self._start = self._pack(self._parts.store(()), first)
        self._steps: dict[int, tuple[Step, ...]] = {}
        self._alone: dict[int, int] = {}
        self._broken_alone = ""

    def run(self) -> Report:
        """Visit all states, or all up to the first violation."""
        seen = {self._start}
        border = [self._start]
        violation = ""
        try:
            while border:
                reached: set[int] = set()
                for state in border:
                    reached.update(self._after(state))
                reached -= seen
                seen |= reached
                border = list(reached)
        except Violation as found:
            violation = str(found)
        longest = max(self._alone.values(), default=0)
        return Report(len(seen), longest, violation or self._broken_alone)

    def trace(self) -> tuple[str, ...]:
        """Return the shortest way to a violation: the states, and what is broken by a next step."""
        before = {self._start: self._start}
        border = [self._start]
        while border:
            reached: set[int] = set()
            for state in border:
                try:
                    found = self._after(state)
                except Violation as violation:
                    return (*self._told(before, state), str(violation))
                for then in found:
                    if then not in before:
                        before[then] = state
                        reached.add(then)
            border = list(reached)
        return ()

    def _after(self, state: int) -> list[int]:
        """Return the states after one step of anyone."""
        store = state >> self._top
        actors = [state >> shift & _MASK for shift in self._shifts]
        used_by = self._parts.used_by_actor
        once = twice = hints = 0
        for actor in actors:
            used = used_by[actor]
            twice |= once & used
            once |= used
            hints |= self._parts.hints_of_actor[actor]
        found: list[int] = []
        for slot, actor in enumerate(actors):
            steps = self._steps.get(store << _BITS | actor)
            if steps is None:
                steps = self._look(store, actor)
            others = once & ~used_by[actor] | twice
            for step in steps:
                found.append(self._moved(actors, slot, step, others, hints))  # noqa: PERF401
            if actor in self._parts.waiting:
                found += self._minted(store, actors, slot)
        if self._spare in actors:
            found += self._sent_twice(store, actors)
        return found

    def _moved(self, actors: list[int], slot: int, step: Step, others: int, hints: int) -> int:
        """Return the state after a step, with claims numbered anew if need be."""
        store, actor, used, loose, ended = step
        then = actors.copy()
        then[slot] = actor
        if ended:
            self._check_same_answer(then, slot)
        used |= others
        if used & (used + 1) or (loose | hints) & ~used:
            store, then = self._renamed(store, then, _squeezed(used))
        return self._pack(store, then)

    def _renamed(self, store: int, actors: list[int], names: Renaming) -> tuple[int, list[int]]:
        parts = self._parts
        return parts.rename_store(store, names), [parts.rename_actor(a, names) for a in actors]

    def _pack(self, store: int, actors: list[int]) -> int:
        """Return a state as an integer; actors that are interchangeable are put in order."""
        for first, last in self._groups:
            if last - first == 2:
                if actors[first] > actors[first + 1]:
                    actors[first], actors[first + 1] = actors[first + 1], actors[first]
            else:
                actors[first:last] = sorted(actors[first:last])
        state = store
        for actor in reversed(actors):
            state = state << _BITS | actor
        return state

    def _minted(self, store: int, actors: list[int], slot: int) -> list[int]:
        """Return the states after a worker has minted a claim."""
        used = self._parts.used_by_store[store]
        for actor in actors:
            used |= self._parts.used_by_actor[actor]
        youngest = used.bit_length() + 1
        if youngest > self._setup.most:
            return []
        found = []
        for claim in range(1 if self._setup.skewed else youngest, youngest + 1):
            names = tuple(c + (c >= claim) for c in range(1, youngest))
            after, then = self._renamed(store, actors, names)
            then[slot] = self._parts.begin(actors[slot], claim)
            found.append(self._pack(after, then))
        return found

    def _sent_twice(self, store: int, actors: list[int]) -> list[int]:
        """Return the states after somebody's calls have been sent a second time."""
        found = []
        spare = actors.index(self._spare)
        for actor in actors:
            repeat = self._parts.repeat(actor)
            if repeat is not None:
                then = actors.copy()
                then[spare] = repeat
                found.append(self._pack(store, then))
        return found

    def _look(self, store: int, actor: int) -> tuple[Step, ...]:
        """Find the steps of a pair seen for the first time."""
        steps = self._steps[store << _BITS | actor] = self._parts.steps(store, actor)
        if not isinstance(self._parts.actors.values[actor], Repeat):
            self._check_alone(store, actor)
        return steps

    def _check_same_answer(self, actors: list[int], slot: int) -> None:
        """Check I3."""
        values = self._parts.actors.values
        document, answer = values[actors[slot]].document, values[actors[slot]].answer
        for actor in actors:
            other = values[actor]
            same = isinstance(other, Finished) and other.document == document
            if same and other.answer != answer:
                msg = f"I3: document {document} got {answer} and {other.answer}"
                raise Violation(msg)

    def _check_alone(self, store: int, actor: int) -> None:
        """Check that a worker comes to its end if from now on it is the only one."""
        path: list[int] = []
        pair = self._tidy(store, actor)
        while pair not in self._alone:
            if len(path) == _PATIENCE:
                msg = f"progress: {self._parts.actors.values[actor]} does not end by itself"
                raise Violation(msg)
            path.append(pair)
            try:
                pair = self._next_alone(pair)
            except Violation as found:
                # The search will come to it, by the shortest way, unless ``most`` keeps it away.
                self._broken_alone = str(found)
                return
        steps = self._alone[pair]
        for at in reversed(path):
            steps += 1
            self._alone[at] = steps

    def _next_alone(self, pair: int) -> int:
        store, actor = pair >> _BITS, pair & _MASK
        if isinstance(self._parts.actors.values[actor], Finished):
            self._alone[pair] = 0
            return pair
        if actor in self._parts.waiting:
            claim = self._parts.used_by_store[store].bit_length() + 1
            return self._tidy(store, self._parts.begin(actor, claim))
        steps = self._steps.get(pair)
        if steps is None:
            steps = self._steps[pair] = self._parts.steps(store, actor)
        return self._tidy(steps[0].store, steps[0].actor)

    def _tidy(self, store: int, actor: int) -> int:
        """Number the claims anew of a store with one actor."""
        parts = self._parts
        used = parts.used_by_store[store] | parts.used_by_actor[actor]
        loose = parts.void_in_store[store] | parts.hints_of_actor[actor]
        if used & (used + 1) or loose & ~used:
            store, (actor,) = self._renamed(store, [actor], _squeezed(used))
        return store << _BITS | actor

    def _told(self, before: dict[int, int], state: int) -> Iterator[str]:
        """Yield how the states came about, from the first to this one."""
        path = [state]
        while path[-1] != self._start:
            path.append(before[path[-1]])
        for at in reversed(path):
            yield self._described(at)

    def _described(self, state: int) -> str:
        store = self._parts.stores.values[state >> self._top]
        claims = [f"claim {at}: {kept}" for at, kept in enumerate(store, 1)]
        actors = [self._parts.described(state >> shift & _MASK) for shift in self._shifts]
        return "\n    ".join(["state", *claims, *actors])


def _groups(kinds: list[int]) -> list[tuple[int, int]]:
    """Return the ranges of equal ones, where there are at least two."""
    ranges = [(kinds.index(kind), kinds.index(kind) + kinds.count(kind)) for kind in set(kinds)]
    return [(first, last) for first, last in ranges if last - first > 1]
