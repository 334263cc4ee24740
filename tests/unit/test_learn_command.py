"""Learning boilerplate, and deduplicating pages with it."""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from stream_dedup.cli.main import cli
from stream_dedup.settings import Settings
from stream_dedup.text.boilerplate import Boilerplate
from stream_dedup.text.learn import BoilerplateLearner
from stream_dedup.types import Document

STORY = " ".join(f"word{chr(97 + number % 26)}{chr(97 + number // 26)}" for number in range(40))

pytestmark = pytest.mark.usefixtures("alone")


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


def write(name: str, documents: list[dict[str, Any]]) -> None:
    Path(name).write_text("".join(json.dumps(document) + "\n" for document in documents))


def page(number: int, site: str, text: str) -> dict[str, Any]:
    """Return a page of a site: its text among menus, notices and counters."""
    menu = "".join(f"<li><a href='/{s}'>{site} on {s}</a></li>" for s in string.ascii_lowercase)
    return {
        "id": f"{site}-{number}",
        "site": site,
        "text": f"<ul>{menu}</ul><h1>{text}</h1><p>{number * 37:,} views</p>"
        f"<p>Share https://{site}.example/{number}?utm=x</p><footer>© {site}</footer>",
    }


CHAIN = ("--clean", "markup,urls,numbers,boilerplate", "--origin-field", "site")


def statuses(*options: str) -> list[tuple[str, str]]:
    result = invoke("run", "new.jsonl", "-q", *options)
    assert result.exit_code == 0, result.stderr
    rows = [json.loads(line)["dedup"] for line in result.stdout.splitlines()]
    return [(row["status"], row["original_id"]) for row in rows]


class TestChain:
    @pytest.fixture(autouse=True)
    def pages(self, alone: None) -> None:
        write(
            "old.jsonl",
            [
                page(n, site, f"{n * 'x'} only here")
                for n in range(1, 21)
                for site in ("one", "two")
            ],
        )
        write("new.jsonl", [page(100, "one", STORY), page(200, "two", STORY)])

    def test_a_copy_on_another_site_is_found_with_it_and_not_without(self) -> None:
        learned = invoke("learn", "boilerplate", "old.jsonl", "-o", "b.bin", *CHAIN)

        assert (learned.exit_code, learned.stderr) == (0, "")
        assert learned.stdout == (
            "58 boilerplate lines in 2 of 2 origins, from 40 documents\n"
            "          29  lines in 20 documents of one\n"
            "          29  lines in 20 documents of two\n"
        )
        assert statuses() == [("original", "one-100"), ("original", "two-200")]
        assert statuses(*CHAIN, "--boilerplate-file", "b.bin") == [
            ("original", "one-100"),
            ("exact_duplicate", "one-100"),
        ]

    def test_the_same_documents_give_the_same_file(self) -> None:
        for name in ("a.bin", "b.bin"):
            assert invoke("learn", "boilerplate", "old.jsonl", "-o", name, *CHAIN).exit_code == 0

        assert Path("a.bin").read_bytes() == Path("b.bin").read_bytes()

    def test_a_state_made_with_other_lines_is_refused(self) -> None:
        for name, least in (("a.bin", "5"), ("b.bin", "30")):
            invoke(
                "learn", "boilerplate", "old.jsonl", "-o", name, *CHAIN, "--min-documents", least
            )
        statuses(*CHAIN, "--boilerplate-file", "a.bin", "--state", "s.db")

        again = statuses(*CHAIN, "--boilerplate-file", "a.bin", "--state", "s.db")
        refused = invoke(
            *("run", "new.jsonl", *CHAIN, "--boilerplate-file", "b.bin", "--state", "s.db")
        )

        assert again == [("original", "one-100"), ("exact_duplicate", "one-100")]
        assert refused.exit_code == 78

    def test_an_explanation_takes_the_same_steps(self) -> None:
        invoke("learn", "boilerplate", "old.jsonl", "-o", "b.bin", *CHAIN)

        shown = invoke(
            *("explain", "new.jsonl:1", "new.jsonl:2", *CHAIN, "--boilerplate-file", "b.bin")
        )

        assert "an exact duplicate" in shown.stdout
        assert "first differences" not in shown.stdout

    def test_what_was_found_is_printed_for_programs(self) -> None:
        found = json.loads(
            invoke("learn", "boilerplate", "old.jsonl", "-o", "b.bin", *CHAIN, "--json").stdout
        )

        assert found.pop("digest") == Boilerplate.decode(Path("b.bin").read_bytes()).digest
        assert found == {
            "documents": 40,
            "origins": 2,
            "origins_with_boilerplate": 2,
            "lines": 58,
        }

    def test_the_lines_go_with_the_steps_before(self) -> None:
        invoke("learn", "boilerplate", "old.jsonl", "-o", "b.bin", "--clean", "markup")

        refused = invoke("run", "new.jsonl", *CHAIN, "--boilerplate-file", "b.bin")

        assert refused.exit_code == 2
        assert "were learned after the steps markup, and clean has markup,urls," in refused.stderr


