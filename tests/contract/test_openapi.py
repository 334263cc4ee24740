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
from stream_dedup.serve.app import make_app
from stream_dedup.serve.source import Source

STORED: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "schemas" / "openapi.v1.json").read_text()
)
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


@pytest.fixture
def client() -> Iterator[TestClient]:
    wanted = {"method": "fused", "verify_by": "shingles", "measure": "containment"}
    settings = Settings.model_validate(wanted)
    deduplicator = Deduplicator(settings)
    deduplicator.decide([Document("a", TEXT)])
    app = make_app(settings, Source(settings, lambda: deduplicator.index))
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
