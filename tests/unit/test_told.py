"""What a rebuild and the review page read of a topic to which anybody may have written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stream_dedup.review.reading.topic import Topic
from stream_dedup.settings import Settings
from stream_dedup.stream.decoding import MAX_ID_CHARACTERS, is_id
from stream_dedup.stream.headers import HEADER_SOURCE
from stream_dedup.stream.poison import Poison
from stream_dedup.stream.told import Reading
from stream_dedup.stream.transport import InputRecord

_ANNOTATION = {
    "status": "original",
    "duplicate_id": "0" * 24,
    "original_id": "a",
    "configuration": "b",
}
_VALUES: dict[str, dict[str, Any]] = {
    "ordinary": {},
    **{
        f"decided at {time}": {"decided_at": time}
        for time in (
            "0001-01-01T00:00:00",
            "0001-01-01T00:00:00+23:59",
            "9999-12-31T23:59:59",
            "9999-12-31T23:59:59-23:59",
        )
    },
    **{
        f"an id of {len(str(name))} characters": {"original_id": name}
        for name in (2**64, -(2**63) - 1, 10**30, "", "a" * (MAX_ID_CHARACTERS + 1))
    },
    "an unknown status": {"status": "other"},
    "no configuration": {"configuration": 5},
}
_HEADERS: list[list[tuple[str, bytes | None]]] = [
    [],
    [(HEADER_SOURCE, None)],
    [(HEADER_SOURCE, b"\xff\xfe")],
    [(HEADER_SOURCE, b"a/" * 100_000)],
]


@pytest.mark.parametrize("headers", _HEADERS, ids=["none", "null", "not UTF-8", "long"])
@pytest.mark.parametrize("changed", _VALUES.values(), ids=_VALUES)
def test_a_foreign_message_is_read_or_passed_over(
    changed: dict[str, Any], headers: list[tuple[str, bytes | None]]
) -> None:
    settings = Settings()
    rebuild, review = Reading(settings, annotated=True), Topic(settings)
    value = json.dumps({"text": "the ferry leaves at nine", "dedup": _ANNOTATION | changed})
    for timestamp in (-(2**63), -1, 0, 2**63 - 1):
        for key in (None, b"", b"\xff"):
            record = InputRecord("out", 0, 7, timestamp, key, value.encode(), headers)
            message = rebuild.of_record(record)
            try:
                document = rebuild.document(message)
            except Poison:
                continue
            assert message.next_offset == 8
            assert -(2**63) <= message.moment < 2**63
            assert is_id(document.id)
            assert review._read(record).next_offset == 8
