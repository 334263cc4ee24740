"""What is mutated, and what is tried on the mutants of it.

The claim protocol: what decides whether a document becomes an original, from the protocol itself
to the bytes on their way to Redis, and the Functions there. The transaction loop: what takes
records from Kafka and publishes each answer once, with the default transport.

Not among them: the second transport (``confluent``), which only a real broker can test, 20 s for
each mutant, and which ``tests/integration/test_transports.py`` holds to the first; what runs
before or beside (handover, sweeps, forgetting, looking up, the description of an index); what is
said and counted only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tests.mutation.lua_mutants import lua_mutants
from tests.mutation.mutant import Mutant, read
from tests.mutation.python_mutants import python_mutants
from tests.mutation.rungs import Rung, pytests, redis_schedules, schedules, seeds


class Target(NamedTuple):
    """A file that is mutated.

    Attributes:
        path: from the root of the project.
        why: what of the protocol or the loop it is.
        rungs: what is tried on each mutant, the cheapest first, until one fails.
        only: functions of it that are mutated, with all that is in them; all of it if empty.
        but: functions that are not.
    """

    path: str
    why: str
    rungs: tuple[Rung, ...]
    only: frozenset[str] = frozenset()
    but: frozenset[str] = frozenset()

    def mutants(self) -> list[Mutant]:
        """Return all mutants of it."""
        source = read(self.path)
        if self.path.endswith(".lua"):
            return lua_mutants(self.path, source, self.only)
        every = python_mutants(self.path, source)
        unknown = [name for name in self.only | self.but if not _within(every, name)]
        if unknown:
            msg = f"{self.path} has no mutants in {', '.join(unknown)}"
            raise ValueError(msg)
        kept = [one for one in every if not self.only or _is_in(one, self.only)]
        return [one for one in kept if not _is_in(one, self.but)]


def _within(mutants: Sequence[Mutant], name: str) -> list[Mutant]:
    return [one for one in mutants if _is_in(one, frozenset({name}))]


def _is_in(mutant: Mutant, names: frozenset[str]) -> bool:
    return any(f"{mutant.function}.".startswith(f"{name}.") for name in names)


_PROTOCOL = (
    pytests("tests/unit/test_claims_calls.py"),
    schedules(3000),
    seeds(150),
    pytests("tests/unit/test_claims_exhaustive.py", only="holds_where"),
)
_CARRIED = (
    seeds(20),
    pytests("tests/integration/test_registering.py", "tests/integration/test_index_counts.py"),
    redis_schedules(200),
    pytests("tests/integration/test_paging.py", "tests/integration/test_durability.py"),
    seeds(150),
    pytests("tests/integration/test_index.py", only="redis"),
    pytests("tests/integration/test_revisions.py", "tests/integration/test_forgetting.py"),
)
_FUNCTIONS = (
    pytests("tests/integration/test_fence.py"),
    pytests("tests/integration/test_simulated_redis.py"),
    redis_schedules(200),
    pytests("tests/integration/test_paging.py", "tests/integration/test_registering.py"),
)
_LOOP = (
    pytests("tests/unit/test_loop_turns.py"),
    pytests("tests/unit/test_loop.py", "tests/unit/test_loop_forgetting.py"),
    pytests("tests/unit/test_counting.py"),
    seeds(150),
)
_TRANSPORT = (
    pytests("tests/unit/test_kafka_publish.py", "tests/unit/test_kafka_transport.py"),
    seeds(150),
    pytests("tests/integration/test_transports.py", only="kafka-python"),
)

TARGETS = (
    Target("stream_dedup/index/claims.py", "the protocol: its calls, in order", _PROTOCOL),
    Target(
        "stream_dedup/index/claiming.py",
        "which documents of a batch are claimed when, and what each answer is",
        (*_CARRIED, pytests("tests/integration/test_batches.py", only="on_redis")),
    ),
    Target(
        "stream_dedup/index/redis.py",
        "a batch cut into steps",
        _CARRIED,
        only=frozenset({"RedisIndex.claim"}),
    ),
    Target("stream_dedup/index/driver.py", "calls of many documents, side by side", _CARRIED),
    Target("stream_dedup/index/gathered.py", "which reply belongs to which call", _CARRIED),
    Target(
        "stream_dedup/index/registrations.py",
        "documents that are registered in one call, packed and unpacked",
        _CARRIED,
    ),
    Target(
        "stream_dedup/index/rounds.py",
        "calls packed, sent to their partitions, and replies unpacked",
        _CARRIED,
        but=frozenset({"Round.look"}),
    ),
    Target("stream_dedup/index/found.py", "candidates, page by page", _CARRIED),
    Target("stream_dedup/index/row_claims.py", "rows and claims, reply by reply", _CARRIED),
    Target(
        "stream_dedup/index/lua/claims.lua",
        "the Functions of the protocol: what is one step in Redis",
        _FUNCTIONS,
        only=frozenset(
            {"Sightings.new", "Sightings:add", "Sightings:packed", "members_at", "row_form"}
            | {"probe", "fence", "multiplied", "bucket_of", "farther", "register", "page", "put"}
            | {"read", "settle", "withdraw", "forget", "note"}
        ),
    ),
    Target("stream_dedup/stream/loop.py", "the loop: poll, decide, publish, again", _LOOP),
    Target("stream_dedup/stream/tombstones.py", "what a tombstone cuts a batch into", _LOOP),
    Target(
        "stream_dedup/stream/patience.py",
        "how long the loop and the transports go on trying",
        (pytests("tests/unit/test_patience.py"), *_LOOP),
    ),
    Target(
        "stream_dedup/stream/transactional.py",
        "what follows a failed transaction, and that nothing is published twice",
        _TRANSPORT,
    ),
    Target(
        "stream_dedup/stream/kafka.py",
        "the default transport: transactions with the membership that polled",
        _TRANSPORT,
    ),
    Target(
        "stream_dedup/stream/kafka_publish.py",
        "that each record of a transaction arrived, and where",
        _TRANSPORT,
    ),
    Target(
        "stream_dedup/stream/bounded.py",
        "calls of the client that may never return",
        (pytests("tests/unit/test_bounded.py"),),
    ),
)


def all_mutants() -> list[Mutant]:
    """Return the mutants of all targets."""
    return [mutant for target in TARGETS for mutant in target.mutants()]


def target_of(mutant: Mutant) -> Target:
    """Return the target that a mutant belongs to."""
    return next(target for target in TARGETS if target.path == mutant.path)
