"""Schemas, examples and code say the same."""

from __future__ import annotations

import json
import typing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator, ValidationError

from stream_dedup.groups import (
    Group,
    Limits,
    ListedMember,
    Member,
    decode_group,
    decode_member,
    encode,
)
from stream_dedup.settings import Settings
from stream_dedup.shadow import By, Comparison, Sample
from stream_dedup.stream import headers as names
from stream_dedup.stream.annotation import ANNOTATION_FIELD, annotate
from stream_dedup.stream.decoding import Decoder
from stream_dedup.stream.poison import Poison, Reason
from stream_dedup.types import Decision, Document, Method, Status

SCHEMAS = Path(__file__).parents[2] / "schemas"
EXAMPLES = sorted((SCHEMAS / "examples").glob("*.json"))
KINDS = ("document", "annotation", "dead_letter", "shadow_sample", "member", "group")


def schema(kind: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SCHEMAS / f"{kind}.v1.schema.json").read_text())
    return found


def validator(kind: str) -> Draft202012Validator:
    return Draft202012Validator(schema(kind), format_checker=Draft202012Validator.FORMAT_CHECKER)


def annotation_schema() -> dict[str, Any]:
    found: dict[str, Any] = schema("annotation")["$defs"]["annotation"]
    return found


DECISIONS = [
    Decision(Status.ORIGINAL, "0" * 24, "a", Method.MINHASH, "f" * 16),
    Decision(Status.EXACT_DUPLICATE, "0" * 24, 7, Method.MINHASH, "f" * 16, similarity=1.0),
    Decision(Status.NEAR_DUPLICATE, "0" * 24, "", Method.MINHASH, "f" * 16, similarity=0.83),
    Decision(Status.NEAR_DUPLICATE, "0" * 24, -1, Method.SIMHASH, "f" * 16, hamming_distance=0),
    Decision(Status.NEAR_DUPLICATE, "0" * 24, -1, Method.SIMHASH, "f" * 16, hamming_distance=128),
    Decision(Status.NEAR_DUPLICATE, "0" * 24, "", Method.FUSED, "f" * 16, 0.71, 2),
    Decision(Status.ORIGINAL, "0" * 24, "a", Method.MINHASH, "f" * 16, revises="1" * 24),
    Decision(
        Status.ORIGINAL,
        "0" * 24,
        2**64 - 1,
        Method.SIMHASH,
        "f" * 16,
        decided_at="2024-05-01T09:30:00.250Z",
    ),
]


class TestSchemas:
    @pytest.mark.parametrize("kind", KINDS)
    def test_each_schema_is_a_schema(self, kind: str) -> None:
        Draft202012Validator.check_schema(schema(kind))

    @pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
    def test_each_example_validates(self, path: Path) -> None:
        validator(path.name.split(".")[0]).validate(json.loads(path.read_text()))

    @pytest.mark.parametrize("kind", KINDS)
    def test_each_schema_has_an_example(self, kind: str) -> None:
        assert any(path.name.startswith(f"{kind}.v1") for path in EXAMPLES)

    def test_each_status_has_an_example(self) -> None:
        annotated = [json.loads(path.read_text()) for path in EXAMPLES if "annotation" in path.name]

        assert {message["dedup"]["status"] for message in annotated} == set(Status)
        assert {message["dedup"]["method"] for message in annotated} == set(Method)


class TestAnnotation:
    @pytest.mark.parametrize("decision", DECISIONS, ids=str)
    def test_each_kind_of_decision_validates(self, decision: Decision) -> None:
        value = annotate(b'{"text": "x"}', decision)

        validator("annotation").validate(json.loads(value))

    def test_the_properties_are_the_fields(self) -> None:
        assert set(annotation_schema()["properties"]) == set(Decision.__struct_fields__)

    def test_what_is_required_is_what_has_no_default(self) -> None:
        required = [field.name for field in msgspec.structs.fields(Decision) if field.required]

        assert annotation_schema()["required"] == required

    def test_the_enumerations_are_the_code_s(self) -> None:
        properties = annotation_schema()["properties"]

        assert properties["status"]["enum"] == list(Status)
        assert properties["method"]["enum"] == list(Method)

    def test_the_field_is_the_code_s(self) -> None:
        assert schema("annotation")["required"] == [ANNOTATION_FIELD]

    def test_the_description_names_the_headers(self) -> None:
        for header in names.ANNOTATION_HEADERS:
            assert header in schema("annotation")["description"]


class TestDeadLetter:
    def test_the_reasons_are_the_code_s(self) -> None:
        reasons = schema("dead_letter")["properties"][names.HEADER_REASON]["enum"]

        assert reasons == list(Reason)

    def test_the_headers_are_the_code_s(self) -> None:
        assert set(schema("dead_letter")["properties"]) == names.DEAD_LETTER_HEADERS

    @pytest.mark.parametrize("truncated", [(), ("value",), ("value", "key", "headers")])
    def test_the_headers_of_each_reason_validate(self, truncated: tuple[str, ...]) -> None:
        for reason in Reason:
            poison = Poison(reason, "x" * 999)
            place = ("documents", 3, 99)
            headers = names.dead_letter_headers(poison, *place, truncated, replays=2)

            validator("dead_letter").validate({name: value.decode() for name, value in headers})


