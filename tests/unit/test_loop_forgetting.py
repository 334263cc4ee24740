"""Tombstones and revisions through the loop, also when a transaction is aborted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from stream_dedup import Deduplicator, Document, Settings, Status
from stream_dedup.errors import ServiceError
from stream_dedup.stream.loop import Loop
from stream_dedup.stream.transport import Output
from stream_dedup.types import Revisions
from tests.unit.test_loop import (
    FakeClock,
    FakeDeduplicator,
    Message,
    ScriptedTransport,
    drain,
    metric,
)

TEXTS = {
    "one": "the ferry leaves at nine in the morning and at noon if it is full",
    "near": "the ferry leaves at nine in the morning and at noon if it is empty",
    "two": "a comet with three tails was seen above the harbour by all of the town",
    "three": "nobody knows who painted the lighthouse in that awful shade of green",
}


def message(name: str | int, text: str, time: int = 1000) -> Message:
    return Message(json.dumps({"id": name, "text": TEXTS[text]}).encode(), timestamp=time)


def tombstone(key: bytes | None, *headers: tuple[str, bytes]) -> Message:
    return Message(None, key, headers)


def one_partition(messages: Sequence[Message], script: Sequence[Any] = ()) -> ScriptedTransport:
    """Put all messages into one partition; two make a batch."""
    transport = ScriptedTransport([], script)
    transport.logs[0] = [one._replace(offset=number) for number, one in enumerate(messages)]
    return transport


def work(transport: ScriptedTransport, **settings: Any) -> list[Any]:
    """Run to the end over a memory index; return each answer, as far as it matters here."""
    with Deduplicator(Settings(threshold=0.5, **settings)) as deduplicator:
        loop = Loop(
            deduplicator.settings,
            transport,
            deduplicator,
            FakeClock(),
            stopping=lambda: transport.committed[0] == len(transport.logs[0]),
        )
        loop.run()
    return [answer(output) for output in transport.published]


def answer(output: Output) -> Any:
    if output.value is None:
        return output.key
    dedup = json.loads(output.value)["dedup"]
    found = (dedup["status"].removesuffix("_duplicate"), dedup["original_id"])
    return (
        (*found, revised(json.loads(output.value)["id"], dedup["revises"]))
        if "revises" in dedup
        else found
    )


def revised(name: str, group: str) -> str:
    """Return the text of this document whose group has this id."""
    with Deduplicator() as deduplicator:
        (text,) = (
            text
            for text, words in TEXTS.items()
            for decision in deduplicator.decide([Document(name, words, source=text)])
            if decision.duplicate_id == group and decision.status is Status.ORIGINAL
        )
    return text


class TestTombstones:
    def test_documents_before_it_know_the_original_and_those_after_it_do_not(self) -> None:
        # Two records a poll: the tombstone comes first in its batch, then last, then in the middle.
        messages = [
            message("a", "one"),
            message("b", "one"),
            tombstone(b"a"),
            message("c", "one"),
            message("d", "near"),
            tombstone(b"c"),
            message("e", "one"),
        ]

        answers = work(one_partition(messages))

        expected = [("original", "a"), ("exact", "a"), b"a", ("original", "c"), ("near", "c"), b"c"]
        assert answers == [*expected, ("original", "e")]

    def test_the_answer_is_a_tombstone_in_its_place(self) -> None:
        before = metric("tombstones_total")
        header = ("dedup-status", b"original")
        transport = one_partition([message("k", "one"), tombstone(b"k", ("trace", b"1"), header)])

        drain(transport, FakeDeduplicator())

        first, second = transport.published
        assert first.value is not None
        assert (second.topic, second.key, second.value) == ("documents.annotated", b"k", None)
        assert second.headers == [("trace", b"1")]
        assert metric("tombstones_total") == before + 1

    @pytest.mark.parametrize(("key", "ids"), [(b"x", ["'x'"]), (b"7", ["'7'", "7"])])
    def test_a_key_of_digits_names_the_number_too(self, key: bytes, ids: list[str]) -> None:
        deduplicator = FakeDeduplicator()

        drain(one_partition([tombstone(key)]), deduplicator)

        assert deduplicator.calls == [[f"forget {one}" for one in ids]]

    @pytest.mark.parametrize("key", [None, b"", b"\xff", b"x" * 1025])
    def test_one_that_names_nobody_is_a_dead_letter(self, key: bytes | None) -> None:
        deduplicator = FakeDeduplicator()

        (letter,) = drain(one_partition([tombstone(key)]), deduplicator)

        assert letter.topic == "documents.dead-letter"
        assert ("dead-letter-reason", b"tombstone") in letter.headers
        assert deduplicator.calls == []

    def test_while_the_index_is_away_only_the_part_at_hand_is_done_again(self) -> None:
        class Failing(FakeDeduplicator):
            def forget(self, ids: Sequence[str | int]) -> list[int]:
                if self.failures:
                    self.failures -= 1
                    message = "Redis does not answer."
                    raise ServiceError(message)
                return super().forget(ids)

            def decide(self, documents: Sequence[Any]) -> list[Any]:
                failures, self.failures = self.failures, 0
                decisions = super().decide(documents)
                self.failures = failures
                return decisions

        deduplicator = Failing(failures=2)

        drain(one_partition([message("a", "one"), tombstone(b"b")]), deduplicator)

        assert deduplicator.calls == [["a"], ["forget 'b'"]]


#: Two records a batch; "a" gets a new text twice, and "c" copies its first one.
REVISED = [
    message("a", "one", 1000),
    message("b", "two", 2000),
    message("a", "three", 3000),
    message("c", "one", 4000),
    message("c", "one", 5000),
    message("a", "near", 6000),
    message("a", "near", 7000),
]


ANSWERS = {
    Revisions.OFF: [
        ("original", "a"),
        ("original", "b"),
        ("original", "a"),
        ("exact", "a"),
        ("exact", "a"),
        ("near", "a"),
        ("near", "a"),
    ],
    # The third text is a near copy of the first, yet takes the place of the second.
    Revisions.LINK: [
        ("original", "a"),
        ("original", "b"),
        ("original", "a", "one"),
        ("exact", "a"),
        ("exact", "a"),
        ("near", "a", "three"),
        ("near", "a", "three"),
    ],
    # The first text is there for the rest of the batch that replaces it, and then no more.
    Revisions.REPLACE: [
        ("original", "a"),
        ("original", "b"),
        ("original", "a", "one"),
        ("exact", "a"),
        ("original", "c"),
        ("near", "c", "three"),
        ("near", "c"),
    ],
}


class TestRevisions:
    @pytest.mark.parametrize("revisions", Revisions)
    @pytest.mark.parametrize(
        "script", [(), ("lost",), (None, "lost", "lost"), (None, None, "lost")]
    )
    def test_each_is_linked_to_the_text_before_it(
        self, revisions: Revisions, script: Sequence[Any]
    ) -> None:
        assert work(one_partition(REVISED, script), revisions=revisions) == ANSWERS[revisions]

    @pytest.mark.parametrize("revisions", Revisions)
    def test_a_repeat_of_the_same_text_is_no_revision(self, revisions: Revisions) -> None:
        messages = [message("a", "one", time) for time in range(5)]

        answers = work(one_partition(messages, [None, "lost"]), revisions=revisions)

        assert answers == [("original", "a"), *[("exact", "a")] * 4]

    @pytest.mark.parametrize("script", ["lost", "late"])
    def test_an_old_text_that_comes_late_replaces_nothing(self, script: str) -> None:
        messages = [message("a", "two", 2000), message("b", "one", 0), message("a", "one", 1000)]

        answers = work(one_partition(messages, [None, script]), revisions=Revisions.REPLACE)

        assert answers[2] == ("exact", "b")

    def test_a_text_is_not_replaced_by_its_own_near_copy(self) -> None:
        messages = [message("a", "one"), message("a", "near"), message("b", "one")]

        answers = work(one_partition(messages), revisions=Revisions.REPLACE)

        assert answers == [("original", "a"), ("near", "a", "one"), ("exact", "a")]

    def test_what_is_replaced_is_forgotten_when_the_index_is_back(self) -> None:
        class Away(FakeDeduplicator):
            def settle(self) -> None:
                super().settle()
                if self.settled == 1:
                    message = "Redis does not answer."
                    raise ServiceError(message)

        deduplicator = Away()

        drain(one_partition(REVISED[:4], [None, "lost"]), deduplicator)

        assert (deduplicator.settled, deduplicator.discarded) == (2, 1)
