"""What is counted of a batch that was published."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from prometheus_client import REGISTRY
from stream_dedup_workers import process

from stream_dedup.stream import loop
from stream_dedup.stream.counting import count_published
from stream_dedup.stream.poison import Poison, Reason
from stream_dedup.stream.transport import Output
from stream_dedup.types import Decision, Method, Status
from tests.unit.test_loop import Message, ScriptedTransport, drain


def read(*names: str) -> dict[str, float]:
    return {name: REGISTRY.get_sample_value(f"{PREFIX}{name}") or 0.0 for name in names}


def decision(status: Status, **values: Any) -> Decision:
    return Decision(status, "0" * 24, "a", Method.MINHASH, "c", **values)


def count(decisions: list[Decision], **values: Any) -> None:
    given = {"tombstones": 0, "seconds": 0.5, "now": 1_700_000_000.0} | values
    count_published([Message(b"")] * len(decisions), decisions, Counter(), **given)


PREFIX = "stream_dedup_"
NAMES = [
    f"{name}_{part}"
    for name in ("near_similarity", "near_hamming_distance")
    for part in ("count", "sum")
]


@pytest.mark.parametrize(
    ("decided", "moved"),
    [
        (decision(Status.NEAR_DUPLICATE, similarity=0.75), [1, 0.75, 0, 0]),
        (decision(Status.NEAR_DUPLICATE, hamming_distance=3), [0, 0, 1, 3]),
        # Beside a similarity the distance did not decide.
        (decision(Status.NEAR_DUPLICATE, similarity=0.5, hamming_distance=9), [1, 0.5, 0, 0]),
        (decision(Status.EXACT_DUPLICATE, similarity=1.0), [0, 0, 0, 0]),
        (decision(Status.EXACT_DUPLICATE, hamming_distance=0), [0, 0, 0, 0]),
        (decision(Status.ORIGINAL), [0, 0, 0, 0]),
    ],
)
def test_near_duplicates_are_observed_by_what_decided(
    decided: Decision, moved: list[float]
) -> None:
    before = read(*NAMES)

    count([decided])

    assert [read(name)[name] - before[name] for name in NAMES] == pytest.approx(moved)


def test_a_similarity_is_in_the_bucket_that_ends_with_it() -> None:
    def bucket(end: str) -> float:
        labels = {"le": end}
        return REGISTRY.get_sample_value("stream_dedup_near_similarity_bucket", labels) or 0.0

    below, at = bucket("0.75"), bucket("0.8")
    count([decision(Status.NEAR_DUPLICATE, similarity=0.8)])

    assert (bucket("0.75"), bucket("0.8")) == (below, at + 1)


def test_the_time_of_the_latest_batch_is_told() -> None:
    count([decision(Status.ORIGINAL)], now=1_700_000_123.5)

    name = "last_publish_timestamp_seconds"
    assert read(name)[name] == 1_700_000_123.5


def test_an_assignment_is_counted_with_its_partitions() -> None:
    before = read("rebalances_total")["rebalances_total"]

    process._count_assigned(3)

    assert read("rebalances_total", "assigned_partitions") == {
        "rebalances_total": before + 1,
        "assigned_partitions": 3,
    }


def test_a_document_whose_answer_is_a_dead_letter_is_none_of_the_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def value(name: str, **labels: str) -> float:
        return REGISTRY.get_sample_value(PREFIX + name, labels) or 0.0

    def read_both() -> tuple[float, float]:
        documents = sum(value("documents_total", status=str(status)) for status in Status)
        return documents, value("dead_letters_total", reason=str(Reason.TOO_DEEP))

    def refuse(*_: object) -> Output:
        raise Poison(Reason.TOO_DEEP, "The object is nested too deeply.")

    monkeypatch.setattr(loop, "annotated", refuse)
    documents, letters = read_both()

    drain(ScriptedTransport([Message(b'{"text": "a"}')]))

    assert read_both() == (documents, letters + 1)