class TestShadowSample:
    def test_the_properties_are_the_fields(self) -> None:
        assert tuple(schema("shadow_sample")["properties"]) == Sample.__struct_fields__
        assert schema("shadow_sample")["required"] == list(Sample.__struct_fields__)

    def test_the_enumeration_is_the_code_s(self) -> None:
        assert schema("shadow_sample")["properties"]["by"]["enum"] == list(typing.get_args(By))

    @pytest.mark.parametrize("decision", DECISIONS, ids=str)
    def test_each_difference_validates_and_so_do_its_decisions(self, decision: Decision) -> None:
        original = Decision(Status.ORIGINAL, "1" * 24, "x", Method.MINHASH, "e" * 16)
        comparison = Comparison(1, 9, same_names=True)
        comparison.add([Document("x", "text")], [original], [decision])

        for sample in comparison.samples():
            line = json.loads(msgspec.json.encode(sample))
            validator("shadow_sample").validate(line)
            for side in ("live", "shadow"):
                validator("annotation").validate({ANNOTATION_FIELD: line[side]})


class TestGroups:
    """What is told of groups, and what they are."""

    DOCUMENTS = (
        Document("a", "x"),
        Document(7, "x", -1.5, origin="ö" * 500),
        Document("", "x", 1e9, origin="o"),
        Document(-1, "x", 2.0, origin="p"),
    )

    @pytest.mark.parametrize("decision", DECISIONS, ids=str)
    @pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.id)
    def test_each_kind_of_member_validates(self, document: Document, decision: Decision) -> None:
        member = Member.of(document, decision)

        validator("member").validate(json.loads(encode(member)))

    def test_each_kind_of_group_validates(self) -> None:
        group = Group.begin(Member.of(self.DOCUMENTS[0], DECISIONS[0]))
        for offset in range(20):
            document = self.DOCUMENTS[offset % len(self.DOCUMENTS)]
            member = Member.of(document, DECISIONS[offset % len(DECISIONS)])
            group.apply(member, 3, offset, Limits(2, 2))
            validator("group").validate(json.loads(encode(group)))

        assert set(json.loads(encode(group))) == set(schema("group")["properties"])

    def test_an_example_is_one_that_can_be_read(self) -> None:
        for path in EXAMPLES:
            if path.name.startswith("group.v1"):
                assert json.loads(encode(decode_group(path.read_bytes()))) == json.loads(
                    path.read_text()
                )
            if path.name.startswith("member.v1"):
                decode_member(path.read_bytes())

    def test_the_properties_are_the_fields(self) -> None:
        definitions = schema("member")["$defs"]
        listed, member = definitions["listed"]["properties"], definitions["member"]["properties"]

        assert set(listed) == set(ListedMember.__struct_fields__)
        assert set(listed) | set(member) == set(Member.__struct_fields__)
        assert set(schema("group")["properties"]) == set(Group.__struct_fields__)
        assert set(schema("group")["$defs"]["listed"]["properties"]) == set(listed)

    def test_what_is_required_is_what_has_no_default(self) -> None:
        definitions = schema("member")["$defs"]
        for kind, required in (
            (ListedMember, definitions["listed"]["required"]),
            (Member, definitions["listed"]["required"] + definitions["member"]["required"]),
            (Group, schema("group")["required"]),
        ):
            fields = msgspec.structs.fields(kind)
            assert {field.name for field in fields if field.required} == set(required)

    def test_the_enumeration_is_the_code_s(self) -> None:
        assert schema("member")["$defs"]["listed"]["properties"]["status"]["enum"] == list(Status)
        assert schema("group")["$defs"]["listed"]["properties"]["status"]["enum"] == list(Status)


class TestDocument:
    VALID: tuple[Any, ...] = (
        {"text": ""},
        {"text": "a", "id": None},
        {"text": "a", "id": "x" * 1024, "extra": [1, {"b": None}]},
        {"text": "a", "id": 2**64 - 1, "time": 1.5},
        {"text": "a", "id": -(2**63), "time": "2024-05-01T09:30:00Z"},
        {"text": "a", "time": None},
        {"text": "a", "origin": "site.example"},
        {"text": "a", "origin": None},
    )
    INVALID: tuple[Any, ...] = (
        {},
        [],
        "a",
        {"text": None},
        {"text": 1},
        {"text": "a", "id": 1.5},
        {"text": "a", "id": True},
        {"text": "a", "id": "x" * 1025},
        {"text": "a", "id": 2**64},
        {"text": "a", "time": []},
        {"text": "a", "time": False},
        {"text": "a", "origin": 7},
    )

    @pytest.fixture
    def decoder(self) -> Decoder:
        return Decoder(Settings(time_field="time", origin_field="origin"))

    @pytest.mark.parametrize("value", VALID, ids=str)
    def test_what_the_schema_allows_is_decoded(self, decoder: Decoder, value: object) -> None:
        validator("document").validate(value)

        decoder.decode(json.dumps(value).encode(), fallback_id="x")

    @pytest.mark.parametrize("value", INVALID, ids=str)
    def test_what_the_schema_forbids_is_poison(self, decoder: Decoder, value: object) -> None:
        with pytest.raises(ValidationError):
            validator("document").validate(value)

        with pytest.raises(Poison):
            decoder.decode(json.dumps(value).encode(), fallback_id="x")
