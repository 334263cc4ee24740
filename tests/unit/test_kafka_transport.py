"""The default transport over pretended clients: what is called when, and what follows a failure."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
from kafka.errors import (  # type: ignore[import-untyped]
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    ProducerFencedError,
)
from kafka.structs import OffsetAndMetadata, TopicPartition  # type: ignore[import-untyped]

from stream_dedup.errors import ServiceError
from stream_dedup.settings import Settings
from stream_dedup.stream import kafka as module
from stream_dedup.stream import kafka_trouble, transactional
from stream_dedup.stream.attempts import Place
from stream_dedup.stream.kafka import KafkaTransport
from stream_dedup.stream.kafka_limits import (
    DELIVERY_TIMEOUT,
    OFFSETS_TIMEOUT,
    PRODUCER_TIMEOUT,
    SENDING_TIMEOUT,
)
from stream_dedup.stream.patience import BACKOFF
from stream_dedup.stream.transactional import RECOVERY_TIMEOUT, Transactional, log_partitions
from stream_dedup.stream.transport import Output, PublishError

SETTINGS = Settings(input_topic="documents", batch_documents=7, batch_wait=0.25)
#: A batch has room for two documents of the largest size, so that two are asked for first.
IN_PARTS = SETTINGS.model_copy(update={"batch_bytes": 2 * SETTINGS.max_document_bytes})
FIRST, SECOND = TopicPartition("documents", 0), TopicPartition("documents", 1)


class Input(NamedTuple):
    """An input record."""

    partition: int
    offset: int
    topic: str = "documents"
    timestamp: int = 0
    key: bytes | None = None
    value: bytes | None = b"{}"
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Membership(NamedTuple):
    """What the client tells of its place in the group."""

    member_id: str = "me"
    state: str = "<stable>"
    generation_id: int = 1


class Pretended:
    """A Kafka and its clients.

    Attributes:
        journal: what was called, in order.
        polls: what the next polls return, or raise, or return after they were called.
        asked: milliseconds and most records of each poll.
        wrong: what a producer's call raises, by its name; an error goes for each time.
        openings: errors of the next producers that are opened.
        now: the time; passes while somebody sleeps.
    """

    def __init__(self) -> None:
        self.journal: list[Any] = []
        self.polls: list[Any] = []
        self.asked: list[tuple[int, int]] = []
        self.wrong: dict[str, Exception] = {}
        self.openings: list[Exception] = []
        self.now = 100.0
        self.slept: list[float] = []
        self.limits: list[tuple[str, float]] = []
        self.opened = 0
        self.member = Membership()
        self.held = {FIRST, SECOND}
        self.committed: dict[TopicPartition, int | None] = {FIRST: 5, SECOND: None}
        self.metadata: dict[TopicPartition, str] = {}
        self.positions: dict[TopicPartition, int | None] = {FIRST: 40, SECOND: 10}
        self.ends = {FIRST: 50, SECOND: 8}
        self.stopping = False
        self.beats = 0
        self.listener: Any = None
        self.consumer_wrong: Exception | None = None

    # The module ``time``.
    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def time_ns(self) -> int:
        return 0xABC

    def beat(self) -> None:
        self.beats += 1

    def bounded(
        self, name: str, call: Callable[[], Any], seconds: float, stopping: Callable[[], bool]
    ) -> Any:
        assert stopping() is self.stopping
        self.limits.append((name, seconds))
        return call()

    def open_consumer(self, settings: Settings, client_id: str) -> Consumer:
        return Consumer(self)

    def open_producer(self, settings: Settings, transactional_id: str) -> Producer:
        self.journal.append(("open", transactional_id))
        if self.openings:
            raise self.openings.pop(0)
        self.opened += 1
        return Producer(self, self.opened)

    def discard(self, producer: Producer) -> None:
        self.journal.append(("discard", producer.number))


class Consumer:
    """A consumer's calls."""

    def __init__(self, kafka: Pretended) -> None:
        self._kafka = kafka

    def subscribe(self, topics: Sequence[str], listener: Any) -> None:
        self._kafka.journal.append(("subscribe", *topics))
        self._kafka.listener = listener

    def poll(self, timeout_ms: int, max_records: int) -> Any:
        self._kafka.asked.append((timeout_ms, max_records))
        polled = self._kafka.polls.pop(0) if self._kafka.polls else {}
        if callable(polled):
            polled = polled()
        if isinstance(polled, Exception):
            raise polled
        return polled

    def group_metadata(self) -> Membership:
        return self._kafka.member

    def partitions_for_topic(self, topic: str) -> set[int]:
        assert topic == "documents"
        return {0, 1}

    def assignment(self) -> set[TopicPartition]:
        return self._kafka.held

    def end_offsets(self, partitions: set[TopicPartition], timeout_ms: int) -> Any:
        assert partitions
        if self._kafka.consumer_wrong is not None:
            raise self._kafka.consumer_wrong
        return self._kafka.ends

    def position(self, partition: TopicPartition, timeout_ms: int) -> int | None:
        assert timeout_ms == 0, "it must not wait"
        return self._kafka.positions[partition]

    def committed(
        self, partition: TopicPartition, timeout_ms: int, *, metadata: bool = False
    ) -> Any:
        if self._kafka.consumer_wrong is not None:
            raise self._kafka.consumer_wrong
        offset = self._kafka.committed[partition]
        if not metadata or offset is None:
            return offset
        return OffsetAndMetadata(offset, self._kafka.metadata.get(partition, ""), -1)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._kafka.journal.append(("seek", partition.partition, offset))

    def seek_to_beginning(self, partition: TopicPartition) -> None:
        self._kafka.journal.append(("seek to beginning", partition.partition))

    def close(self, *, autocommit: bool, timeout_ms: int) -> None:
        self._kafka.journal.append(("close", autocommit, timeout_ms))


