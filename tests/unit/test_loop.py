"""The loop over a scripted transport: what is published, and that it is published once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY, CollectorRegistry, Histogram

from stream_dedup import metrics
from stream_dedup.errors import ServiceError
from stream_dedup.settings import Settings
from stream_dedup.stream.damaged import Damaged
from stream_dedup.stream.loop import Loop, Observer
from stream_dedup.stream.patience import GIVE_UP_SECONDS
from stream_dedup.stream.poison import Reason
from stream_dedup.stream.tombstones import Tombstone
from stream_dedup.stream.transport import Output, Partition, Position, PublishError, Record
from stream_dedup.types import Decision, Document, DocumentId, Method, Status

SETTINGS = Settings(batch_documents=4, max_document_bytes=200_000)
NOW = 1_700_000_000.25


class Message(NamedTuple):
    """An input record."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp: int = 1_699_999_999_000
    topic: str = "documents"
    partition: int = 0
    offset: int = 0


class ScriptedTransport:
    """A log with two partitions, a committed offset for each, and failures by script.

    A script entry is taken by each publish: ``None`` works, ``"lost"`` fails and has no effect,
    ``"late"`` fails after it took effect, an exception is raised, a function refuses outputs.
    """

    def __init__(self, messages: Sequence[Message], script: Sequence[Any] = ()) -> None:
        self.logs: dict[int, list[Message]] = {0: [], 1: []}
        for number, message in enumerate(messages):
            log = self.logs[number % 2]
            log.append(message._replace(partition=number % 2, offset=len(log)))
        self.script = list(script)
        self.committed = {0: 0, 1: 0}
        self.position = {0: 0, 1: 0}
        self.published: list[Output] = []
        self.attempts = 0
        self.unmarked = 0

    def poll(self) -> Sequence[Record]:
        batch: list[Record] = []
        for number, log in self.logs.items():
            start = self.position[number]
            chosen = log[start : start + 2]
            self.position[number] += len(chosen)
            batch += chosen
        return batch

    def publish(self, outputs: Sequence[Output]) -> None:
        self.attempts += 1
        step = self.script.pop(0) if self.script else None
        refused: Mapping[Position, str] = step(outputs) if callable(step) else {}
        if isinstance(step, Exception):
            raise step
        if step == "lost" or refused:
            self.position = dict(self.committed)
            message = "lost"
            raise PublishError(message, refused or None)
        self.published += outputs
        self.committed = dict(self.position)
        if step == "late":
            message = "the answer to the commit was lost"
            raise PublishError(message)

    def lag(self) -> Mapping[Partition, int]:
        ends = {("documents", number): len(log) for number, log in self.logs.items()}
        return {place: end - self.position[place[1]] for place, end in ends.items()}

    def joined(self) -> bool:
        return True

    def stay(self) -> None:
        pass

    def unmark(self) -> None:
        self.unmarked += 1

    def close(self) -> None:
        pass


class FakeClock:
    """Time passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return NOW

    def sleep(self, seconds: float, /) -> None:
        self.slept.append(seconds)
        self.now += seconds


class FakeDeduplicator:
    """Calls every second sight of a text a duplicate; fails as often as told."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.seen: list[list[Document]] = []
        #: What was decided and forgotten, in order.
        self.calls: list[list[DocumentId]] = []
        self.settled = 0
        self.discarded = 0

    def decide(self, documents: Sequence[Document]) -> list[Decision]:
        self.seen.append(list(documents))
        if self.failures:
            self.failures -= 1
            message = "Redis does not answer."
            raise ServiceError(message)
        self.calls.append([document.id for document in documents])
        return [
            Decision(Status.ORIGINAL, "a" * 24, document.id, Method.MINHASH, "b" * 16)
            for document in documents
        ]

    def forget(self, ids: Sequence[DocumentId]) -> list[int]:
        self.calls.append([f"forget {one!r}" for one in ids])
        return [0] * len(ids)

    def settle(self) -> None:
        self.settled += 1

    def discard(self) -> None:
        self.discarded += 1


