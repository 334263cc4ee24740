"""A shadow beside the loop: what it decides, what it skips, and that the loop never suffers."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from prometheus_client import REGISTRY

from stream_dedup.deduplicator import Deduplicator
from stream_dedup.errors import ConfigurationMismatch, InputError, ServiceError
from stream_dedup.settings import Settings
from stream_dedup.shadow import Comparison
from stream_dedup.stream import shadowing as module
from stream_dedup.stream.shadow_report import WINDOW_SECONDS, MetricsReport
from stream_dedup.stream.shadowing import Shadow, Skipped
from stream_dedup.stream.tombstones import Tombstone
from stream_dedup.types import Decision, Document, DocumentId, Method, Revisions, Status

DEADLINE_SECONDS = 20


def documents(*ids: str, text: str = "text") -> list[Document]:
    return [Document(document_id, text, source=document_id) for document_id in ids]


def decisions(
    documents: Sequence[Document], status: Status = Status.ORIGINAL, original: str = ""
) -> list[Decision]:
    return [
        Decision(status, original or str(d.id), original or d.id, Method.MINHASH, "f")
        for d in documents
    ]


class FakeDecides:
    """Decides by script: an error is raised, an event is waited for; after that all is well."""

    def __init__(self, script: Sequence[Exception | threading.Event] = ()) -> None:
        self.script = list(script)
        self.seen: list[list[object]] = []
        self.closed = 0
        self.opened = 0
        #: How batches ended, and what the next attempts to settle meet.
        self.ends: list[str] = []
        self.unsettled: list[Exception] = []

    def connect(self) -> FakeDecides:
        self.opened += 1
        return self

    def decide(self, documents: Sequence[Document]) -> list[Decision]:
        step = self.script.pop(0) if self.script else None
        if isinstance(step, Exception):
            raise step
        if step is not None:
            step.wait(DEADLINE_SECONDS)
        self.seen.append([document.id for document in documents])
        return decisions(documents)

    def forget(self, ids: Sequence[DocumentId]) -> list[int]:
        step = self.script.pop(0) if self.script else None
        if isinstance(step, Exception):
            raise step
        self.seen.append([f"forget {one}" for one in ids])
        return [1] * len(ids)

    def settle(self) -> None:
        self.ends.append("settle")
        if self.unsettled:
            raise self.unsettled.pop()

    def discard(self) -> None:
        self.ends.append("discard")

    def close(self) -> None:
        self.closed += 1


class FakeReport:
    """Notes what it is given; fails when told to."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.added: list[object] = []
        self.closed = False

    def add(
        self, documents: Sequence[Document], live: Sequence[Decision], shadow: Sequence[Decision]
    ) -> None:
        assert len(documents) == len(live) == len(shadow)
        self.added += [document.id for document in documents]
        if self.error is not None:
            raise self.error

    def tick(self) -> None:
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        self.closed = True


class Skips:
    """The skipped documents since it was made, by reason."""

    def __init__(self) -> None:
        self._before = self._read()

    def _read(self) -> dict[Skipped, float]:
        name = "stream_dedup_shadow_skipped_documents_total"
        return {
            reason: REGISTRY.get_sample_value(name, {"reason": str(reason)}) or 0
            for reason in Skipped
        }

    def __call__(self) -> dict[Skipped, int]:
        now = self._read()
        return {r: int(now[r] - self._before[r]) for r in Skipped if now[r] > self._before[r]}


Start = Callable[..., Shadow]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[Shadow] = []

    def make(
        decides: FakeDecides | Deduplicator,
        report: FakeReport,
        backlog: int = 10_000,
        *,
        forgets: bool = True,
    ) -> Shadow:
        connect = decides.connect if isinstance(decides, FakeDecides) else lambda: decides
        started.append(Shadow(connect, report, backlog, forgets=forgets))
        return started[-1]

    yield make
    for shadow in started:
        shadow.close()


