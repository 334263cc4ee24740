"""Dead letters: what they say, how they look on a terminal, what was replayed. No Kafka."""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.cli.letter_text import (
    VALUE_BYTES,
    escaped,
    letter_lines,
    outcome_lines,
    summary_json,
    summary_lines,
)
from stream_dedup.cli.main import cli
from stream_dedup.errors import ServiceError
from stream_dedup.stream.answers import dead_letter
from stream_dedup.stream.dead_letters import Letter, Outcome, Place, Summary
from stream_dedup.stream.poison import Poison, Reason
from stream_dedup.stream.replayed import EVERY, Replayed

#: What moves a cursor, hides or turns text, or ends a line.
HOSTILE = (
    "\x1b]0;title\x07\x1b[2J\r\x08\x00\x7f\x9b31m\u202e\u2066\u200b\ufeff\u2028\u061c\U000e0041"
)


class Message(NamedTuple):
    """A record."""

    value: bytes | None = b"value"
    key: bytes | None = b"key"
    headers: Sequence[tuple[str, bytes | None]] = ()
    topic: str = "documents"
    partition: int = 2
    offset: int = 7
    timestamp: int = 1_700_000_000_000


def letter_of(message: Message, reason: Reason = Reason.NOT_JSON, detail: str = "Bad.") -> Letter:
    """Return the letter that a worker makes of a message, as it is read."""
    out = dead_letter("dead", message, Poison(reason, detail))
    place = {"topic": "dead", "partition": 0, "offset": 3, "timestamp": message.timestamp}
    return Letter.of(Message(out.value, out.key, out.headers, **place))  # type: ignore[arg-type]


def is_harmless(text: str) -> bool:
    """Tell whether nothing in a text commands a terminal or hides in it."""
    return all(one == "\n" or unicodedata.category(one)[0] not in "C" for one in text) and not (
        set(text) & {"\u2028", "\u2029"}
    )


class TestLetter:
    def test_it_says_what_the_worker_wrote(self) -> None:
        letter = letter_of(Message())

        assert (letter.reason, letter.detail, letter.came_from) == (
            "not_json",
            "Bad.",
            "documents/2/7",
        )
        assert (letter.place, letter.replays, letter.obstacle) == (Place(0, 3), 0, "")

    def test_the_original_is_the_message_with_a_count(self) -> None:
        message = Message(headers=[("trace", b"1"), ("source-topic", b"mine"), ("trace", b"2")])

        out = letter_of(message).original("documents")

        assert (out.key, out.value, out.timestamp) == (
            message.key,
            message.value,
            message.timestamp,
        )
        assert out.headers == [("trace", b"1"), ("trace", b"2"), ("dead-letter-replays", b"1")]
        assert (out.record.partition, out.record.offset) == (2, 7)

    def test_each_replay_is_counted(self) -> None:
        message = Message()
        for count in range(1, 4):
            out = letter_of(message).original("documents")
            assert dict(out.headers)["dead-letter-replays"] == str(count).encode()
            message = message._replace(headers=out.headers)

        assert letter_of(message).replays == 3

    def test_a_tombstone_stays_one(self) -> None:
        out = letter_of(Message(None, b"\xff"), Reason.TOMBSTONE).original("documents")

        assert (out.key, out.value) == (b"\xff", None)

    @pytest.mark.parametrize(
        ("letter", "why"),
        [
            (letter_of(Message(b"x" * 70_000), Reason.TOO_LARGE), "it lost bytes (value"),
            (letter_of(Message(None, None), Reason.TOMBSTONE), "neither a value nor a key"),
            (Letter.of(Message()), "no letter of this program"),
            (Letter.of(Message(headers=[("source-offset", b"x")])), "no letter of this program"),
        ],
    )
    def test_what_cannot_be_replayed(self, letter: Letter, why: str) -> None:
        assert why in letter.obstacle

    def test_the_count_survives_headers_that_are_cut(self) -> None:
        many = [("h", b"x" * 70_000), ("dead-letter-replays", b"4")]

        letter = letter_of(Message(headers=many), Reason.TOO_LARGE)

        assert (letter.truncated, letter.replays) == ("headers", 4)