def drain(
    transport: ScriptedTransport,
    deduplicator: FakeDeduplicator | None = None,
    clock: FakeClock | None = None,
    observer: Observer | None = None,
    **settings: Any,
) -> list[Output]:
    """Run until everything is committed."""
    loop = Loop(
        SETTINGS.model_copy(update=settings),
        transport,
        deduplicator or FakeDeduplicator(),
        clock or FakeClock(),
        stopping=lambda: transport.committed == {n: len(log) for n, log in transport.logs.items()},
        observer=observer,
    )
    loop.run()
    return transport.published


def places(outputs: Sequence[Output]) -> Counter[tuple[int, int]]:
    return Counter((output.record.partition, output.record.offset) for output in outputs)


def headers(output: Output) -> dict[str, bytes]:
    return dict(output.headers)


def metric(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"stream_dedup_{name}", labels) or 0.0


def texts(count: int) -> list[Message]:
    return [Message(b'{"id": %d, "text": "t"}' % number) for number in range(count)]


class TestAnnotations:
    def test_key_headers_timestamp_and_bytes_are_kept(self) -> None:
        message = Message(
            b'{"id": "x", "text": "t", "n": 1.10}', b"k", [("trace", b"1"), ("null", None)], 1234
        )

        (output,) = drain(ScriptedTransport([message]))

        assert output.topic == "documents.annotated"
        assert (output.key, output.timestamp) == (b"k", 1234)
        assert output.value is not None
        assert output.value.startswith(message.value[:-1])  # type: ignore[index]
        assert json.loads(output.value)["dedup"] == {
            "status": "original",
            "duplicate_id": "a" * 24,
            "original_id": "x",
            "method": "minhash",
            "configuration": "b" * 16,
            "decided_at": "2023-11-14T22:13:20.250Z",
        }
        assert output.headers == [
            ("trace", b"1"),
            ("null", b""),
            ("dedup-status", b"original"),
            ("dedup-duplicate-id", b"a" * 24),
            ("dedup-original-id", b"x"),
            ("dedup-source", b"documents/0/0"),
        ]

    def test_headers_of_an_earlier_annotation_are_replaced(self) -> None:
        message = Message(b'{"id": 1, "text": "t"}', headers=[("dedup-status", b"old")])

        (output,) = drain(ScriptedTransport([message]))

        assert [value for name, value in output.headers if name == "dedup-status"] == [b"original"]

    @pytest.mark.parametrize(
        ("key", "expected"),
        [
            (b"caf\xc3\xa9", "café"),
            (b"\xff", "documents/0/0"),
            (b"", "documents/0/0"),
            (None, "documents/0/0"),
            (b"x" * 1025, "documents/0/0"),
        ],
    )
    def test_without_an_id_the_key_names_a_document_else_its_place(
        self, key: bytes | None, expected: str
    ) -> None:
        deduplicator = FakeDeduplicator()

        drain(ScriptedTransport([Message(b'{"text": "t"}', key)]), deduplicator)

        document = deduplicator.seen[0][0]
        assert (document.id, document.source) == (expected, "documents/0/0")

    @pytest.mark.parametrize(("timestamp", "expected"), [(1500, 1.5), (-1, None)])
    def test_the_timestamp_is_the_event_time(self, timestamp: int, expected: float | None) -> None:
        deduplicator = FakeDeduplicator()

        drain(ScriptedTransport([Message(b'{"text": "t"}', timestamp=timestamp)]), deduplicator)

        assert deduplicator.seen[0][0].time == expected


POISON = {
    Reason.TOMBSTONE: None,
    Reason.TOO_LARGE: b'{"text": "' + b"x" * 200_000 + b'"}',
    Reason.NOT_UTF8: b'{"text": "\xff"}',
    Reason.NOT_JSON: b"hello",
    Reason.NOT_AN_OBJECT: b"[]",
    Reason.TOO_DEEP: b'{"text": "a", "x": ' + b"[" * 9999 + b"]" * 9999 + b"}",
    Reason.MISSING_TEXT: b"{}",
    Reason.WRONG_TYPE: b'{"text": 1}',
    Reason.BAD_ID: b'{"text": "a", "id": []}',
    Reason.BAD_TIME: b'{"text": "a", "at": "noon"}',
    Reason.BAD_RANK: b'{"text": "a", "rank": "first"}',
    Reason.BAD_HEADER: b'{"text": "a"}',
    Reason.UNREADABLE: None,
    Reason.FATAL: b'{"text": "a"}',
}
#: What the client tells itself, and which parts of the record it lacks then.
DAMAGE = {Reason.BAD_HEADER: (), Reason.FATAL: (), Reason.UNREADABLE: ("value", "key", "headers")}


