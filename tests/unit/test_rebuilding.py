"""The parts of a rebuild: past claim ids, what was seen, what differs, what a message tells."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stream_dedup import Settings
from stream_dedup.fingerprint.hashing import configuration_version, describe_configuration
from stream_dedup.index.description import describe, differences
from stream_dedup.index.keys import ClaimIds
from stream_dedup.index.rebuilding import Seen, document_keys
from stream_dedup.stream.told import Reading
from stream_dedup.types import Status

NOW = 1_700_000_000_000


class TestPastClaims:
    def test_they_grow_even_where_times_do_not(self) -> None:
        moments = np.array([NOW, NOW, NOW - 5, NOW + 1, 0, NOW + 9])

        claims, _ = ClaimIds(7).past(moments, 0)

        assert (np.diff(claims.astype(np.int64)) > 0).all()

    def test_they_are_the_same_however_they_are_split(self) -> None:
        moments = np.array([NOW, NOW, NOW - 5, NOW + 1, NOW + 1, NOW + 9])
        whole, last = ClaimIds(7).past(moments, 0)

        first, tick = ClaimIds(7).past(moments[:2], 0)
        second, end = ClaimIds(7).past(moments[2:], tick)

        assert [*first, *second] == [*whole]
        assert end == last

    def test_they_are_earlier_than_what_is_claimed_later(self) -> None:
        (past,), _ = ClaimIds(8191).past(np.array([NOW]), 0)

        (later,) = ClaimIds(1).mint((NOW + 1) / 1000)

        assert past < later < 1 << 63


class TestSeen:
    def test_each_document_is_new_once(self) -> None:
        names = document_keys(np.array([1, 2, 1], np.uint64), np.zeros((3, 2), np.uint64))
        seen, claims = Seen(), np.arange(3, dtype=np.uint64)

        assert seen.fresh(names, claims).tolist() == [True, True, False]
        seen.add(names[:1])
        assert seen.fresh(names, claims).tolist() == [False, True, False]

    def test_one_that_was_there_is_new_under_its_own_claim_only(self) -> None:
        head = (5).to_bytes(8, "little") + bytes(8) + bytes(range(16))
        seen = Seen([((9).to_bytes(8, "big"), b"O" + head), ((3).to_bytes(8, "big"), b"V")])
        digest = np.frombuffer(bytes(range(16)), "<u8").reshape(1, 2)
        names = document_keys(np.array([5], np.uint64), digest)

        assert seen.fresh(names, np.array([9], np.uint64)).tolist() == [True]
        assert seen.fresh(names, np.array([8], np.uint64)).tolist() == [False]


class TestDescription:
    def test_it_names_what_differs(self) -> None:
        before, now = Settings(seed="a"), Settings(threshold=0.7, rows=5, seed="b")  # type: ignore[arg-type]

        said = differences(describe(described(before)), describe(described(now)))

        assert said == "rows was 0, is 5, seed is another, threshold was 0.8, is 0.7"

    def test_a_setting_at_its_default_is_no_difference(self) -> None:
        before, now = Settings(method="simhash"), Settings()  # type: ignore[arg-type]

        said = differences(describe(described(before)), describe(described(now)))

        assert said == "method was simhash, is minhash"

    def test_an_index_of_before_tells_nothing(self) -> None:
        assert not differences(None, "{}")

    def test_what_is_described_is_what_the_version_is_made_of(self) -> None:
        assert described(Settings(hamming=4)) == described(Settings())
        assert configuration_version(Settings(hamming=4)) == configuration_version(Settings())


def described(settings: Settings) -> dict[str, object]:
    return describe_configuration(settings)


class Record(NamedTuple):
    value: bytes | None
    key: bytes | None = b"k"
    timestamp: int = NOW
    headers: tuple[tuple[str, bytes | None], ...] = (("dedup-source", b"documents/1/5"),)
    topic: str = "documents.annotated"
    partition: int = 3
    offset: int = 8


ANNOTATED = (
    b'{"text":"t","dedup":{"status":"%b","duplicate_id":"d","original_id":"x","method":"minhash",'
    b'"configuration":"c","decided_at":"2023-11-14T22:13:20.250Z"}}'
)


class TestReading:
    def test_an_original_tells_its_id_place_and_time(self) -> None:
        reading = Reading(Settings(), annotated=True)

        message = reading.of_record(Record(ANNOTATED % b"original"))

        document = reading.document(message)
        assert (document.id, document.source, document.time) == ("x", "documents/1/5", NOW / 1000)
        assert (message.lane, message.next_offset, message.moment) == (3, 9, NOW + 250)
        assert message.told is not None
        assert message.told.status is Status.ORIGINAL

    def test_a_duplicate_is_not_named_by_its_original(self) -> None:
        reading = Reading(Settings(), annotated=True)

        message = reading.of_record(Record(ANNOTATED % b"near_duplicate"))

        assert reading.document(message).id == "k"

    def test_the_input_is_not_taken_at_its_word(self) -> None:
        reading = Reading(Settings(), annotated=False)

        message = reading.of_record(Record(ANNOTATED % b"original", topic="documents"))

        assert message.told is None
        assert (message.source, message.moment) == ("documents/3/8", NOW)

    def test_a_message_that_is_no_object_tells_nothing(self) -> None:
        reading = Reading(Settings(), annotated=True)

        assert reading.of_record(Record(b"\xff")).told is None
        assert reading.of_record(Record(None)).value is None
