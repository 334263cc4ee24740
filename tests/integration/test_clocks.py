"""Wrong clocks, of a worker or of Redis: they cost one more attempt, and nothing goes round."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import pytest

from stream_dedup import Deduplicator, Document, Settings, Status
from stream_dedup.index.functions import CLAIMS
from stream_dedup.index.keys import ClaimIds
from stream_dedup.index.redis import RedisIndex
from stream_dedup.index.rounds import Round

HOUR, DAY = 3600, 86_400
#: Rounds of calls in which a batch must be decided; with wrong clocks thousands went by in vain.
ROUNDS = 12
#: Where the Functions read the clock of Redis.
_TIME = "local now = redis.call('TIME')\n"


@pytest.fixture(params=[1, 4])
def settings(redis_url: str, request: pytest.FixtureRequest) -> Settings:
    return Settings(redis_url=redis_url, partitions=request.param, expected_originals=1000)


@pytest.fixture(autouse=True)
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the rounds; end a test that goes round."""
    counted = [0]
    run = Round.run

    def run_counted(self: Round, *arguments: object, **options: object) -> None:
        counted[0] += type(self) is Round  # those of a sweep have another
        assert counted[0] < 500, "hundreds of rounds, and nothing is decided"
        run(self, *arguments, **options)

    monkeypatch.setattr(Round, "run", run_counted)
    return counted


def documents(name: str, count: int = 5) -> list[Document]:
    """Make documents that are not near each other."""
    texts = [" ".join(f"{name}{n}x{place}" for place in range(30)) for n in range(count)]
    return [Document(f"{name}{n}", text, source=f"{name}{n}") for n, text in enumerate(texts)]


def copies(originals: Sequence[Document]) -> list[Document]:
    """Copy documents under other ids."""
    return [Document(f"copy of {one.id}", one.text, source="copies") for one in originals]


@contextmanager
def working(settings: Settings) -> Iterator[Deduplicator]:
    with closing(Deduplicator(settings, index=RedisIndex.connect(settings))) as deduplicator:
        yield deduplicator


def decided(worker: Deduplicator, batch: Sequence[Document]) -> set[Status]:
    return {decision.status for decision in worker.decide(batch)}


def sweep(settings: Settings) -> None:
    with closing(RedisIndex.connect(settings)) as index:
        index.sweep()


def step_redis(settings: Settings, seconds: int) -> None:
    """Let the Functions read another time than Redis has."""
    assert _TIME in CLAIMS.code
    stepped = f"{_TIME}  now[1] = string.format('%d', now[1] + {seconds})\n"
    with closing(RedisIndex.connect(settings)) as index:
        index.store.client.function_load(CLAIMS.code.replace(_TIME, stepped), replace=True)


def step_wall(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let the clock of this process step."""
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + seconds)


@pytest.mark.parametrize("step", [-HOUR, HOUR, -DAY, DAY])
def test_a_worker_whose_clock_has_stepped_decides(
    settings: Settings, rounds: list[int], monkeypatch: pytest.MonkeyPatch, step: float
) -> None:
    settings = settings.model_copy(update={"longest_attempt": 0.2})
    with working(settings) as worker, working(settings) as other:
        assert decided(worker, documents("a")) == {Status.ORIGINAL}
        step_wall(monkeypatch, step)
        time.sleep(2 * settings.longest_attempt)
        sweep(settings)
        rounds[0] = 0

        assert decided(worker, documents("b")) == {Status.ORIGINAL}
        assert rounds[0] <= ROUNDS
        assert decided(other, copies(documents("a") + documents("b"))) == {Status.EXACT_DUPLICATE}


@pytest.mark.parametrize("step", [-DAY, DAY])
def test_workers_go_on_when_the_clock_of_redis_was_wrong_during_a_sweep(
    settings: Settings, rounds: list[int], step: int
) -> None:
    with working(settings) as worker:
        assert decided(worker, documents("a")) == {Status.ORIGINAL}
        with closing(RedisIndex.connect(settings)) as sweeping:
            step_redis(settings, step)
            sweeping.sweep()
        with working(settings) as later:  # puts the right clock back
            rounds[0] = 0
            assert decided(worker, documents("b")) == {Status.ORIGINAL}
            assert decided(later, documents("c")) == {Status.ORIGINAL}
            sweep(settings)
            assert decided(later, copies(documents("b"))) == {Status.EXACT_DUPLICATE}
        assert rounds[0] <= 4 * ROUNDS


def test_an_index_that_a_fence_ahead_of_time_has_blocked_recovers(
    settings: Settings, rounds: list[int]
) -> None:
    ahead = ClaimIds.first_at(time.time() + DAY).to_bytes(8, "big")
    with working(settings) as running:
        assert decided(running, documents("a")) == {Status.ORIGINAL}
        with closing(RedisIndex.connect(settings)) as index:
            for partition in range(settings.partitions):
                index.store.client.set(f"{index.store.layout.partition_key(partition)}f", ahead)
        rounds[0] = 0

        assert decided(running, documents("b")) == {Status.ORIGINAL}
        assert rounds[0] <= ROUNDS
    with working(settings) as started:
        assert decided(started, documents("c")) == {Status.ORIGINAL}
        assert decided(started, copies(documents("b"))) == {Status.EXACT_DUPLICATE}


def test_a_sweep_that_began_by_a_clock_ahead_does_not_hold_up_the_next(settings: Settings) -> None:
    with closing(RedisIndex.connect(settings)) as index:
        index.store.client.hset(index.store.layout.index_key, "began", str(time.time() + DAY))

        assert index.store.turn(600, 600)
        assert not index.store.turn(600, 600)
