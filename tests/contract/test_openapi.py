"""The stored OpenAPI description is what the service says of itself, and what it does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator
from starlette.testclient import TestClient

from stream_dedup import Deduplicator, Document, Settings
from stream_dedup.cli.main import cli
from stream_dedup.groups import Limits, Member, encode, fold_all
from stream_dedup.serve.app import make_app
from stream_dedup.serve.groups import Groups
from stream_dedup.serve.source import Source
from stream_dedup.types import Decision, Method, Status

STORED: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "schemas" / "openapi.v1.json").read_text()
)
NAME = "5f0c3b8a91d2e4467c1a0b9f"
TEXT = " ".join(f"word{number}" for number in range(100))
EXAMPLES = [
    pytest.param(name, example, id=f"{name} {number}")
    for name, schema in STORED["components"]["schemas"].items()
    for number, example in enumerate(schema.get("examples", []))
]


def check(name: str, value: Any) -> None:
    """Hold a value against a schema of the description."""
    whole = {"$ref": f"#/components/schemas/{name}", "components": STORED["components"]}
    Draft202012Validator(whole).validate(value)


class View:
    """Knows one group."""

    def look_up(self, duplicate_id: str) -> bytes | None:
        if duplicate_id != NAME:
            return None
        name, fingerprint = Method.MINHASH, "f" * 16
        duplicate = Decision(Status.NEAR_DUPLICATE, NAME, 7, name, fingerprint, 0.9)
        members = [
            Member.of(Document(number, "", float(number), origin=str(number)), duplicate)
            for number in range(9)
        ]
        (group,) = fold_all(members, Limits(3, 3)).values()
        group.applied = {"0": 8}
        return encode(group)

    def close(self) -> None:
        pass


@pytest.fixture
def client() -> Iterator[TestClient]:
    wanted = {"method": "fused", "verify_by": "shingles", "measure": "containment"}
    settings = Settings.model_validate(wanted)
    deduplicator = Deduplicator(settings)
    deduplicator.decide([Document("a", TEXT)])
    groups = Groups(View)
    app = make_app(settings, Source(settings, lambda: deduplicator.index), groups=groups)
    with TestClient(app) as client:
        yield client


def test_it_is_what_the_command_prints() -> None:
    printed = CliRunner().invoke(cli, ["serve", "--openapi"]).stdout

    assert json.loads(printed) == STORED, "make it with stream-dedup serve --openapi"


def test_it_is_served(client: TestClient) -> None:
    assert client.get("/openapi.json").json() == STORED


@pytest.mark.parametrize(("name", "example"), EXAMPLES)
def test_the_examples_are_as_described_and_answered(
    client: TestClient, name: str, example: Any
) -> None:
    check(name, example)

    assert client.post("/v1/query", json=example).status_code == 200


def test_answers_are_as_described(client: TestClient) -> None:
    for text in (TEXT, TEXT + " and more", "new", ""):
        body = {"text": text, "id": 7, "explain": True}
        check("Answer", client.post("/v1/query", json=body).json())
        check("Answers", client.post("/v1/query", json={"documents": [{"text": text}]}).json())


def test_groups_are_as_described(client: TestClient) -> None:
    check("GroupState", client.get(f"/v1/groups/{NAME}").json())
    missing = client.get(f"/v1/groups/{'0' * 24}")
    wrong = client.get("/v1/groups/post-1")

    assert (missing.status_code, wrong.status_code) == (404, 422)
    for problem in (missing, wrong):
        assert problem.headers["content-type"] == "application/problem+json"
        check("Problem", problem.json())


def test_problems_are_as_described(client: TestClient) -> None:
    bodies: list[Any] = [{}, {"documents": [{}] * 3}, [], {"documents": [{"text": ""}] * 300}]
    for body in bodies:
        check("Problem", client.post("/v1/query", json=body).json())


def test_every_error_is_a_problem_and_every_field_is_described() -> None:
    for path in STORED["paths"].values():
        for operation in path.values():
            assert operation["summary"]
            for status, response in operation["responses"].items():
                kinds = list(response["content"])
                assert status < "400" or kinds == ["application/problem+json"]
    for name, schema in STORED["components"]["schemas"].items():
        for field, described in schema.get("properties", {}).items():
            assert described.get("description"), f"{name}.{field}"