class TestTerminal:
    @given(st.text(st.characters()))
    def test_nothing_but_printable_characters(self, text: str) -> None:
        assert is_harmless(escaped(text))
        assert "\n" not in escaped(text)

    def test_every_character(self) -> None:
        everything = "".join(map(chr, range(sys.maxunicode + 1)))

        assert is_harmless(escaped(everything, keep="\n"))

    @given(st.binary())
    def test_any_bytes_everywhere(self, data: bytes) -> None:
        headers = [(data.decode("latin-1"), data), ("dead-letter-detail", data)]
        record = Message(data, data, headers, timestamp=-1)
        found = Summary(5)
        found.add(Letter.of(record))

        lines = [*letter_lines(Letter.of(record)), *summary_lines("t", found)]

        assert is_harmless("\n".join(lines))

    def test_hostile_text_is_escaped_wherever_it_stands(self) -> None:
        data = HOSTILE.encode()
        reason = [("dead-letter-reason", data), ("dead-letter-detail", data)]
        place = [("source-topic", data), ("source-partition", b"0"), ("source-offset", b"1")]
        letter = Letter.of(Message(data, data, [(HOSTILE, data), *reason, *place]))
        found = Summary(5)
        found.add(letter)
        outcome = Outcome(reasons=found.reasons, topics=found.topics)

        shown = "\n".join(
            [*letter_lines(letter), *summary_lines("t", found), *outcome_lines(outcome, dry=False)]
        )

        assert is_harmless(shown)
        assert r"\x1b[2J\r\x08\x00\x7f\x9b31m\u202e" in shown
        assert json.dumps(summary_json("t", found)).isascii()

    def test_lines_of_a_value_stay_within_it(self) -> None:
        letter = letter_of(Message(b'{"a": 1,\n  key       forged'))

        assert list(letter_lines(letter))[-2:] == ['    {"a": 1,', "      key       forged"]

    def test_readable_text_is_shown_as_it_is(self) -> None:
        text = '{"text": "Zürich 日本語 \U0001f600 a\\nb"}'

        assert f"    {text}" in list(letter_lines(letter_of(Message(text.encode()))))

    def test_what_is_not_utf8_is_hexadecimal(self) -> None:
        *_, line = letter_lines(letter_of(Message(b"caf\xe9 \x1b[2J", b"\xff\x00")))

        assert re.fullmatch(r"    000000  63 61 66 e9 20 1b 5b 32 4a +caf\. \.\[2J", line)
        assert "  key       hex ff 00" in letter_lines(letter_of(Message(key=b"\xff\x00")))

    @pytest.mark.parametrize("one", ["éé".encode(), b"\xff\xff"])
    def test_a_large_value_is_shown_in_part(self, one: bytes) -> None:
        lines = list(letter_lines(letter_of(Message(one * VALUE_BYTES))))

        assert lines[-1].endswith(f"of {len(one) * VALUE_BYTES:,} bytes; --raw writes them all")
        assert sum(map(len, lines)) < 6 * VALUE_BYTES

    @pytest.mark.parametrize("moment", [-1, 0, 2**62])
    def test_any_time_is_written(self, moment: int) -> None:
        assert list(letter_lines(letter_of(Message(timestamp=moment))))


class TestSummary:
    def test_counts_and_the_newest(self) -> None:
        found = Summary(2)
        for n in range(5):
            found.add(letter_of(Message(timestamp=1000 * n, offset=n), list(Reason)[n % 2]))

        assert (found.letters, found.oldest, found.newest) == (5, 0, 4000)
        assert found.reasons == {"tombstone": 3, "too_large": 2}
        assert [letter.moment for letter in found.latest] == [4000, 3000]
        assert {letter.size for letter in found.latest} == {5}
        assert {letter.record.value for letter in found.latest} == {None}

    def test_none_of_the_newest(self) -> None:
        found = Summary(0)
        found.add(letter_of(Message()))

        assert found.latest == []
        assert "detail" not in "".join(summary_lines("t", found))


class TestReplayed:
    def test_a_replay_of_all_leaves_an_offset(self) -> None:
        done = Replayed().with_range(0, 10)

        assert (done.below, done.metadata()) == (10, "")
        assert done.holds(9, "not_json")
        assert not done.holds(10, "not_json")

    def test_a_replay_of_one_reason_leaves_the_others(self) -> None:
        done = Replayed(5).with_range(5, 20, ["not_json"])

        assert (done.below, done.metadata()) == (5, '{"not_json":[[5,20]]}')
        assert done.holds(7, "not_json")
        assert not done.holds(7, "bad_id")
        assert done.with_range(5, 20) == Replayed(20)

    def test_ranges_join(self) -> None:
        done = Replayed().with_range(4, 5).with_range(6, 7).with_range(5, 6).with_range(9, 9)

        assert done.metadata() == f'{{"{EVERY}":[[4,7]]}}'
        assert done.with_range(0, 4) == Replayed(7)

    @given(
        st.lists(
            st.tuples(
                st.integers(0, 30),
                st.integers(0, 30),
                st.sets(st.sampled_from(["a", "b"]), max_size=2),
            ),
            max_size=8,
        )
    )
    def test_it_holds_what_was_done_and_nothing_else(
        self, steps: list[tuple[int, int, set[str]]]
    ) -> None:
        done, expected = Replayed(), set()
        for start, end, reasons in steps:
            done = done.with_range(start, end, reasons)
            done = Replayed.read(done.below, done.metadata())
            expected |= {(n, r) for n in range(start, end) for r in reasons or {"a", "b", "c"}}

        assert expected == {(n, r) for n in range(31) for r in "abc" if done.holds(n, r)}

    def test_too_many_places_are_refused(self) -> None:
        done = Replayed()
        for n in range(1, 1000, 2):
            done = done.with_range(n, n + 1)

        with pytest.raises(ServiceError, match="--all"):
            done.metadata()
        assert done.with_range(0, 2000).metadata() == ""

    @pytest.mark.parametrize("metadata", ["x", "[]", '{"a": 1}', '{"a": [[1]]}'])
    def test_what_others_committed_is_refused(self, metadata: str) -> None:
        with pytest.raises(ServiceError, match="cannot be read"):
            Replayed.read(0, metadata)

    def test_a_reset_starts_again(self) -> None:
        assert Replayed.read(-1, "") == Replayed()


class TestCommand:
    @pytest.mark.parametrize(
        "arguments",
        [
            ["replay"],
            ["replay", "0/1", "--all"],
            ["replay", "--all", "--reason", "not_json"],
            ["replay", "--all", "--again"],
            ["replay", "--all", "--to", "documents.dead-letter"],
            ["show"],
            ["show", "0"],
            ["show", "0/-1"],
            ["show", "0/1", "0/2", "--raw"],
            ["list", "--since", "soon"],
            ["list", "--since", "1763683200000"],
            ["list", "--reason", "none"],
        ],
        ids=" ".join,
    )
    def test_mistakes_are_told(self, arguments: list[str]) -> None:
        done = CliRunner().invoke(cli, ["dead-letters", *arguments])

        assert done.exit_code == 2, done.output
