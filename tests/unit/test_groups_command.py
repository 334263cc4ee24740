"""``groups`` and ``group`` over files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from stream_dedup.cli.main import cli

FERRY = "The ferry to the island leaves at nine in the morning, and again at noon if it is full."
STEW = "Boil the potatoes for twenty minutes, drain them, and let them steam until they are dry."


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


@pytest.fixture
def annotated(tmp_path: Path) -> str:
    """Two groups, of three and of two documents, and an original alone."""
    documents: list[dict[str, Any]] = [
        {"id": "a", "text": FERRY, "at": 50, "site": "x"},
        {"id": "b", "text": FERRY.upper(), "at": "1970-01-01T00:01:40Z", "site": "y"},
        {"id": "c", "text": STEW, "at": 101},
        {"id": 7, "text": STEW, "at": 102, "site": "x"},
        {"id": "d", "text": FERRY + " Today.", "at": 90, "site": "y"},
        {"id": "e", "text": "Alone.", "at": 91},
    ]
    source = tmp_path / "documents.jsonl"
    source.write_text("\n".join(map(json.dumps, documents)))
    file = tmp_path / "annotated.jsonl.zst"
    made = invoke("run", str(source), "-q", "-o", str(file), *FIELDS)
    assert made.exit_code == 0, made.output
    return str(file)


FIELDS = ("--time-field=at", "--origin-field=site")


def groups(annotated: str, *flags: str) -> list[dict[str, Any]]:
    counted = invoke("groups", annotated, *FIELDS, *flags)
    assert counted.exit_code == 0, counted.output
    return [json.loads(line) for line in counted.stdout.splitlines()]


class TestGroups:
    def test_each_group_is_a_line(self, annotated: str) -> None:
        ferry, stew = groups(annotated)

        assert ferry.pop("duplicate_id") != stew.pop("duplicate_id")
        similarity = ferry["first_members"][1].pop("similarity")
        assert 0.8 <= similarity < 1
        assert ferry == {
            "original_id": "a",
            "size": 3,
            "exact_duplicates": 1,
            "near_duplicates": 1,
            "revision": 2,
            "first_seen": 90.0,
            "last_seen": 100.0,
            "sources": [{"origin": "y", "count": 2}],
            "first_members": [
                {
                    "id": "b",
                    "status": "exact_duplicate",
                    "time": 100.0,
                    "origin": "y",
                    "similarity": 1.0,
                },
                {"id": "d", "status": "near_duplicate", "time": 90.0, "origin": "y"},
            ],
        }
        assert (stew["original_id"], stew["size"]) == ("c", 2)

    def test_of_all_documents(self, annotated: str) -> None:
        ferry, stew, alone = groups(annotated, "--members-of=all")

        assert (ferry["size"], ferry["revision"], ferry["first_seen"]) == (3, 3, 50.0)
        assert ferry["sources"][1] == {"origin": "x", "count": 1}
        assert (stew["size"], alone["size"]) == (2, 1)

    def test_into_a_file(self, annotated: str, tmp_path: Path) -> None:
        file = tmp_path / "groups.jsonl"

        assert invoke("groups", annotated, "-o", str(file), *FIELDS).stdout == ""

        assert [json.loads(line) for line in file.read_text().splitlines()] == groups(annotated)

    def test_without_files_a_topic_is_needed(self) -> None:
        refused = invoke("groups")

        assert refused.exit_code == 2
        assert "groups_topic is not set. Name the compacted topic" in refused.output

    def test_a_line_that_is_not_annotated(self, tmp_path: Path) -> None:
        file = tmp_path / "plain.jsonl"
        file.write_text('{"id": 1, "text": "x"}')

        refused = invoke("groups", str(file))

        assert refused.exit_code == 65
        assert "plain.jsonl:1 is not an annotated document" in refused.output


class TestGroup:
    def test_by_a_document_s_id(self, annotated: str) -> None:
        for name in ("a", "b", "d"):
            shown = invoke("group", name, "--annotated", annotated, *FIELDS)
            assert shown.exit_code == 0
            lines = shown.stdout.splitlines()
            assert lines[0] == "2 similar to a"
            assert "documents         3, the original included" in lines
            assert "seen              1970-01-01T00:01:30Z to 1970-01-01T00:01:40Z" in lines
            assert "        2  y" in lines
            assert lines[-2].startswith("  exact_duplicate  b  similarity 1.00  1970-")

    def test_by_its_name_and_by_a_number(self, annotated: str) -> None:
        stew = groups(annotated)[1]

        for name in (stew["duplicate_id"], "7", "c"):
            shown = invoke("group", name, "--annotated", annotated, "--json", *FIELDS)
            assert json.loads(shown.stdout) == stew

    def test_what_is_left_out_is_counted(self, annotated: str) -> None:
        flags = ("--group-members=0", "--group-sources=0", *FIELDS)

        shown = invoke("group", "a", "--annotated", annotated, *flags).stdout

        assert shown.endswith(
            "near duplicates   1\nseen              1970-01-01T00:01:30Z to 1970-"
            "01-01T00:01:40Z\n\n  ... 2 more\n"
        )

    def test_a_document_without_duplicates(self, annotated: str) -> None:
        missing = invoke("group", "e", "--annotated", annotated, *FIELDS)

        assert missing.exit_code == 1
        assert missing.stderr == "There is no group e: no duplicate of it is known.\n"

    def test_an_id_of_two_groups(self, annotated: str, tmp_path: Path) -> None:
        lines = [
            {"id": "z", "text": FERRY},
            {"id": "z", "text": STEW},
            {"id": "y", "text": FERRY},
            {"id": "x", "text": STEW},
        ]
        source, file = tmp_path / "two.jsonl", tmp_path / "two.out"
        source.write_text("\n".join(map(json.dumps, lines)))
        invoke("run", str(source), "-q", "-o", str(file))

        refused = invoke("group", "z", "--annotated", str(file))

        assert refused.exit_code == 65
        assert "id z are in 2 groups. Name one: " in refused.output