class TestErrors:
    def test_a_line_that_is_no_document_is_named(self) -> None:
        Path("bad.jsonl").write_text('{"text": "a"}\n{"text": "a", "site": 7}\n')

        result = invoke("learn", "boilerplate", "bad.jsonl", "-o", "b", "--origin-field", "site")

        assert result.exit_code == 65
        assert "bad.jsonl:2 is not a document: The origin is a number, not a str" in result.stderr
        assert not Path("b").exists()

    @pytest.mark.parametrize("option", [("--min-documents", "1"), ("--min-share", "1.5")])
    def test_limits_have_a_range(self, option: tuple[str, str]) -> None:
        write("in.jsonl", [])

        assert invoke("learn", "boilerplate", "in.jsonl", "-o", "b", *option).exit_code == 2

    def test_an_unknown_step_is_named(self) -> None:
        write("in.jsonl", [])

        result = invoke("run", "in.jsonl", "--clean", "markup,html")

        assert result.exit_code == 2
        assert result.stderr == (
            "Error: clean: step 2 is unknown; write markup, urls, numbers, boilerplate with "
            "commas between.\n"
        )

    def test_a_file_of_something_else_is_named(self) -> None:
        write("in.jsonl", [{"text": "a"}])

        result = invoke(
            *("run", "in.jsonl", "--clean", "boilerplate", "--boilerplate-file", "in.jsonl")
        )

        assert result.exit_code == 2
        assert "in.jsonl cannot be used: it is no boilerplate file" in result.stderr


class TestLearner:
    def learn(self, documents: list[Document], folder: Path, least: int, share: float) -> list[str]:
        learner = BoilerplateLearner(Settings(), folder)
        learner.add(documents)
        learned = learner.learn(least, share)
        lines = {line for document in documents for line in document.text.splitlines()}
        return sorted(line for line in lines if learned.drop([line], [""]) == [""])

    def test_a_line_counts_once_a_document(self, tmp_path: Path) -> None:
        documents = [Document("a", "twice\ntwice\nboth"), Document("b", "both")]

        assert self.learn(documents, tmp_path, 2, 0) == ["both"]

    def test_both_limits_have_to_be_reached(self, tmp_path: Path) -> None:
        texts = ["half\nall"] * 5 + ["few\nall"] * 2 + ["all"] * 3
        documents = [Document(number, text) for number, text in enumerate(texts)]

        for least, share, expected in (
            (2, 0.0, ["all", "few", "half"]),
            (2, 0.5, ["all", "half"]),
            (6, 0.0, ["all"]),
            (11, 0.0, []),
        ):
            folder = tmp_path / f"{least}-{share}"
            folder.mkdir()
            assert self.learn(documents, folder, least, share) == expected

    def test_an_origin_has_its_own(self, tmp_path: Path) -> None:
        documents = [Document(n, "menu", origin="x") for n in range(5)]

        assert self.learn(documents, tmp_path, 2, 0) == []

    def test_no_documents_have_none(self, tmp_path: Path) -> None:
        assert self.learn([], tmp_path, 2, 0) == []