class Producer:
    """A producer's calls."""

    def __init__(self, kafka: Pretended, number: int) -> None:
        self._kafka = kafka
        self.number = number

    def begin_transaction(self) -> None:
        self._do("begin")

    def partitions_for(self, topic: str) -> set[int]:
        return {0, 1}

    def send(self, *_message: Any) -> Arrived:
        self._do("send")
        return Arrived()

    def flush(self, timeout: float) -> None:
        self._do("flush")

    def send_offsets_to_transaction(self, offsets: Any, membership: Any) -> None:
        self._do("offsets", offsets, membership)

    def commit_transaction(self) -> None:
        self._do("commit")

    def _do(self, name: str, *more: Any) -> None:
        self._kafka.journal.append((name, self.number, *more))
        if name in self._kafka.wrong:
            raise self._kafka.wrong[name]


class Arrived:
    """A message that has arrived."""

    exception = None

    def succeeded(self) -> bool:
        return True

    def get(self, timeout: float) -> None:
        pass


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Pretended:
    pretended = Pretended()
    for name in ("open_consumer", "open_producer", "discard", "bounded"):
        monkeypatch.setattr(module, name, getattr(pretended, name))
    for one in (module, transactional):
        monkeypatch.setattr(one, "time", pretended)
    monkeypatch.setattr(kafka_trouble, "kafka_trouble", lambda _settings, _error: "")
    monkeypatch.setattr(transactional, "read_limits", lambda _settings, _topics: {})
    return pretended


def opened(
    kafka: Pretended, settings: Settings = SETTINGS, *, begun: bool = True, **more: Any
) -> KafkaTransport:
    """Open one; unless ``begun`` is false it has been at work on both partitions."""
    transport = KafkaTransport(
        settings, "worker-0", beat=kafka.beat, stopping=lambda: kafka.stopping, **more
    )
    if begun:
        for partition in (FIRST, SECOND):
            transport._attempts.find(partition, Place(0))
    kafka.journal.clear()
    kafka.limits.clear()
    kafka.beats = 0
    return transport


def outputs(*records: Input) -> list[Output]:
    return [Output("annotated", record, b"{}", [], None, 0) for record in records]


def after(offset: int) -> Any:
    return OffsetAndMetadata(offset, "", -1)


#: What follows a failed transaction: another producer, then the committed offsets.
def recovered(first: int, name: str = "worker-0") -> list[Any]:
    return [
        ("discard", first),
        ("open", name),
        ("seek", 0, 5),
        ("seek to beginning", 1),
    ]


def in_order(journal: list[Any]) -> list[Any]:
    """Return the journal with the partitions of a set in order."""
    seeks = sorted((one for one in journal if one[0].startswith("seek")), key=lambda one: one[1])
    return [one for one in journal if not one[0].startswith("seek")] + seeks


