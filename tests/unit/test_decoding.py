"""Bytes to documents."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.errors import SettingsError
from stream_dedup.settings import Settings
from stream_dedup.stream.annotation import annotate
from stream_dedup.stream.decoding import Decoder, ids_of_key, parse_time
from stream_dedup.stream.poison import Poison, Reason
from stream_dedup.types import Decision, Document, Method, Status

DECISION = Decision(Status.NEAR_DUPLICATE, "ab" * 12, "first", Method.MINHASH, "c" * 16, 0.9)


def decode(value: bytes, **settings: Any) -> Document:
    decoder = Decoder(Settings(max_document_bytes=500_000, **settings))
    return decoder.decode(value, fallback_id="fallback", source="t/0/1", fallback_time=12.5)


def reason(value: bytes, **settings: Any) -> Reason:
    with pytest.raises(Poison) as caught:
        decode(value, **settings)
    assert len(caught.value.detail) <= 200
    return caught.value.reason


class TestDecoder:
    def test_takes_what_a_decision_needs(self) -> None:
        value = b'{"lang": "en", "text": "caf\\u00e9", "id": "a1", "more": {"id": 2}}'

        assert decode(value) == Document("a1", "café", 12.5, "t/0/1")

    def test_an_integer_id_stays_one(self) -> None:
        assert decode(b'{"id": 18446744073709551615, "text": ""}').id == 2**64 - 1

    @pytest.mark.parametrize("value", [b'{"text": "x"}', b'{"text": "x", "id": null}'])
    def test_without_an_id_the_fallback_names_it(self, value: bytes) -> None:
        assert decode(value).id == "fallback"

    def test_an_empty_text_is_a_text(self) -> None:
        assert decode(b'{"text": ""}').text == ""

    def test_fields_can_have_other_names(self) -> None:
        names = {"id_field": "url", "text_field": "body", "time_field": "seen"}

        document = decode(b'{"url": "u", "body": "b", "seen": 7, "id": 1, "text": 2}', **names)

        assert document == Document("u", "b", 7.0, "t/0/1")

    def test_a_field_called_time_is_not_read_unless_it_is_the_time_field(self) -> None:
        assert decode(b'{"text": "x", "time": "noon"}').time == 12.5

    def test_without_a_time_the_fallback_counts(self) -> None:
        assert decode(b'{"text": "x", "at": null}', time_field="at").time == 12.5

    def test_an_origin_is_read_from_the_origin_field_only(self) -> None:
        value = b'{"text": "x", "site": "a.example", "origin": 7}'

        assert decode(value).origin == ""
        assert decode(value, origin_field="site").origin == "a.example"

    @pytest.mark.parametrize("value", [b'{"text": "x"}', b'{"text": "x", "site": null}'])
    def test_without_an_origin_it_is_unnamed(self, value: bytes) -> None:
        assert decode(value, origin_field="site").origin == ""

    @pytest.mark.parametrize("origin", [b"7", b"{}", b"[]", b"true"])
    def test_an_origin_of_another_type_is_poison(self, origin: bytes) -> None:
        value = b'{"text": "x", "site": ' + origin + b"}"

        assert reason(value, origin_field="site") is Reason.WRONG_TYPE

    @pytest.mark.parametrize(
        "names",
        [
            {"id_field": "text"},
            {"text_field": "dedup"},
            {"time_field": "id"},
            {"origin_field": "id"},
            {"origin_field": "at", "time_field": "at"},
        ],
    )
    def test_refuses_names_that_clash(self, names: dict[str, Any]) -> None:
        with pytest.raises(SettingsError, match="differ"):
            Decoder(Settings(**names))


class TestTombstones:
    @pytest.mark.parametrize(
        ("key", "ids"),
        [
            (b"a1", ["a1"]),
            ("ä".encode(), ["ä"]),
            (b"42", ["42", 42]),
            (b"-7", ["-7", -7]),
            (b"0", ["0", 0]),
            (b"007", ["007"]),
            (b"1.0", ["1.0"]),
            ("٣".encode(), ["٣"]),
        ],
    )
    def test_a_key_stands_for_a_string_and_maybe_a_number(
        self, key: bytes, ids: list[str | int]
    ) -> None:
        assert ids_of_key(key) == ids

    @pytest.mark.parametrize("key", [None, b"", b"\xff", b"x" * 1025])
    def test_a_key_that_is_no_id_is_refused(self, key: bytes | None) -> None:
        with pytest.raises(Poison) as caught:
            ids_of_key(key)

        assert caught.value.reason is Reason.TOMBSTONE

    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (b'{"id": "a", "text": null}', "a"),
            (b'{"text": null, "id": 7, "more": [1]}', 7),
            (b'{"text": null}', None),
            (b'{"id": null, "text": null}', None),
            (b'{"id": 1.5, "text": null}', None),
            (b'{"id": "a", "text": "null"}', None),
            (b'{"id": "a"}', None),
            (b"nonsense", None),
            (b"[]", None),
        ],
    )
    def test_an_object_with_an_id_and_a_null_text_names_it(
        self, value: bytes, expected: str | int | None
    ) -> None:
        assert Decoder(Settings()).forgotten_id(value) == expected


class TestPoison:
    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (b'{"text": "' + b"x" * 500_000 + b'"}', Reason.TOO_LARGE),
            (b'{"text": "\xff"}', Reason.NOT_UTF8),
            (b'{"text": "a", "other": "\xff"}', Reason.NOT_UTF8),
            (b'{"text": "a", "\xff": 1}', Reason.NOT_UTF8),
            ('{"text": "ä"}'.encode("utf-16"), Reason.NOT_UTF8),
            (b"", Reason.NOT_JSON),
            (b" \n", Reason.NOT_JSON),
            (b"hello", Reason.NOT_JSON),
            (b'{"text": "a"', Reason.NOT_JSON),
            (b'{"text": "a"} x', Reason.NOT_JSON),
            (b'{"text": "a"}{"text": "b"}', Reason.NOT_JSON),
            (b'{"text": "a", "x": NaN}', Reason.NOT_JSON),
            (b'{"text": "a\x01"}', Reason.NOT_JSON),
            (b'{"text": "lone \\ud800 surrogate"}', Reason.NOT_JSON),
            (b'{"text": "a", "x": "lone \\udc00 surrogate"}', Reason.NOT_JSON),
            (b'\xef\xbb\xbf{"text": "a"}', Reason.NOT_JSON),
            (b"[]", Reason.NOT_AN_OBJECT),
            (b"null", Reason.NOT_AN_OBJECT),
            (b'"text"', Reason.NOT_AN_OBJECT),
            (b'{"text": "a", "x": ' + b"[" * 9999 + b"]" * 9999 + b"}", Reason.TOO_DEEP),
            (b'{"text": "a", "x": ' + b'{"a":' * 9999 + b"1" + b"}" * 9999 + b"}", Reason.TOO_DEEP),
            (b"{}", Reason.MISSING_TEXT),
            (b'{"id": 1, "Text": "a"}', Reason.MISSING_TEXT),
            (b'{"text": null}', Reason.WRONG_TYPE),
            (b'{"text": ["a"]}', Reason.WRONG_TYPE),
            (b'{"text": 5, "id": {}}', Reason.WRONG_TYPE),
            (b'{"text": "a", "id": 1.5}', Reason.BAD_ID),
            (b'{"text": "a", "id": true}', Reason.BAD_ID),
            (b'{"text": "a", "id": [1]}', Reason.BAD_ID),
            (b'{"text": "a", "id": 18446744073709551616}', Reason.BAD_ID),
            (b'{"text": "a", "id": ' + b"9" * 9999 + b"}", Reason.BAD_ID),
            (b'{"text": "a", "id": "' + b"x" * 1025 + b'"}', Reason.BAD_ID),
        ],
        ids=lambda value: str(value)[:40],
    )
    def test_each_kind_has_its_reason(self, value: bytes, expected: Reason) -> None:
        assert reason(value) is expected

    @pytest.mark.parametrize(
        "time", ['"noon"', '""', "true", "[]", "1e300", "1e999", "9" * 5000, '"99999-01-01"']
    )
    def test_a_time_that_is_none(self, time: str) -> None:
        value = f'{{"text": "a", "at": {time}}}'.encode()

        assert reason(value, time_field="at") is Reason.BAD_TIME

    def test_details_do_not_quote_the_document(self) -> None:
        with pytest.raises(Poison) as caught:
            decode(b'{"text": 5, "secret-key": "secret-value"}')

        assert "secret" not in caught.value.detail

    @given(st.binary(max_size=60))
    def test_no_bytes_raise_anything_else(self, value: bytes) -> None:
        for candidate in (value, b'{"text": "' + value + b'"}', b'{"text": "a", ' + value + b"}"):
            try:
                document = decode(candidate)
            except Poison:
                continue
            # What is accepted can be annotated, and is then JSON for everybody.
            read = json.loads(annotate(candidate, DECISION))
            assert read["dedup"]["status"] == "near_duplicate"
            assert document.text == read["text"]


class TestTime:
    @pytest.mark.parametrize(
        ("value", "seconds"),
        [
            (1_700_000_000, 1_700_000_000.0),
            (1_700_000_000_250, 1_700_000_000.25),
            (1.5, 1.5),
            (0, 0.0),
            (-86_400, -86_400.0),
            ("2023-11-14T22:13:20Z", 1_700_000_000.0),
            ("2023-11-15T00:13:20+02:00", 1_700_000_000.0),
            ("2023-11-14 22:13:20", 1_700_000_000.0),
            ("2023-11-14T22:13:20.5Z", 1_700_000_000.5),
        ],
    )
    def test_reads(self, value: str | float, seconds: float) -> None:
        assert parse_time(value) == seconds
