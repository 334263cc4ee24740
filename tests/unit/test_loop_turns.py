"""Single turns of the loop: what each returns, how often it shows progress, what it times."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest
from prometheus_client import REGISTRY

from stream_dedup import metrics
from stream_dedup.errors import ServiceError
from stream_dedup.settings import Settings
from stream_dedup.stream.loop import Loop
from stream_dedup.stream.tombstones import Tombstone, cut
from stream_dedup.stream.transport import Output, Partition, PublishError, Record
from stream_dedup.types import Decision, Document, DocumentId, Method, Status


class Message(NamedTuple):
    """An input record."""

    value: bytes | None
    offset: int = 0
    key: bytes | None = b"k"
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp: int = 1000
    topic: str = "documents"
    partition: int = 0


class Batch(list[Message]):
    """Can be waited for."""


class Turning:
    """All that a loop touches; every call takes a second more than the one before.

    Attributes:
        polls: what the next polls return.
        failures: what the next calls raise, by their name.
        calls: what was called, in order.
    """

    def __init__(self, *polls: Sequence[Message]) -> None:
        self.polls = list(polls)
        self.failures: dict[str, list[Exception]] = {}
        self.calls: list[str] = []
        self.outputs: list[Output] = []
        self.now = 50.0
        self.beats = 0
        self.stops = False
        self.lags = 0

    def _do(self, name: str) -> None:
        self.calls.append(name)
        self.now += len(self.calls)
        if self.failures.get(name):
            raise self.failures[name].pop(0)

    def poll(self) -> Sequence[Record]:
        self._do("poll")
        return self.polls.pop(0) if self.polls else []

    def publish(self, outputs: Sequence[Output]) -> None:
        self._do("publish")
        self.outputs += outputs

    def lag(self) -> Mapping[Partition, int]:
        self.lags += 1
        return {}

    def stay(self) -> None:
        pass

    def unmark(self) -> None:
        pass

    def joined(self) -> bool:
        return True

    def close(self) -> None:
        pass

    def decide(self, documents: Sequence[Document]) -> list[Decision]:
        self._do("decide")
        return [
            Decision(Status.ORIGINAL, "a" * 24, one.id, Method.MINHASH, "b" * 16)
            for one in documents
        ]

    def forget(self, ids: Sequence[DocumentId]) -> Sequence[int]:
        self._do("forget")
        return [0] * len(ids)

    def settle(self) -> None:
        self._do("settle")

    def discard(self) -> None:
        self._do("discard")

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return 1_700_000_000.0

    def sleep(self, seconds: float, /) -> None:
        self._do("sleep")

    def beat(self) -> None:
        self.beats += 1

    def published(self, *_: Any) -> None:
        self._do("published")

    def unsettled(self, *_: Any) -> None:
        self._do("unsettled")


def looping(world: Turning) -> Loop:
    return Loop(
        Settings(),
        world,
        world,
        world,
        stopping=lambda: world.stops,
        beat=world.beat,
        observer=world,
    )


def two() -> list[Message]:
    return [Message(b'{"id": %d, "text": "t"}' % number, number) for number in range(2)]


def seconds(stage: str) -> float:
    return REGISTRY.get_sample_value("stream_dedup_stage_seconds_total", {"stage": stage}) or 0.0


def counted(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(f"stream_dedup_{name}_total", labels)


class TestCounters:
    def test_they_are_there_from_the_beginning(self) -> None:
        metrics.documents_total.clear()
        metrics.dead_letters_total.clear()

        looping(Turning())

        assert counted("documents", status="exact_duplicate") == 0
        assert counted("dead_letters", reason="refused") == 0

    def test_failures_of_the_index_and_of_publishing(self) -> None:
        names = ("index_retries", "transaction_aborts")
        before = [counted(name) or 0.0 for name in names]
        world = Turning(two())
        world.failures["decide"] = [ServiceError("gone")] * 2
        world.failures["publish"] = [PublishError("lost")]

        looping(world).step()

        after = [counted(name) or 0.0 for name in names]
        assert [now - was for now, was in zip(after, before, strict=True)] == [2, 1]


class TestTurns:
    def test_it_returns_how_many_were_published(self) -> None:
        world = Turning(two(), [])
        loop = looping(world)

        assert [loop.step(), loop.step()] == [2, 0]
        assert world.calls == ["poll", "decide", "publish", "settle", "published", "poll"]
        assert world.lags == 2

    def test_nothing_where_it_failed(self) -> None:
        world = Turning(two())
        world.failures["publish"] = [PublishError("lost")]

        assert looping(world).step() == 0
        assert world.calls == ["poll", "decide", "publish", "discard", "sleep", "unsettled"]

    def test_nothing_where_it_is_asked_to_stop_meanwhile(self) -> None:
        world = Turning(two())
        world.failures["decide"] = [ServiceError("gone")] * 9
        world.stops = True

        assert looping(world).step() == 0
        assert world.calls == ["poll", "decide", "sleep"]

    @pytest.mark.parametrize("value", [b"{", b'{"id": 1, "text": 2}', b"x" * 2_000_000])
    def test_a_batch_with_a_dead_letter_is_not_kept(self, value: bytes) -> None:
        batch = Batch([*two(), Message(value)])
        left = weakref.ref(batch)
        world = Turning(batch)
        del batch
        gc.disable()
        try:
            assert looping(world).step() == 3
            assert left() is None
        finally:
            gc.enable()

    def test_stages_are_timed(self) -> None:
        stages = ("poll", "decode", "decide", "annotate", "publish")
        before = [seconds(stage) for stage in stages]

        looping(Turning(two())).step()

        spent = [seconds(stage) - was for stage, was in zip(stages, before, strict=True)]
        # Other tests add parts of a second to the same counters.
        assert spent == pytest.approx([1, 0, 2, 0, 3 + 4])

    def test_each_sign_of_progress_is_shown(self) -> None:
        world = Turning(two())
        looping(world).step()
        assert world.beats == 1

        world = Turning(two())
        world.failures["decide"] = [ServiceError("gone")] * 3
        looping(world).step()
        assert world.beats == 1 + 3

    def test_and_each_turn_is_one(self) -> None:
        world = Turning()
        loop = looping(world)
        poll = world.poll

        def stop() -> Sequence[Record]:
            world.stops = len(world.calls) == 2
            return poll()

        world.poll = stop  # type: ignore[method-assign]
        loop.run()

        assert world.beats == 3

    def test_the_lag_is_read_while_there_is_nothing_to_do(self) -> None:
        world = Turning()

        looping(world).step()

        assert world.lags == 1

    def test_a_poll_of_tombstones_asks_for_no_decision(self) -> None:
        world = Turning([Message(None)])

        assert looping(world).step() == 1
        assert world.calls == ["poll", "forget", "publish", "settle", "published"]

    def test_failures_that_follow_a_success_are_counted_anew(self) -> None:
        world = Turning(two(), two(), two())
        world.failures["publish"] = [PublishError("lost")]
        loop = looping(world)
        loop.step()
        world.now += 1000  # longer than it is patient
        assert loop.step() == 2
        world.failures["publish"] = [PublishError("lost")]

        assert loop.step() == 0

    def test_what_was_refused_is_forgotten_once_it_is_answered(self) -> None:
        world = Turning(two(), two(), two())
        world.failures["publish"] = [PublishError("refused", {("documents", 0, 1): "large"})]
        loop = looping(world)

        assert [loop.step(), loop.step(), loop.step()] == [0, 2, 2]
        topics = [output.topic.rpartition(".")[2] for output in world.outputs]
        assert topics == ["annotated", "dead-letter", "annotated", "annotated"]

    def test_a_settling_that_fails_is_no_failure_of_the_batch(self) -> None:
        world = Turning(two())
        world.failures["settle"] = [ServiceError("gone")]

        assert looping(world).step() == 2


def test_a_batch_is_cut_by_its_tombstones() -> None:
    stones = [Tombstone(2, ["a"]), Tombstone(2, ["b", "c"]), Tombstone(3, ["d"])]

    assert list(cut(5, stones)) == [
        (slice(0, 2), ["a", "b", "c"]),
        (slice(2, 3), ["d"]),
        (slice(3, 5), []),
    ]
    assert list(cut(1, [])) == [(slice(0, 1), [])]


@pytest.mark.parametrize("timestamp", [0, 1])
def test_the_first_moments_are_event_times_too(timestamp: int) -> None:
    seen: list[Document] = []

    class Seeing(Turning):
        def decide(self, documents: Sequence[Document]) -> list[Decision]:
            seen.extend(documents)
            return super().decide(documents)

    looping(Seeing([Message(b'{"id": 1, "text": "t"}', timestamp=timestamp)])).step()

    assert seen[0].time == timestamp / 1000