class TestOpening:
    def test_it_subscribes_and_opens_a_producer(self, kafka: Pretended) -> None:
        KafkaTransport(SETTINGS, "worker-0", beat=kafka.beat)

        assert kafka.journal == [("subscribe", "documents"), ("open", "worker-0")]
        assert kafka.limits == [("init_transactions", PRODUCER_TIMEOUT)]
        assert kafka.beats == 1

    def test_where_that_fails_the_group_is_left(self, kafka: Pretended) -> None:
        kafka.openings.append(KafkaError("no broker"))

        with pytest.raises(ServiceError, match=r"cannot be used: KafkaError: .*no broker"):
            KafkaTransport(SETTINGS, "worker-0")

        assert kafka.journal[-1] == ("close", False, 5000)

    def test_without_a_consumer_there_is_nothing_to_close(
        self, kafka: Pretended, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(_settings: Settings, _client_id: str) -> Any:
            raise KafkaError("no broker")

        monkeypatch.setattr(module, "open_consumer", refuse)

        with pytest.raises(ServiceError, match="cannot be used"):
            KafkaTransport(SETTINGS, "worker-0")

        assert kafka.journal == []

    def test_trouble_with_tls_or_the_login_is_told_instead(
        self, kafka: Pretended, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(kafka_trouble, "kafka_trouble", lambda _settings, _error: "no login")
        kafka.openings.append(KafkaError("gone"))

        with pytest.raises(ServiceError, match=r"^no login$"):
            KafkaTransport(SETTINGS, "worker-0")

    def test_assignments_are_told(self, kafka: Pretended) -> None:
        told: list[int] = []
        opened(kafka, on_assigned=told.append)

        kafka.listener.on_partitions_revoked([FIRST])
        kafka.listener.on_partitions_assigned([FIRST, SECOND])

        assert told == [2]

    def test_to_close_is_to_leave_at_once(self, kafka: Pretended) -> None:
        transport = opened(kafka)

        transport.close()
        transport.close()

        assert kafka.journal == [("discard", 1), ("close", False, 5000), ("close", False, 5000)]


class TestPolling:
    def test_records_of_one_partition_or_of_several(self, kafka: Pretended) -> None:
        transport = opened(kafka)
        one, two, three = Input(0, 7), Input(0, 9), Input(1, 3)
        kafka.polls = [{FIRST: [one, two]}, {FIRST: [one, two], SECOND: [three]}, {}]

        assert transport.poll() == [one, two]
        assert transport.poll() == [one, two, three]
        assert transport.poll() == ()
        assert kafka.asked == [(250, 7)] * 3

    def test_a_full_batch_is_not_added_to(self, kafka: Pretended) -> None:
        transport = opened(kafka)
        full = [Input(0, offset) for offset in range(7)]
        kafka.polls = [{FIRST: full}, {FIRST: [Input(0, 7)]}]

        assert transport.poll() == full
        assert len(kafka.polls) == 1

    def test_a_batch_comes_in_parts_and_only_the_first_is_waited_for(
        self, kafka: Pretended
    ) -> None:
        transport = opened(kafka, IN_PARTS)
        one, two, three = Input(0, 7), Input(0, 9), Input(1, 3)
        kafka.polls = [{FIRST: [one, two]}, {SECOND: [three]}]

        assert transport.poll() == [one, two, three]
        assert kafka.asked == [(250, 2), (0, 5)]

    @pytest.mark.parametrize("later", [Membership(generation_id=2), Membership("another")])
    def test_parts_with_two_memberships_are_given_back(
        self, kafka: Pretended, later: Membership
    ) -> None:
        transport = opened(kafka, IN_PARTS)

        def rebalanced() -> Any:
            kafka.member = later
            return {SECOND: [Input(1, 3)]}

        kafka.polls = [{FIRST: [Input(0, 7), Input(0, 9)]}, rebalanced]

        assert transport.poll() == ()
        assert in_order(kafka.journal) == [("seek", 0, 5), ("seek to beginning", 1)]

    def test_a_broker_that_is_away_is_waited_for(
        self, kafka: Pretended, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO")
        transport = opened(kafka)
        kafka.polls = [KafkaTimeoutError("slow"), {FIRST: [Input(0, 7)]}]

        assert transport.poll() == ()
        assert kafka.slept == [BACKOFF[0]]
        assert transport.poll()

        assert "Kafka is out of reach, trying again: KafkaTimeoutError:" in caplog.text
        assert "Kafka is back after" in caplog.text

    @pytest.mark.parametrize("error", [ValueError("crc"), KafkaError("crc")])
    def test_what_cannot_be_read_ends_the_program(
        self, kafka: Pretended, error: Exception, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        transport = opened(kafka)
        kafka.polls = [error, KafkaError("login")]

        with pytest.raises(ServiceError, match=r"documents cannot be read: .*crc") as caught:
            transport.poll()
        assert caught.value.__cause__ is error

        trouble = "the login is refused"
        monkeypatch.setattr(kafka_trouble, "kafka_trouble", lambda _settings, _error: trouble)
        with pytest.raises(ServiceError, match=trouble):
            transport.poll()

    def test_an_error_of_another_kind_is_not_taken_for_one_of_the_client(
        self, kafka: Pretended, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(kafka_trouble, "kafka_trouble", lambda _settings, _error: "a login")
        transport = opened(kafka)
        kafka.polls = [ValueError("crc")]

        with pytest.raises(ServiceError, match="cannot be read"):
            transport.poll()

    def test_who_is_no_member_gives_back_what_it_polled(self, kafka: Pretended) -> None:
        transport = opened(kafka)
        kafka.member = Membership("")
        kafka.polls = [{FIRST: [Input(0, 7)]}]

        assert transport.poll() == ()
        assert in_order(kafka.journal) == [("seek", 0, 5), ("seek to beginning", 1)]

        kafka.member = Membership()
        kafka.journal.clear()
        transport.publish([])
        assert [one[2] for one in kafka.journal if one[0] == "offsets"] == [{}]

    def test_who_cannot_give_it_back_ends(self, kafka: Pretended) -> None:
        transport = opened(kafka)
        kafka.member = Membership("")
        kafka.polls = [{FIRST: [Input(0, 7)]}]
        kafka.consumer_wrong = KafkaTimeoutError("slow")

        with pytest.raises(ServiceError, match="committed offsets cannot be read: KafkaTimeout"):
            transport.poll()


class TestPublishing:
    def test_answers_then_offsets_then_commit(self, kafka: Pretended) -> None:
        transport = opened(kafka)
        kafka.member = polled_as = Membership("at the poll")
        kafka.polls = [{FIRST: [Input(0, 7), Input(0, 9)], SECOND: [Input(1, 3)]}]
        records = transport.poll()
        kafka.member = Membership("")

        transport.publish(outputs(*records))  # type: ignore[arg-type]

        offsets = {FIRST: after(10), SECOND: after(4)}
        assert kafka.journal == [
            ("begin", 1),
            *[("send", 1)] * 3,
            ("flush", 1),
            ("offsets", 1, offsets, polled_as),
            ("commit", 1),
        ]
        assert kafka.limits == [
            ("send", SENDING_TIMEOUT),
            ("send_offsets_to_transaction", OFFSETS_TIMEOUT),
            ("commit_transaction", DELIVERY_TIMEOUT),
        ]
        assert kafka.beats == 3

    def test_offsets_are_committed_once(self, kafka: Pretended) -> None:
        transport = opened(kafka)
        kafka.polls = [{FIRST: [Input(0, 7)]}]
        transport.publish(outputs(*transport.poll()))  # type: ignore[arg-type]
        kafka.journal.clear()

        transport.publish([])

        assert [one[2] for one in kafka.journal if one[0] == "offsets"] == [{}]

    @pytest.mark.parametrize("stage", ["begin", "send", "flush", "offsets", "commit"])
    def test_after_a_failure_there_is_another_producer(self, kafka: Pretended, stage: str) -> None:
        transport = opened(kafka)
        kafka.polls = [{FIRST: [Input(0, 7)]}]
        records = transport.poll()
        kafka.wrong = {stage: KafkaError("gone")}

        with pytest.raises(PublishError, match="KafkaError: gone") as caught:
            transport.publish(outputs(*records))  # type: ignore[arg-type]

        assert caught.value.refused is None
        at = next(n for n, one in enumerate(kafka.journal) if one[0] == stage)
        assert in_order(kafka.journal[at + 1 :]) == recovered(1)
        assert kafka.beats >= 2
        kafka.wrong = {}
        kafka.journal.clear()
        transport.publish([])
        assert kafka.journal[-1] == ("commit", 2)
        assert [one[2] for one in kafka.journal if one[0] == "offsets"] == [{}]

    def test_who_is_to_end_opens_no_other(self, kafka: Pretended) -> None:
        transport = opened(kafka)
        kafka.wrong = {"commit": KafkaError("gone")}
        kafka.stopping = True

        with pytest.raises(PublishError):
            transport.publish([])

        assert kafka.journal[-1] == ("commit", 1)

    def test_without_a_producer_nothing_is_published(self, kafka: Pretended) -> None:
        transport = opened(kafka)
        transport._drop_producer()
        kafka.stopping = True

        with pytest.raises(PublishError, match="could not be replaced"):
            transport.publish([])

        assert ("begin", 1) not in kafka.journal


class TestRefusals:
    def test_what_the_client_refuses_is_named(self, kafka: Pretended) -> None:
        transport = opened(kafka)
        kafka.wrong = {"send": MessageSizeTooLargeError("large")}

        with pytest.raises(PublishError) as caught:
            transport.publish(outputs(Input(0, 1), Input(1, 7)))

        refused = caught.value.refused
        assert refused is not None
        assert list(refused) == [("documents", 0, 1)]
        assert "MessageSizeTooLargeError: large" in refused["documents", 0, 1]

    def test_another_failure_is_none_and_polls_no_fewer(self, kafka: Pretended) -> None:
        transport = opened(kafka)
        kafka.wrong = {"commit": KafkaError("gone")}
        with pytest.raises(PublishError) as caught:
            transport.publish(outputs(Input(0, 1), Input(1, 2)))

        assert caught.value.refused is None
        transport.poll()
        assert kafka.asked[-1][1] == SETTINGS.batch_documents

    def test_who_is_refused_is_found_by_polling_fewer(
        self, kafka: Pretended, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(_self: KafkaTransport, some: Sequence[Output], _places: Any) -> None:
            if any(output.record.offset == 5 for output in some):
                raise transactional.RecordRefusedError(KafkaError("large"), None)

        transport = opened(kafka, SETTINGS.model_copy(update={"batch_documents": 8}))
        monkeypatch.setattr(KafkaTransport, "_transact", refuse)
        widths: list[int] = []
        refused: list[Any] = []
        records = [Input(0, offset) for offset in range(8)]
        while not any(refused):
            widths.append(transport._width)
            some = records[: transport._width]
            try:
                transport.publish(outputs(*some))
            except PublishError as error:
                refused.append(error.refused)
            else:
                del records[: len(some)]

        assert refused[:-1] == [{}] * 4
        assert list(refused[-1]) == [("documents", 0, 5)]
        assert widths == [8, 4, 8, 2, 1, 2, 1]
        transport.publish([])  # the dead letter
        assert transport._width == 1
        transport.publish(outputs(Input(0, 6)))
        assert transport._width == 2

    @pytest.mark.parametrize("count", [1, 15, 17, 30, 1000])
    def test_however_many_are_refused_each_is_named(
        self, kafka: Pretended, monkeypatch: pytest.MonkeyPatch, count: int
    ) -> None:
        """Without a word on which; the loop publishes a dead letter in the place of each."""
        records = [Input(0, offset) for offset in range(1000)]
        bad = {one.offset for one in records[500 - count // 2 :][:count]}

        def refuse(_self: KafkaTransport, some: Sequence[Output], _places: Any) -> None:
            if any(one.record.offset in bad and one.topic == "annotated" for one in some):
                raise transactional.RecordRefusedError(KafkaError("large"), None)

        transport = opened(kafka, SETTINGS.model_copy(update={"batch_documents": 1000}))
        monkeypatch.setattr(KafkaTransport, "_transact", refuse)
        letters: set[int] = set()
        tries = 0
        while records:
            tries += 1
            some = outputs(*records[: transport._width])
            some = [
                one._replace(topic="l") if one.record.offset in letters else one for one in some
            ]
            try:
                transport.publish(some)
            except PublishError as error:
                letters |= {offset for _, _, offset in error.refused or {}}
            else:
                del records[: len(some)]

        assert letters == bad
        # Two for each, and a few to get down to one record and up again.
        assert tries < 2 * count + 60


class TestRecovering:
    def test_it_is_tried_again_while_kafka_is_away(
        self, kafka: Pretended, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO")
        transport = opened(kafka)
        kafka.wrong = {"commit": KafkaError("gone")}
        kafka.openings = [KafkaTimeoutError("slow"), KafkaTimeoutError("slow")]

        with pytest.raises(PublishError):
            transport.publish([])

        opening = [one for one in kafka.journal if one[0] in {"discard", "open"}]
        assert opening == [("discard", 1), *[("open", "worker-0")] * 3]
        assert kafka.slept == [BACKOFF[0], 2 * BACKOFF[0]]
        # Two while it sends, one for the producer that is dropped, each time, one for the next.
        assert kafka.beats == 6
        assert "Kafka is out of reach, trying again: KafkaTimeoutError:" in caplog.text
        assert "Kafka is back after" in caplog.text

    def test_offsets_that_cannot_be_read_take_another_producer(self, kafka: Pretended) -> None:
        transport = opened(kafka)
        kafka.wrong = {"commit": KafkaError("gone")}
        kafka.consumer_wrong = KafkaTimeoutError("slow")
        sleep = kafka.sleep

        def mend(seconds: float) -> None:
            sleep(seconds)
            kafka.consumer_wrong = None

        kafka.sleep = mend  # type: ignore[method-assign]
        with pytest.raises(PublishError):
            transport.publish([])

        dropped = [one for one in kafka.journal if one[0] == "discard"]
        assert dropped == [("discard", 1), ("discard", 2)]

    def test_for_two_minutes_and_not_for_ever(self, kafka: Pretended) -> None:
        transport = opened(kafka)
        kafka.wrong = {"commit": KafkaError("gone")}
        kafka.openings = [KafkaTimeoutError("slow")] * 1000

        with pytest.raises(ServiceError, match=r"cannot be used: KafkaTimeoutError: .*slow"):
            transport.publish([])

        assert RECOVERY_TIMEOUT == 120
        assert RECOVERY_TIMEOUT <= sum(kafka.slept) < RECOVERY_TIMEOUT + BACKOFF[1]

    def test_who_is_asked_to_stop_meanwhile_does(
        self, kafka: Pretended, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        transport = opened(kafka)
        kafka.wrong = {"commit": KafkaError("gone")}
        stops = iter([False, True])
        transport._stopping = lambda: next(stops)

        def open_producer(*_: Any) -> None:
            raise KafkaTimeoutError("slow")

        monkeypatch.setattr(transport, "_open_producer", open_producer)
        # The bound of a call asks too, so it is left out here.
        monkeypatch.setattr(transport, "_bounded", lambda _name, call, _seconds: call())
        with pytest.raises(ServiceError, match="Asked to stop while Kafka is away"):
            transport.publish([])

        assert kafka.slept == []

    def test_who_is_fenced_twice_goes_on_under_another_name(
        self, kafka: Pretended, caplog: pytest.LogCaptureFixture
    ) -> None:
        transport = opened(kafka)
        kafka.wrong = {"commit": ProducerFencedError("old")}
        for _ in range(2):
            with pytest.raises(PublishError):
                transport.publish([])

        names = [one[1] for one in kafka.journal if one[0] == "open"]
        assert names == ["worker-0", "worker-0-abc"]
        assert "going on with transactional id worker-0-abc" in caplog.text

        kafka.wrong = {"commit": KafkaError("gone")}
        with pytest.raises(PublishError):
            transport.publish([])
        assert [one[1] for one in kafka.journal if one[0] == "open"][-1] == "worker-0-abc"

    def test_other_failures_keep_the_name(self, kafka: Pretended) -> None:
        transport = opened(kafka)
        kafka.wrong = {"commit": KafkaError("gone")}
        for _ in range(3):
            with pytest.raises(PublishError):
                transport.publish([])

        assert {one[1] for one in kafka.journal if one[0] == "open"} == {"worker-0"}


class TestStaleOffsets:
    """A broker that has crashed tells the group's offsets while it reads them from its disk."""

    @pytest.fixture
    def transport(self, kafka: Pretended) -> KafkaTransport:
        """Return one that has answered all before offset 10."""
        transport = opened(kafka)
        kafka.polls = [{FIRST: [Input(0, 8), Input(0, 9)]}]
        transport.publish(outputs(*transport.poll()))  # type: ignore[arg-type]
        kafka.journal.clear()
        sleep = kafka.sleep

        def read_on(seconds: float) -> None:
            sleep(seconds)
            kafka.committed[FIRST] = min(10, (kafka.committed[FIRST] or 0) + 2)

        kafka.sleep = read_on  # type: ignore[method-assign]
        return transport

    def test_what_was_answered_is_given_back_until_the_offsets_are_there(
        self, kafka: Pretended, transport: KafkaTransport
    ) -> None:
        kafka.polls = [{FIRST: [Input(0, 5)], SECOND: [Input(1, 3)]}, {FIRST: [Input(0, 10)]}]

        assert transport.poll() == ()
        assert len(kafka.slept) == 3  # 5, 7, 9, 10
        assert ("seek", 0, 10) in kafka.journal
        assert all(one[:2] != ("seek", 0) or one[2] == 10 for one in kafka.journal)
        assert transport.poll() == [Input(0, 10)]

    def test_after_a_failure_they_are_waited_for(
        self, kafka: Pretended, transport: KafkaTransport
    ) -> None:
        kafka.wrong = {"commit": KafkaError("gone")}

        with pytest.raises(PublishError):
            transport.publish([])

        assert len(kafka.slept) == 3
        assert all(one[:2] != ("seek", 0) or one[2] == 10 for one in kafka.journal)

    def test_but_not_for_ever(self, kafka: Pretended, transport: KafkaTransport) -> None:
        """Another process, which knows of nothing, then goes on from there."""
        kafka.committed[FIRST] = -1000
        kafka.polls = [{FIRST: [Input(0, 5)]}]

        with pytest.raises(ServiceError, match=r"has come to offset -.* has committed 10"):
            transport.poll()

        assert RECOVERY_TIMEOUT <= sum(kafka.slept) < RECOVERY_TIMEOUT + BACKOFF[1]

    def test_who_is_asked_to_stop_does(self, kafka: Pretended, transport: KafkaTransport) -> None:
        kafka.stopping = True
        kafka.polls = [{FIRST: [Input(0, 5)]}]

        with pytest.raises(ServiceError, match="Asked to stop while Kafka is away"):
            transport.poll()

        assert kafka.slept == []


class TestLag:
    def test_it_is_what_lies_before_the_end(self, kafka: Pretended) -> None:
        assert opened(kafka).lag() == {("documents", 0): 10, ("documents", 1): 0}

    def test_a_partition_without_a_position_has_none(self, kafka: Pretended) -> None:
        kafka.positions[FIRST] = None

        assert opened(kafka).lag() == {("documents", 1): 0}

    def test_who_holds_nothing_asks_nobody(self, kafka: Pretended) -> None:
        kafka.held = set()

        assert opened(kafka).lag() == {}

    def test_a_broker_that_does_not_answer_is_no_end(self, kafka: Pretended) -> None:
        kafka.consumer_wrong = KafkaTimeoutError("slow")

        assert opened(kafka).lag() == {}


@pytest.mark.parametrize(
    ("member", "joined"),
    [
        (Membership(), True),
        (Membership(""), False),
        (Membership(state="<preparing_rebalance>"), False),
    ],
)
def test_a_settled_member_has_joined(kafka: Pretended, member: Membership, joined: bool) -> None:
    transport = opened(kafka)
    kafka.member = member

    assert transport.joined() is joined


def test_partitions_are_told_if_there_are_any(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    log = logging.getLogger("stream_dedup.test")

    log_partitions(log, "assigned", [])
    log_partitions(log, "assigned", [SECOND, FIRST])

    (record,) = caplog.records
    assert record.getMessage() == "assigned partitions: [0, 1]"
    assert record.args == {"partitions": [0, 1], "topic": "documents"}


def test_a_failed_transaction_is_told_of(
    kafka: Pretended, caplog: pytest.LogCaptureFixture
) -> None:
    transport: Transactional = opened(kafka)
    kafka.wrong = {"commit": KafkaError("gone")}

    with pytest.raises(PublishError):
        transport.publish([])

    assert "transaction failed and will be done again: KafkaError:" in caplog.text