class Alternating(FakeDeduplicator):
    """Calls an original, a near and an exact duplicate of it in turn."""

    def decide(self, documents: Sequence[Document]) -> list[Decision]:
        decided = super().decide(documents)
        return [
            msgspec.structs.replace(
                one, status=list(Status)[int(document.id) % 3], original_id=0, similarity=0.9
            )
            for document, one in zip(documents, decided, strict=True)
        ]


class TestMembers:
    def published(self, **settings: Any) -> list[Output]:
        return drain(ScriptedTransport(texts(6), ["lost"]), Alternating(), **settings)

    def members(self, **settings: Any) -> list[Output]:
        outputs = self.published(groups_topic="groups", **settings)
        annotated = [o for o in outputs if o.topic == "documents.annotated"]
        assert len(annotated) == 6
        return [output for output in outputs if output.topic == "documents.members"]

    def test_without_a_topic_for_groups_nobody_is_told(self) -> None:
        assert {output.topic for output in self.published()} == {"documents.annotated"}

    def test_a_group_is_told_of_each_duplicate_by_its_key(self) -> None:
        members = self.members()

        assert all(m.by_key and m.key == b"a" * 24 and m.timestamp is None for m in members)
        values = [json.loads(member.value or b"") for member in members]
        assert sorted(value["id"] for value in values) == [1, 2, 4, 5]
        assert {value["id"]: value for value in values}[1] == {
            "duplicate_id": "a" * 24,
            "original_id": 0,
            "id": 1,
            "status": list(Status)[1],
            "time": 1_699_999_999.0,
            "similarity": 0.9,
        }

    def test_a_group_can_be_told_of_originals_too(self) -> None:
        values = [json.loads(m.value or b"") for m in self.members(members_of="all")]

        assert sorted(value["id"] for value in values) == [0, 1, 2, 3, 4, 5]
        assert {v["id"] for v in values if v["status"] == "original"} == {0, 3}

    def test_a_dead_letter_is_in_no_group(self) -> None:
        messages = [Message(b'{"id": 1, "text": 5}'), *texts(2)]

        outputs = drain(ScriptedTransport(messages), Alternating(), groups_topic="groups")

        assert Counter(output.topic for output in outputs) == {
            "documents.annotated": 2,
            "documents.members": 1,
            "documents.dead-letter": 1,
        }