def publish(shadow: Shadow, batch: Sequence[Document]) -> None:
    shadow.published(batch, decisions(batch))


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class TestShadow:
    def test_batches_are_decided_in_order_and_reported(self, start: Start) -> None:
        decides, report = FakeDecides(), FakeReport()
        shadow = start(decides, report)

        for number in range(20):
            publish(shadow, documents(f"{number}a", f"{number}b"))
        publish(shadow, [])
        shadow.close()

        assert decides.seen == [[f"{number}a", f"{number}b"] for number in range(20)]
        assert report.added == [one for batch in decides.seen for one in batch]
        assert (report.closed, decides.closed) == (True, 1)

    @pytest.mark.parametrize("error", [ServiceError("away"), ConfigurationMismatch("another's")])
    def test_an_index_that_is_away_for_a_while_leaves_no_trace(
        self, start: Start, error: Exception
    ) -> None:
        skips = Skips()
        decides, report = FakeDecides([error, error]), FakeReport()
        shadow = start(decides, report)

        for number in range(5):
            publish(shadow, documents(str(number)))
        until(lambda: len(report.added) == 5)

        assert report.added == ["0", "1", "2", "3", "4"]
        assert decides.opened == 3
        assert skips() == {}

    def test_beyond_the_backlog_documents_are_skipped_counted_and_told(
        self, start: Start, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        skips, report = Skips(), FakeReport()
        decides = FakeDecides([ServiceError("away")] * 3)
        shadow = start(decides, report, 1000)
        publish(shadow, documents("first"))
        until(lambda: len(decides.script) < 3)
        began = time.monotonic()

        for number in range(10):
            publish(shadow, documents(str(number), text="x" * 200))
        waited = time.monotonic() - began
        until(lambda: len(report.added) == 3)
        publish(shadow, documents("last"))
        until(lambda: len(report.added) == 4)

        assert waited < module.ROOM_SECONDS / 2
        assert report.added == ["first", "0", "1", "last"]
        assert skips() == {Skipped.BACKLOG: 8}
        told = [record.message for record in caplog.records]
        assert [line for line in told if "backlog is full" in line] != []
        assert "the shadow goes on; it skipped 8 documents" in told

    def test_a_shadow_that_hangs_holds_up_the_live_stream_once(
        self, start: Start, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "ROOM_SECONDS", 0.3)
        skips, hang = Skips(), threading.Event()
        decides = FakeDecides([hang])
        shadow = start(decides, FakeReport(), 1000)
        times = []

        for number in range(9):
            began = time.monotonic()
            publish(shadow, documents(str(number), text="x" * 500))
            times.append(time.monotonic() - began)
            until(lambda: not decides.script)
        hang.set()

        assert sorted(taken > 0.25 for taken in times) == [False] * 8 + [True]
        assert skips() == {Skipped.BACKLOG: 7}

    def test_the_live_stream_waits_for_a_shadow_that_works(self, start: Start) -> None:
        skips, report = Skips(), FakeReport()

        class Slow(FakeDecides):
            def decide(self, documents: Sequence[Document]) -> list[Decision]:
                time.sleep(0.02)
                return super().decide(documents)

        shadow = start(Slow(), report, 1000)
        for number in range(20):
            publish(shadow, documents(str(number), text="x" * 500))
        shadow.close()

        assert len(report.added) == 20
        assert skips() == {}

    def test_a_batch_larger_than_the_backlog_has_its_turn(self, start: Start) -> None:
        report = FakeReport()
        shadow = start(FakeDecides(), report, 1000)

        publish(shadow, documents("large", text="x" * 5000))
        shadow.close()

        assert report.added == ["large"]

    @pytest.mark.parametrize("error", [InputError("no time"), ValueError("a mistake of ours")])
    def test_a_batch_that_is_refused_is_skipped_and_the_next_is_decided(
        self, start: Start, error: Exception
    ) -> None:
        skips, report = Skips(), FakeReport()
        shadow = start(FakeDecides([error]), report)

        publish(shadow, documents("a", "b"))
        publish(shadow, documents("c"))
        shadow.close()

        assert report.added == ["c"]
        assert skips() == {Skipped.REFUSED: 2}

    def test_a_report_that_fails_stops_nothing(self, start: Start) -> None:
        decides, report = FakeDecides(), FakeReport(ValueError("full disk"))
        shadow = start(decides, report)

        publish(shadow, documents("a"))
        publish(shadow, documents("b"))
        shadow.close()

        assert decides.seen == [["a"], ["b"]]
        assert report.closed

    def test_an_unsettled_batch_is_decided_but_not_reported(self, start: Start) -> None:
        decides, report = FakeDecides(), FakeReport()
        shadow = start(decides, report)

        shadow.unsettled(documents("a"))
        publish(shadow, documents("a", "b"))
        shadow.close()

        assert decides.seen == [["a"], ["a", "b"]]
        assert report.added == ["a", "b"]

    def test_what_cannot_be_decided_at_the_end_is_counted(self, start: Start) -> None:
        skips = Skips()
        decides = FakeDecides([ServiceError("away")] * 99)
        shadow = start(decides, FakeReport())
        for number in range(4):
            publish(shadow, documents(str(number)))

        shadow.close()

        assert skips() == {Skipped.END: 4}

    def test_what_hangs_at_the_end_is_counted(
        self, start: Start, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "END_SECONDS", 0.2)
        skips, hang = Skips(), threading.Event()
        decides = FakeDecides([hang])
        shadow = start(decides, FakeReport())
        for number in range(4):
            publish(shadow, documents(str(number)))
        until(lambda: not decides.script)

        shadow.close()

        assert skips() == {Skipped.END: 4}
        hang.set()


class TestTombstones:
    def test_a_batch_is_cut_where_they_stand(self, start: Start) -> None:
        decides, report = FakeDecides(), FakeReport()
        shadow = start(decides, report)
        batch = documents("a", "b", "c")
        stones = [Tombstone(0, ["x"]), Tombstone(2, ["7", 7]), Tombstone(2, ["a"])]

        shadow.published(batch, decisions(batch), stones)
        shadow.published([], [], [Tombstone(0, ["z"])])
        shadow.close()

        expected = [["forget x"], ["a", "b"], ["forget 7", "forget 7", "forget a"], ["c"]]
        assert decides.seen == [*expected, ["forget z"]]
        assert report.added == ["a", "b", "c"]

    def test_while_the_index_is_away_only_the_part_at_hand_is_done_again(
        self, start: Start
    ) -> None:
        skipped = skipped_ids()
        away = ServiceError("away")
        decides, report = FakeDecides([threading.Event(), away, away]), FakeReport()
        decides.script[0].set()  # type: ignore[union-attr]
        shadow = start(decides, report)
        batch = documents("a", "b")

        shadow.published(batch, decisions(batch), [Tombstone(1, ["a"])])
        until(lambda: len(report.added) == 2)

        assert decides.seen == [["a"], ["forget a"], ["b"]]
        assert decides.opened == 3
        assert skipped_ids() == skipped

    def test_refused_documents_do_not_keep_others_from_being_forgotten(self, start: Start) -> None:
        skips, skipped = Skips(), skipped_ids()
        decides = FakeDecides([InputError("no time")])
        shadow = start(decides, FakeReport())
        batch = documents("a", "b")

        shadow.published(batch, decisions(batch), [Tombstone(2, ["c"])])
        shadow.close()

        assert decides.seen == [["forget c"]]
        assert skips() == {Skipped.REFUSED: 2}
        assert skipped_ids() == skipped

    def test_an_index_without_ids_forgets_nothing_and_goes_on(self, start: Start) -> None:
        skipped = skipped_ids()
        decides, report = FakeDecides(), FakeReport()
        shadow = start(decides, report, forgets=False)
        batch = documents("a", "b")

        shadow.published(batch, decisions(batch), [Tombstone(1, ["7", 7])])
        shadow.unsettled([], [Tombstone(0, ["x"])])
        shadow.close()

        assert decides.seen == [["a", "b"]]
        assert skipped_ids() == skipped + 3

    def test_what_is_not_forgotten_by_the_end_is_counted(self, start: Start) -> None:
        skipped = skipped_ids()
        shadow = start(FakeDecides([ServiceError("away")] * 99), FakeReport())
        for _ in range(3):
            shadow.published([], [], [Tombstone(0, ["x"])])

        shadow.close()

        assert skipped_ids() == skipped + 3

    def test_what_is_replaced_is_settled_once_the_batch_is_decided(self, start: Start) -> None:
        decides, report = FakeDecides(), FakeReport()
        decides.unsettled = [ServiceError("away")]
        shadow = start(decides, report)
        batch = documents("a", "b")

        shadow.unsettled(batch, [Tombstone(1, ["x"])])
        for _ in range(2):
            shadow.published(batch, decisions(batch), [Tombstone(1, ["x"])])
        shadow.close()

        assert decides.ends == ["discard", "settle", "settle"]
        assert report.added == ["a", "b"] * 2

    @pytest.mark.parametrize("revisions", Revisions)
    def test_the_live_settings_once_more_decide_the_same(
        self, start: Start, revisions: Revisions
    ) -> None:
        settings = Settings(revisions=revisions, threshold=0.5)
        texts = ["the ferry leaves at nine", "a comet was seen above", "nobody painted this house"]
        stream = [("a", 0), ("b", 1), ("c", 0), None, ("d", 0), ("b", 2), ("e", 1), ("f", 2)]
        beside, report = Deduplicator(settings), RealReport()
        shadow = start(beside, report)
        with Deduplicator(settings) as live:
            for copy in range(3):
                decided: list[Decision] = []
                batch = [
                    Document(one[0], texts[one[1]], source=f"{copy} {number}")
                    for number, one in enumerate(stream)
                    if one is not None
                ]
                decided += live.decide(batch[:3])
                live.forget(["a"])
                decided += live.decide(batch[3:])
                live.settle()
                shadow.published(batch, decided, [Tombstone(3, ["a"])])
        shadow.close()

        assert report.live == report.shadow
        assert len(report.live) == 21


class RealReport(FakeReport):
    """Keeps the decisions."""

    def __init__(self) -> None:
        super().__init__()
        self.live: list[Decision] = []
        self.shadow: list[Decision] = []

    def add(
        self, documents: Sequence[Document], live: Sequence[Decision], shadow: Sequence[Decision]
    ) -> None:
        super().add(documents, live, shadow)
        self.live += live
        self.shadow += shadow


def skipped_ids() -> float:
    return REGISTRY.get_sample_value("stream_dedup_shadow_skipped_ids_total") or 0


class FakeClock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return 1_700_000_000 + self.now

    def sleep(self, seconds: float, /) -> None:
        self.now += seconds


class FakeSink:
    def __init__(self, arrives: float = 1.0) -> None:
        self.sent: list[list[dict[str, Any]]] = []
        self.arrives = arrives
        self.closed = False

    def send(self, lines: Sequence[bytes]) -> int:
        self.sent.append([json.loads(line) for line in lines])
        return int(len(lines) * self.arrives)

    def close(self) -> None:
        self.closed = True


def report(sink: FakeSink | None, clock: FakeClock, size: int = 5) -> MetricsReport:
    return MetricsReport(lambda: Comparison(size, 9, same_names=True), "host-1", sink, clock)


def count(live: Status, shadow: Status, original: str) -> float:
    labels = {"live": str(live), "shadow": str(shadow), "original": original}
    return REGISTRY.get_sample_value("stream_dedup_shadow_documents_total", labels) or 0


class TestMetricsReport:
    def test_every_decision_is_counted_by_kind(self) -> None:
        kinds = (
            (Status.ORIGINAL, Status.ORIGINAL, "same"),
            (Status.ORIGINAL, Status.NEAR_DUPLICATE, "other"),
        )
        before = [count(*kind) for kind in kinds]
        found = report(None, FakeClock())
        batch = documents("a", "b", "c")

        found.add(batch[:1], decisions(batch[:1]), decisions(batch[:1]))
        found.add(batch[1:], decisions(batch[1:]), decisions(batch[1:], Status.NEAR_DUPLICATE, "a"))
        found.close()

        assert [count(*kind) for kind in kinds] == [before[0] + 1, before[1] + 2]

    def test_each_window_has_a_sample_of_its_own(self) -> None:
        clock, sink = FakeClock(), FakeSink()
        found = report(sink, clock)
        batch = documents(*map(str, range(8)))
        for _ in range(2):
            found.add(batch, decisions(batch), decisions(batch, Status.NEAR_DUPLICATE, "a"))
            found.tick()
            clock.now += WINDOW_SECONDS
            found.tick()
        found.add(batch[:1], decisions(batch[:1]), decisions(batch[:1], Status.NEAR_DUPLICATE, "a"))

        found.close()

        assert [len(lines) for lines in sink.sent] == [5, 5, 1]
        assert [lines[0]["stratum_pairs"] for lines in sink.sent] == [8, 8, 1]
        strata = [{line["stratum"] for line in lines} for lines in sink.sent]
        assert strata[0] == {"host-1/2023-11-14T22:13:20+00:00/original-near_duplicate-shadow"}
        assert len(set.union(*strata)) == 3
        assert sink.closed

    def test_agreement_sends_nothing(self) -> None:
        sink = FakeSink()
        found = report(sink, FakeClock())
        batch = documents("a")

        found.add(batch, decisions(batch), decisions(batch))
        found.close()

        assert sink.sent == []

    def test_what_does_not_arrive_is_told(self, caplog: pytest.LogCaptureFixture) -> None:
        found = report(FakeSink(0.5), FakeClock())
        batch = documents("a", "b", "c", "d")

        found.add(batch, decisions(batch), decisions(batch, Status.NEAR_DUPLICATE, "o"))
        found.close()

        assert "2 of 4 sampled differences were not sent" in caplog.text
