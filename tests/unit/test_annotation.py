"""Decisions back into the bytes that they belong to."""

from __future__ import annotations

import pytest

from stream_dedup.stream.annotation import annotate
from stream_dedup.stream.headers import annotation_headers
from stream_dedup.stream.poison import Poison, Reason
from stream_dedup.types import Decision, Method, Status

DECISION = Decision(Status.NEAR_DUPLICATE, "ab" * 12, 'an "id"', Method.MINHASH, "c" * 16, 0.9)
ANNOTATION = (
    b'"dedup":{"status":"near_duplicate","duplicate_id":"abababababababababababab",'
    b'"original_id":"an \\"id\\"","method":"minhash","configuration":"cccccccccccccccc",'
    b'"similarity":0.9}'
)


class TestAnnotate:
    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (b'{"text": "a"}', b'{"text": "a",%s}'),
            (b'{"text": "a"  }\r\n', b'{"text": "a"  ,%s}\r\n'),
            (b" {}", b" {%s}"),
            (b"{ \n }\n", b"{ \n %s}\n"),
            (b'{"text":"}","o":{"a":{}}}', b'{"text":"}","o":{"a":{}},%s}'),
            (b'{"text":"a","x":"{"}', b'{"text":"a","x":"{",%s}'),
            (b'{"text":"a","o":{}}', b'{"text":"a","o":{},%s}'),
            (b'{"n":1e400,"m":0.10,"text":"a"}', b'{"n":1e400,"m":0.10,"text":"a",%s}'),
            ('{"text":"日本"}'.encode(), '{"text":"日本",%s}'.encode()),
        ],
    )
    def test_adds_and_keeps_every_other_byte(self, value: bytes, expected: bytes) -> None:
        assert annotate(value, DECISION) == expected.replace(b"%s", ANNOTATION)

    @pytest.mark.parametrize(
        "value",
        [
            b'{"dedup": {"status": "original"}, "text": "a", "n": 1.10, "big": 1e400}',
            b'{"dedup": 5, "text": "a", "n": 1.10, "big": 1e400}',
            b'{"d\\u0065dup": null, "text": "a", "n": 1.10, "big": 1e400}',
        ],
    )
    def test_replaces_an_earlier_annotation(self, value: bytes) -> None:
        written = annotate(value, DECISION)

        assert written == b"{" + ANNOTATION + b',"text":"a","n":1.10,"big":1e400}'

    @pytest.mark.parametrize(
        "value",
        [
            b'{"text": "a \\"dedup\\" b"}',
            b'{"text": "dedup", "tags": ["dedup", "\\u0041"]}',
            b'{"text": "a", "nested": {"dedup": 1}}',
        ],
    )
    def test_the_word_elsewhere_is_left_alone(self, value: bytes) -> None:
        assert annotate(value, DECISION) == value[:-1] + b"," + ANNOTATION + b"}"

    def test_annotating_twice_leaves_one_annotation(self) -> None:
        other = Decision(Status.ORIGINAL, "d" * 24, 1, Method.MINHASH, "c" * 16)
        once = annotate(b'{"text":"a"}', DECISION)

        assert annotate(annotate(b'{"text":"a"}', other), DECISION) == once

    def test_an_object_too_deep_to_be_written_anew_is_poison(self) -> None:
        deep = b'{"dedup": 1, "x": ' + b"[" * 9999 + b"]" * 9999 + b"}"

        with pytest.raises(Poison) as caught:
            annotate(deep, DECISION)

        assert caught.value.reason is Reason.TOO_DEEP

    def test_headers_repeat_the_main_points(self) -> None:
        assert annotation_headers(DECISION) == [
            ("dedup-status", b"near_duplicate"),
            ("dedup-duplicate-id", b"abababababababababababab"),
            ("dedup-original-id", b'an "id"'),
        ]