class TestDeadLetters:
    def test_every_reason_is_tried_here_but_refused_which_has_a_test_of_its_own(self) -> None:
        assert set(POISON) == set(Reason) - {Reason.REFUSED}

    def test_a_record_that_processes_died_at_is_not_looked_at(self) -> None:
        """What it holds would be decoded and decided, if it were."""
        deduplicator = FakeDeduplicator()
        fatal = Damaged([("trace", b"1")], Reason.FATAL, "3 processes died at it.")
        message = Message(b'{"id": "killer", "text": "t"}', b"k", fatal)

        outputs = drain(ScriptedTransport([message, *texts(1)]), deduplicator)

        assert deduplicator.calls == [[0]]
        (letter,) = (output for output in outputs if output.topic == "documents.dead-letter")
        assert (letter.key, letter.value) == (message.key, message.value)
        found = headers(letter)
        assert (found["dead-letter-reason"], found["trace"]) == (b"fatal", b"1")

    @pytest.mark.parametrize("reason", POISON, ids=str)
    def test_poison_goes_aside_and_the_others_go_on(self, reason: Reason) -> None:
        key = b"\xff" if reason is Reason.TOMBSTONE else b"k"
        trace: list[tuple[str, bytes | None]] = [("trace", b"1")]
        if reason in DAMAGE:
            trace = Damaged(trace, reason, "It is damaged.", DAMAGE[reason])
        poison = Message(POISON[reason], key, trace)
        before = metric("dead_letters_total", reason=str(reason))

        outputs = drain(
            ScriptedTransport([*texts(1), poison, *texts(4)]), time_field="at", rank_field="rank"
        )

        (letter,) = (output for output in outputs if output.topic == "documents.dead-letter")
        assert places(outputs) == Counter({(p, o): 1 for p in (0, 1) for o in range(3)})
        found = headers(letter)
        assert found.pop("dead-letter-detail")
        lost = ("value",) if reason is Reason.TOO_LARGE else DAMAGE.get(reason, ())
        truncated = {"dead-letter-truncated": ",".join(lost).encode()} if lost else {}
        assert found == {
            "trace": b"1",
            "dead-letter-reason": reason.encode(),
            "source-topic": b"documents",
            "source-partition": b"1",
            "source-offset": b"0",
            **truncated,
        }
        assert (letter.key, letter.timestamp) == (key, poison.timestamp)
        expected = POISON[reason]
        assert letter.value == (expected and expected[:65_536])
        assert metric("dead_letters_total", reason=str(reason)) == before + 1

    @pytest.mark.parametrize(
        ("came", "leaves"),
        [
            (b"1", b"1"),
            (b"12", b"12"),
            (b"0", None),
            (b"-1", None),
            (b"x", None),
            (b"9" * 20, None),
            (None, None),
        ],
    )
    def test_how_often_it_was_replayed_stays_with_it(
        self, came: bytes | None, leaves: bytes | None
    ) -> None:
        message = Message(b"poison", b"k", [("dead-letter-replays", came)])

        (letter,) = drain(ScriptedTransport([message]))

        assert headers(letter).get("dead-letter-replays") == leaves

    def test_a_tombstone_without_a_key_gets_an_empty_value(self) -> None:
        (letter,) = drain(ScriptedTransport([Message(None)]))

        assert (letter.key, letter.value) == (None, b"")

    def test_a_batch_of_poison_alone_is_not_decided(self) -> None:
        deduplicator = FakeDeduplicator()

        outputs = drain(ScriptedTransport([Message(b"x"), Message(b"y")]), deduplicator)

        assert len(outputs) == 2
        assert deduplicator.seen == []

    def test_what_the_broker_refuses_becomes_a_dead_letter(self) -> None:
        big = Message(
            b'{"id": "big", "text": "t", "x": "' + b"x" * 99_999 + b'"}',
            b"k" * 70_000,
            [("h", b"v" * 70_000)],
        )

        def refuse(outputs: Sequence[Output]) -> Mapping[Position, str]:
            return {("documents", 0, 0): "too large"} if outputs else {}

        outputs = drain(ScriptedTransport([big, *texts(5)], [refuse]))

        assert places(outputs) == Counter({(p, o): 1 for p in (0, 1) for o in range(3)})
        (letter,) = (output for output in outputs if output.topic == "documents.dead-letter")
        found = headers(letter)
        assert found["dead-letter-reason"] == b"refused"
        assert found["dead-letter-truncated"] == b"value,key,headers"
        assert "h" not in found
        assert (len(letter.value or b""), len(letter.key or b"")) == (65_536, 65_536)
        assert letter.timestamp is None

    def test_a_dead_letter_that_is_refused_too_goes_without_what_it_came_with(self) -> None:
        def refuse(_outputs: Sequence[Output]) -> Mapping[Position, str]:
            return {("documents", 0, 0): "too large"}

        message = Message(b'{"text": "t"}', b"k", [("h", b"v")])
        outputs = drain(ScriptedTransport([message, *texts(3)], [refuse, refuse]))

        assert places(outputs) == Counter({(p, o): 1 for p in (0, 1) for o in range(2)})
        (letter,) = (output for output in outputs if output.topic == "documents.dead-letter")
        found = headers(letter)
        assert (letter.key, letter.value) == (b"documents/0/0", b"")
        assert "h" not in found
        assert found["dead-letter-truncated"] == b"value,key,headers"
        assert found["source-offset"] == b"0"

    def test_a_topic_that_takes_no_dead_letter_at_all_ends_the_program(self) -> None:
        def refuse(_outputs: Sequence[Output]) -> Mapping[Position, str]:
            return {("documents", 0, 0): "too large"}

        with pytest.raises(ServiceError, match="less than 1 KB"):
            drain(ScriptedTransport(texts(1), [refuse] * 3))

    def test_refusals_are_no_outage(self) -> None:
        """However many come, nothing is waited for, and no patience comes to its end."""
        clock = FakeClock()

        def refuse(outputs: Sequence[Output]) -> Mapping[Position, str]:
            annotated = [one for one in outputs if one.topic == "documents.annotated"]
            first = annotated[0].record if annotated else None
            return {(first.topic, first.partition, first.offset): "no"} if first else {}

        outputs = drain(ScriptedTransport(texts(300), [refuse] * 999), clock=clock)

        assert len(outputs) == 300
        assert clock.slept == []


