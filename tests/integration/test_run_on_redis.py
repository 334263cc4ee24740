"""``stream-dedup run`` with its originals in Redis: a node, or a Cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from stream_dedup.cli.main import cli
from tests.services.process import free_ports

EXAMPLES = Path(__file__).parents[2] / "examples" / "documents.jsonl"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["run", *map(str, arguments)])


def without_decision(line: str) -> dict[str, object]:
    read: dict[str, object] = json.loads(line)
    del read["dedup"]
    return read


@pytest.fixture(params=["node", "cluster"])
def url(request: pytest.FixtureRequest) -> str:
    name = {"node": "redis_url", "cluster": "redis_cluster_url"}[request.param]
    address: str = request.getfixturevalue(name)
    return address


def test_it_decides_as_in_memory_and_the_same_again(url: str, tmp_path: Path) -> None:
    in_memory, first, again = (tmp_path / name for name in ("memory", "first", "again"))
    redis = ("--redis-url", url, "--partitions", 16)

    results = [
        run(EXAMPLES, "-o", in_memory, "--json"),
        run(EXAMPLES, "-o", first, "--json", *redis),
        run(EXAMPLES, "-o", again, "--json", *redis, "--jobs", 2),
    ]

    assert [result.exit_code for result in results] == [0, 0, 0], results
    assert first.read_bytes() == again.read_bytes() == in_memory.read_bytes()
    assert json.loads(results[1].stdout)["originals"] > 0


def test_a_later_run_finds_the_originals_of_an_earlier_one(url: str, tmp_path: Path) -> None:
    lines = EXAMPLES.read_text().splitlines()
    # Other ids, so that they are other documents with the same texts.
    copies = [json.dumps({**json.loads(line), "id": f"copy-{n}"}) for n, line in enumerate(lines)]
    later, output = tmp_path / "later.jsonl", tmp_path / "annotated.jsonl"
    later.write_text("\n".join(copies))
    flags = ("-o", output, "--json", "--redis-url", url)

    assert run(EXAMPLES, *flags).exit_code == 0
    result = run(later, *flags)

    assert result.exit_code == 0
    empty = sum(not json.loads(line)["text"].strip() for line in lines)
    assert json.loads(result.stdout)["originals"] == empty
    annotated = output.read_text().splitlines()
    assert [without_decision(line) for line in annotated] == [json.loads(line) for line in copies]


def test_the_address_may_come_from_a_setting(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAM_DEDUP_REDIS_URL", url)
    outputs = [tmp_path / "first", tmp_path / "second", tmp_path / "memory"]

    summaries = [
        run(EXAMPLES, "-o", outputs[0], "--json", "--redis"),
        run(EXAMPLES, "-o", outputs[1], "--json", "--redis", "--threshold", 0.9),
        run(EXAMPLES, "-o", outputs[2], "--json", "--threshold", 0.9),
    ]

    # Other fingerprint settings meet the index that is there; without --redis nothing asks it.
    assert [summary.exit_code for summary in summaries] == [0, 78, 0]
    assert "built with other settings" in summaries[1].output


def test_two_places_for_the_originals_are_refused(tmp_path: Path) -> None:
    result = run(EXAMPLES, "--state", tmp_path / "state.db", "--redis")

    assert result.exit_code == 2
    assert "Name one." in result.output


def test_a_redis_that_is_not_there_is_told_in_a_sentence(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    result = run(EXAMPLES, "-o", tmp_path / "out", "--redis-url", f"redis://127.0.0.1:{port}")

    assert result.exit_code == 69
    assert "Redis does not answer at" in result.output
