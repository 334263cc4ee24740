"""The HTTP service on requests that its own description gives rise to, and on such as break it.

``FUZZ_SECONDS`` says for how long each operation is asked, in place of once.
"""

from __future__ import annotations

import os
import time
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from stream_dedup import Deduplicator, Document
from stream_dedup.serve.app import make_app
from stream_dedup.serve.source import Source
from tests.hostile.catalogue import GOOD, SETTINGS

EXAMPLES = 20
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
OPERATIONS = [
    "POST /v1/query",
    "GET /v1/groups/{duplicate_id}",
    "GET /healthz",
    "GET /readyz",
    "GET /metrics",
]


def described() -> dict[str, Any]:
    """Return the operations of a service that knows one document, by name."""
    deduplicator = Deduplicator(SETTINGS)
    deduplicator.decide([Document("a", GOOD)])
    app = make_app(SETTINGS, Source(SETTINGS, lambda: deduplicator.index))
    schema = schemathesis.openapi.from_dict(app.openapi())
    schema.app = app
    found: Any = schema.get_all_operations()
    return {one.ok().label: one.ok() for one in found}


def test_these_are_all() -> None:
    assert sorted(described()) == sorted(OPERATIONS)


@pytest.mark.timeout(0 if "FUZZ_SECONDS" in os.environ else 300)
@pytest.mark.parametrize("mode", GenerationMode)
@pytest.mark.parametrize("name", OPERATIONS)
def test_answers_are_as_described(name: str, mode: GenerationMode) -> None:
    operation = described()[name]
    deadline = time.monotonic() + float(os.environ.get("FUZZ_SECONDS", "0"))

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(operation.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        case.validate_response(case.call(), checks=CHECKS)

    while True:
        try:
            ask()
        except Unsatisfiable:  # there is nothing to do wrong with this operation
            assert mode is GenerationMode.NEGATIVE
            assert name not in OPERATIONS[:2]
            return
        if time.monotonic() >= deadline:
            return