class TestFailures:
    @pytest.mark.parametrize("failure", ["lost", "late"])
    def test_a_failed_publish_is_done_again_once(self, failure: str) -> None:
        transport = ScriptedTransport(texts(10), [None, failure])
        before = metric("transaction_aborts_total")

        outputs = drain(transport)

        assert places(outputs) == Counter({(p, o): 1 for p in (0, 1) for o in range(5)})
        assert metric("transaction_aborts_total") == before + 1

    @given(st.lists(st.sampled_from([None, "lost", "late"]), max_size=12), st.integers(0, 30))
    def test_any_failures_leave_each_record_published_once(
        self, script: list[str | None], count: int
    ) -> None:
        transport = ScriptedTransport(texts(count), script)

        outputs = drain(transport)

        expected = {(n % 2, n // 2): 1 for n in range(count)}
        assert places(outputs) == Counter(expected)
        for number in (0, 1):
            offsets = [o.record.offset for o in outputs if o.record.partition == number]
            assert offsets == sorted(offsets)

    def test_nothing_is_counted_before_it_is_published(self) -> None:
        before = metric("documents_total", status="original")

        drain(ScriptedTransport(texts(4), ["lost", "lost"]))

        assert metric("documents_total", status="original") == before + 4

    def test_a_publish_that_always_fails_ends_the_program(self) -> None:
        clock = FakeClock()

        with pytest.raises(ServiceError, match="60 s"):
            drain(ScriptedTransport(texts(4), ["lost"] * 99), clock=clock)

        assert GIVE_UP_SECONDS <= clock.now < GIVE_UP_SECONDS + 10

    def test_an_error_that_nothing_mends_passes_through(self) -> None:
        error = ServiceError("Kafka is gone.")

        with pytest.raises(ServiceError, match="Kafka is gone"):
            drain(ScriptedTransport(texts(4), [error]))

    def test_while_the_index_is_away_the_same_batch_is_decided_again(self) -> None:
        clock, deduplicator = FakeClock(), FakeDeduplicator(failures=3)
        transport = ScriptedTransport(texts(4))

        outputs = drain(transport, deduplicator, clock)

        assert len(outputs) == 4
        assert transport.attempts == 1
        assert deduplicator.seen == [deduplicator.seen[0]] * 4
        assert clock.slept == [0.1, 0.2, 0.4]

    def test_what_is_waited_for_is_not_blamed_on_the_batch(self) -> None:
        transport = ScriptedTransport(texts(4))

        drain(transport, FakeDeduplicator(failures=2))

        assert transport.unmarked == 2

    def test_an_index_that_stays_away_ends_the_program(self) -> None:
        clock, transport = FakeClock(), ScriptedTransport(texts(4))

        with pytest.raises(ServiceError, match="Redis does not answer"):
            drain(transport, FakeDeduplicator(failures=99), clock)

        assert transport.attempts == 0
        assert GIVE_UP_SECONDS <= clock.now < GIVE_UP_SECONDS + 10


class Watching:
    """Notes what the loop tells."""

    def __init__(self, transport: ScriptedTransport) -> None:
        self._transport = transport
        self.published_ids: list[object] = []
        self.unsettled_ids: list[object] = []
        self.forgotten: list[tuple[int, Sequence[object]]] = []
        self.forgotten_perhaps: list[Sequence[object]] = []

    def published(
        self,
        documents: Sequence[Document],
        decisions: Sequence[Decision],
        tombstones: Sequence[Tombstone],
    ) -> None:
        self.forgotten += [
            (tombstone.after + len(self.published_ids), tombstone.ids) for tombstone in tombstones
        ]
        assert [decision.original_id for decision in decisions] == [d.id for d in documents]
        self.published_ids += [document.id for document in documents]
        assert len(self.published_ids) + len(self.forgotten) == len(self._transport.published)

    def unsettled(self, documents: Sequence[Document], tombstones: Sequence[Tombstone]) -> None:
        self.unsettled_ids += [document.id for document in documents]
        self.forgotten_perhaps += [tombstone.ids for tombstone in tombstones]


class TestObserver:
    @given(st.lists(st.sampled_from([None, "lost"]), max_size=12), st.integers(0, 30))
    def test_it_is_told_of_each_document_once_it_is_published(
        self, script: list[str | None], count: int
    ) -> None:
        transport = ScriptedTransport(texts(count), script)
        watching = Watching(transport)

        drain(transport, observer=watching)

        assert Counter(watching.published_ids) == Counter(range(count))

    def test_a_batch_that_may_have_been_published_is_told_as_such(self) -> None:
        transport = ScriptedTransport(texts(4), ["late"])
        watching = Watching(transport)

        drain(transport, observer=watching)

        assert watching.published_ids == []
        assert len(transport.published) == len(watching.unsettled_ids) == 4

    def test_it_is_told_of_tombstones_in_their_places(self) -> None:
        stone = Message(None, b"7")
        messages = texts(4)
        transport = ScriptedTransport([stone, *messages[:2], stone, *messages[2:]], ["lost"])
        watching = Watching(transport)

        drain(transport, observer=watching)

        assert watching.forgotten_perhaps
        assert [ids for _, ids in watching.forgotten] == [["7", 7]] * 2


class TestStopping:
    def run(self, transport: ScriptedTransport, stopping: Callable[[], bool], failures: int) -> int:
        beats: list[None] = []
        loop = Loop(
            SETTINGS,
            transport,
            FakeDeduplicator(failures),
            FakeClock(),
            stopping=stopping,
            beat=lambda: beats.append(None),
        )
        loop.run()
        return len(beats)

    def test_the_batch_in_hand_is_finished(self) -> None:
        transport = ScriptedTransport(texts(10))
        answers = iter([False, True])

        beats = self.run(transport, lambda: next(answers), 0)

        assert len(transport.published) == 4
        assert beats

    def test_a_batch_that_waits_for_the_index_is_left(self) -> None:
        transport = ScriptedTransport(texts(10))
        answers = iter([False, False, True, True])

        self.run(transport, lambda: next(answers), 99)

        assert transport.attempts == 0


class TestMetrics:
    def test_many_observations_at_once_are_the_same_as_one_by_one(self) -> None:
        values = [0.0, 0.5, 1.0, 1.0001, 2.0, 7.0, 1e9]
        registry = CollectorRegistry()
        one, many = (Histogram(n, n, registry=registry, buckets=(1, 2, 5)) for n in ("a", "b"))

        for value in values:
            one.observe(value)
        metrics.observe_all(many, values)
        metrics.observe_all(many, [])

        def read(name: str) -> dict[str, float]:
            (family,) = (family for family in registry.collect() if family.name == name)
            return {
                f"{sample.name[1:]}{sample.labels}": sample.value
                for sample in family.samples
                if not sample.name.endswith("_created")
            }

        assert read("b") == read("a")

    def test_lag_is_reported_by_partition(self) -> None:
        drain(ScriptedTransport(texts(4)))

        assert metric("consumer_lag_records", topic="documents", partition="0") == 0
