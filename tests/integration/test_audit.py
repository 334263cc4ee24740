"""The audit of a whole index: silent about a sound one, and it finds each way of being broken."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
import redis
from click.testing import CliRunner, Result

from stream_dedup import Deduplicator, Document, Measure, Settings, Status, VerifyBy
from stream_dedup.cli.main import cli
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.generate import StreamShape, generate
from stream_dedup.index.audit import audit
from stream_dedup.index.audit_decisions import Published
from stream_dedup.index.base import index_batch
from stream_dedup.index.claims import Fate, Mode
from stream_dedup.index.keys import Places
from stream_dedup.index.redis import RedisIndex
from stream_dedup.index.rounds import Round
from stream_dedup.stream.annotation import annotate

SHAPE = StreamShape(documents=400, duplicate_share=0.5, edits=1, words=120, distance=400)
TABLES = 16


class Index(NamedTuple):
    settings: Settings
    annotated: Path
    client: Any


@pytest.fixture(params=["node", "cluster"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Index]:
    """An index with some originals, and what was published about all documents."""
    cluster = request.param == "cluster"
    url = request.getfixturevalue("redis_cluster_url" if cluster else "redis_url")
    settings = Settings(redis_url=url, partitions=8, expected_originals=1000)
    annotated = tmp_path / "annotated.jsonl"
    with Deduplicator(settings, index=RedisIndex.connect(settings)) as deduplicator:
        made = list(generate(SHAPE))
        documents = [Document(one.id, one.text, source=one.id) for one in made]
        decisions = deduplicator.decide(documents)
    pairs = zip(made, decisions, strict=True)
    lines = [annotate(msgspec.json.encode(one), decision) for one, decision in pairs]
    annotated.write_bytes(b"\n".join(lines) + b"\n")
    connect = redis.RedisCluster.from_url if cluster else redis.Redis.from_url
    with connect(url) as client:
        yield Index(settings, annotated, client)


def run(index: Index, *arguments: str) -> Result:
    where = ["--redis-url", index.settings.redis_url]
    return CliRunner().invoke(cli, ["audit", *where, *arguments])


def found(index: Index) -> list[tuple[str, str]]:
    """Return the violations, as the command tells them."""
    result = run(index, "--annotated", str(index.annotated), "--json")
    violations = json.loads(result.stdout)["violations"]
    assert result.exit_code == bool(violations)
    return [(one["invariant"], one["detail"]) for one in violations]


def published(index: Index) -> list[dict[str, Any]]:
    return [json.loads(line) for line in index.annotated.read_text().splitlines()]


def rewrite(index: Index, status: Status, **changes: str) -> None:
    """Change the decision of the first document with this status."""
    lines = published(index)
    line = next(line for line in lines if line["dedup"]["status"] == status)
    line["dedup"] |= changes
    index.annotated.write_text("".join(json.dumps(line) + "\n" for line in lines))


def some_key(index: Index, kind: str) -> bytes:
    keys: list[bytes] = sorted(index.client.scan_iter(match=f"sd:{{*}}:{kind}*", count=1000))
    return keys[0]


def insert(
    settings: Settings, document: Document, fate: Fate | None = Fate.ORIGINAL, tables: int = TABLES
) -> None:
    """Write a claim whatever is there, into the first so many tables."""
    opened = RedisIndex.connect(settings)
    prints = Fingerprinter(settings).fingerprint([document.text])
    batch = index_batch([document], prints)
    claims = np.array([1], np.uint64)
    columns = np.arange(tables)
    places = opened.store.layout.place(prints.keys)
    round_ = Round(opened.store)
    round_.put(claims, opened.records.encode(batch))
    round_.probe(
        Places(*(part[0, columns] for part in places)),
        np.repeat(claims, tables),
        np.full(tables, Mode.FORCE, np.uint8),
    )
    if fate is not None:
        round_.settle(claims, np.array([fate], np.uint8))
    round_.run()
    opened.close()


@pytest.mark.parametrize(
    ("verify_by", "measure"),
    [(VerifyBy.SHINGLES, Measure.CONTAINMENT), (VerifyBy.TEXT, Measure.EDIT)],
)
def test_another_evidence_is_audited_too(
    redis_url: str, verify_by: VerifyBy, measure: Measure
) -> None:
    settings = Settings(redis_url=redis_url, verify_by=verify_by, measure=measure)
    made = list(generate(SHAPE))
    documents = [Document(one.id, one.text, source=one.id) for one in made]
    with Deduplicator(settings, index=RedisIndex.connect(settings)) as deduplicator:
        decisions = deduplicator.decide(documents)
    row = next(n for n, one in enumerate(decisions) if one.status is Status.NEAR_DUPLICATE)
    others = (one for one in decisions if one.original_id != decisions[row].original_id)
    other = next(others)
    wrong = msgspec.structs.replace(
        decisions[row], original_id=other.original_id, duplicate_id=other.duplicate_id
    )

    pairs = list(zip(documents, decisions, strict=True))
    sound = audit(settings, [Published("line", *pair) for pair in pairs])
    broken = audit(settings, [Published("line", documents[row], wrong)])

    assert sound.violations == []
    assert sound.originals == sum(one.status is Status.ORIGINAL for one in decisions)
    assert [one.invariant for one in broken.violations] == ["I2"]


def test_a_sound_index_has_no_violations(index: Index) -> None:
    decided = [line["dedup"]["status"] for line in published(index)]
    originals = decided.count("original")

    result = run(index, "--annotated", str(index.annotated), "--json")
    shown = run(index)

    assert result.exit_code == shown.exit_code == 0
    audited = json.loads(result.stdout)
    tables = audited.pop("tables")
    assert audited == {
        "originals": originals,
        "pending": 0,
        "void": 0,
        "entries": originals * TABLES,
        "pending_entries": 0,
        "void_entries": 0,
        "unknown_entries": 0,
        "id_entries": originals,
        "unnamed": 0,
        "pairs_compared": 0,
        "decisions": len(decided),
        "gone": 0,
        "other_configuration": 0,
        "violations": [],
    }
    assert tables == [{"entries": originals, "keys": originals, "mean": 1.0, "fullest": 1}] * TABLES
    assert "\n0 violations\n" in shown.stdout


def test_a_missing_entry_is_found(index: Index) -> None:
    key = some_key(index, "t")
    index.client.zrem(key, index.client.zrange(key, 0, 0)[0])

    violations = found(index)

    assert [invariant for invariant, _ in violations] == ["I4", "I4"]
    assert f"is missing from 1 of {TABLES} tables" in "".join(detail for _, detail in violations)


def test_an_entry_under_a_wrong_key_is_found(index: Index) -> None:
    key = some_key(index, "t")
    member, score = index.client.zrange(key, 0, 0, withscores=True)[0]
    index.client.zadd(key, {member: score + 1})

    ((invariant, detail),) = found(index)

    assert invariant == "I4"
    assert "does not stand under all its keys" in detail


def test_a_second_near_original_is_found(index: Index) -> None:
    text = published(index)[0]["text"]
    insert(index.settings, Document("second", f"{text} and more", source="by hand"))

    audited = audit(index.settings)

    assert [one.invariant for one in audited.violations] == ["I1"]
    assert "second" in audited.violations[0].detail
    assert audited.pairs_compared > 0
    assert max(table.fullest for table in audited.tables) == 2


def test_equal_originals_are_found_even_without_a_key_in_common(index: Index) -> None:
    text = published(index)[0]["text"]
    insert(index.settings, Document("second", text, source="by hand"), tables=0)

    violations = audit(index.settings).violations

    assert [one.invariant for one in violations] == ["I1", "I4"]


def test_a_dropped_record_is_found(index: Index) -> None:
    key = some_key(index, "c")
    index.client.hdel(key, next(iter(index.client.hgetall(key))))

    assert audit(index.settings).unknown_entries == TABLES
    assert {invariant for invariant, _ in found(index)} >= {"I3"}


def test_a_decision_that_names_no_original_is_found(index: Index) -> None:
    rewrite(index, Status.NEAR_DUPLICATE, original_id="nobody")

    ((invariant, detail),) = found(index)

    assert invariant == "I2"
    assert "has nobody for its original, which is not in the index" in detail


def test_a_duplicate_that_is_not_near_its_original_is_found(index: Index) -> None:
    lines = published(index)
    originals = [line["dedup"] for line in lines if line["dedup"]["status"] == "original"]
    duplicate = next(line["dedup"] for line in lines if line["dedup"]["status"] != "original")
    other = next(one for one in originals if one["original_id"] != duplicate["original_id"])
    names = {name: other[name] for name in ("original_id", "duplicate_id")}
    rewrite(index, Status(duplicate["status"]), **names)

    ((invariant, detail),) = found(index)

    assert invariant == "I2"
    assert f"is not near its original {other['original_id']}" in detail


def test_a_document_that_was_published_twice_is_found(index: Index) -> None:
    first, rest = index.annotated.read_text().split("\n", 1)
    index.annotated.write_text(f"{first}\n{rest}{first}\n")

    ((invariant, detail),) = found(index)

    assert invariant == "I3"
    assert "was published as an original twice" in detail


def test_pending_claims_are_no_violations(index: Index) -> None:
    insert(index.settings, Document("waiting", "a text like no other", source="1"), fate=None)

    audited = audit(index.settings)

    assert (audited.pending, audited.pending_entries) == (1, TABLES)
    assert audited.violations == []


def test_void_claims_are_counted(index: Index) -> None:
    insert(index.settings, Document("void", "a text like no other", source="1"), fate=Fate.VOID)

    audited = audit(index.settings)

    assert (audited.void, audited.void_entries, audited.violations) == (1, TABLES, [])


def test_the_index_must_be_there(redis_url: str) -> None:
    result = CliRunner().invoke(cli, ["audit", "--redis-url", redis_url])

    assert result.exit_code == 69
    assert "no index 'sd'" in result.stderr


def test_the_fingerprint_settings_must_be_the_index_own(index: Index) -> None:
    result = run(index, "--method", "simhash")

    assert result.exit_code == 78
    assert "Give the fingerprint settings" in result.stderr


def test_a_line_without_a_decision_is_told(index: Index, tmp_path: Path) -> None:
    path = tmp_path / "plain.jsonl"
    path.write_text('{"id": "a", "text": "b"}\n')

    result = run(index, "--annotated", str(path))

    assert result.exit_code == 65
    assert "plain.jsonl:1 is not an annotated document" in result.stderr
