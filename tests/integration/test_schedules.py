"""The claim protocol and its Functions keep the invariants in random orders of events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from importlib.resources import files
from typing import NamedTuple

import pytest

from stream_dedup import Settings
from stream_dedup.index.clock import Incarnation
from stream_dedup.index.redis import RedisIndex
from stream_dedup.index.store import RedisStore
from tests.models.redis_claims import Group, RedisSchedule, counts, findings

SCHEDULES = 10_000
#: Schedules that go side by side.
GROUP = 500


@contextmanager
def opened(redis_url: str, partitions: int = 4) -> Iterator[RedisStore]:
    """Load the functions and enter an index laid out so small that its keys are shared."""
    settings = Settings(redis_url=redis_url, partitions=partitions, expected_originals=1_000)
    with closing(RedisIndex.connect(settings)) as index:
        yield index.store


def run(
    store: RedisStore, seeds: Sequence[int], *, by_hamming: bool = False
) -> list[RedisSchedule]:
    """Run schedules on an emptied Redis."""
    store.client.flushdb()
    store.incarnation = Incarnation(store.clock)  # which has written nothing yet
    group = Group(store, seeds, by_hamming=by_hamming)
    group.run()
    return group.schedules


@pytest.mark.parametrize(("partitions", "by_hamming"), [(1, False), (1, True), (4, False)])
def test_no_schedule_on_redis_breaks_an_invariant_or_ends_otherwise_than_the_model(
    redis_url: str, partitions: int, by_hamming: bool
) -> None:
    reached: Counter[str] = Counter()
    found: list[str] = []

    with opened(redis_url, partitions) as store:
        for first in range(0, SCHEDULES // 2, GROUP):
            seeds = range(first, first + GROUP)
            schedules = run(store, seeds, by_hamming=by_hamming)
            found += findings(schedules, seeds)
            reached.update(counts(schedules))

    assert found == []
    assert min(reached[path] for path in ("retried", "voided", "duplicates")) > SCHEDULES // 100


class Variant(NamedTuple):
    """The functions with a mistake: each text is replaced by another."""

    name: str
    changes: tuple[tuple[str, str], ...]
    partitions: int = 4
    by_hamming: bool = False


#: Mistakes that let near originals, wrong answers or missing entries come about.
DANGEROUS = [
    Variant(
        "a void overwrites an original",
        (("(stands == 'P' and fate == 'V')", "fate == 'V'"),),
    ),
    Variant(
        "an original overwrites a void",
        (
            (
                "call('HSET', key, claim, 'V')",
                "call('HSET', key, claim, 'V' .. sub(value or '', 2))",
            ),
            ("elseif stands == 'P' then", "elseif fate == 'O' and #value > 1 then"),
        ),
    ),
    Variant(
        "a second put overwrites the fate",
        (
            (
                "call('HSETNX', key, claim, 'P' .. record) == 1",
                "call('HSET', key, claim, 'P' .. record) >= 0",
            ),
        ),
    ),
    Variant("a probe inserts without looking", (("for i = 1, #members do", "for i = 1, 0 do"),)),
    Variant(
        "a probe does not insert when forced",
        (("mode == 2 or (mode == 1 and others == 0)", "mode == 1 and others == 0"),),
    ),
    Variant(
        "a probe inserts only when it may look only",
        (("mode == 2 or (mode == 1 and others == 0)", "mode == 2"),),
    ),
    Variant(
        "a claim without a record is not voided",
        (("call('HSET', key, claim, 'V')", "if value then call('HSET', key, claim, 'V') end"),),
    ),
    Variant("a document is registered whoever it meets", (("if not fate then", "do"),), 1),
    Variant(
        "a document is registered under no key",
        (("call('ZADD', places[i], places[i + 1], claim)", "call('ZSCORE', places[i], claim)"),),
        1,
    ),
    Variant(
        "who is just near by Hamming distance is passed over",
        (("distance > most", "distance >= most"),),
        1,
        by_hamming=True,
    ),
    Variant(
        "who has no record yet is passed over",
        (
            (
                "if not value or sub(value, 1, 1) == 'V' then\n      return false",
                "if not value or sub(value, 1, 1) == 'V' then\n      return true",
            ),
        ),
        1,
        by_hamming=True,
    ),
]

#: Mistakes that leave something behind or out, which only the comparison with the model shows.
UNTIDY = [
    Variant("a withdrawal removes nothing", (("call('ZREM'", "call('ZSCORE'"),)),
    Variant(
        "who is under a key is taken for whom the last key had",
        (("tonumber(redis.call('ZSCORE', key, known) or -1) == tonumber(score)", "true"),),
        1,
    ),
    Variant("a record is never forgotten", (("call('HDEL'", "call('HGET'"),)),
]


def load(store: RedisStore, variant: Variant) -> None:
    """Put a variant in the place of the functions."""
    code = files("stream_dedup.index").joinpath("lua/claims.lua").read_text()
    for old, new in variant.changes:
        assert old in code
        code = code.replace(old, new)
    store.client.function_load(code, replace=True)


def name_of(variant: Variant) -> str:
    return variant.name.replace(" ", "-")


@pytest.mark.parametrize("variant", DANGEROUS, ids=name_of)
def test_a_dangerous_mistake_in_the_functions_breaks_an_invariant(
    redis_url: str, variant: Variant
) -> None:
    with opened(redis_url, variant.partitions) as store:
        load(store, variant)
        groups = (
            run(store, range(first, first + GROUP), by_hamming=variant.by_hamming)
            for first in range(0, SCHEDULES, GROUP)
        )

        assert any(schedule.violations() for schedules in groups for schedule in schedules)


@pytest.mark.parametrize("variant", UNTIDY, ids=name_of)
def test_an_untidy_mistake_in_the_functions_differs_from_the_model(
    redis_url: str, variant: Variant
) -> None:
    with opened(redis_url, variant.partitions) as store:
        load(store, variant)

        assert list(findings(run(store, range(GROUP)), range(GROUP)))
