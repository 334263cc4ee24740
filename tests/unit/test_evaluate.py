"""Evaluation as a user meets it: evaluate, sample and tune, on documents whose truth is known."""

from __future__ import annotations

import gzip
import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest
from click.testing import CliRunner, Result

from stream_dedup.cli.main import cli
from stream_dedup.errors import SettingsError
from stream_dedup.evaluate.sampling import allocate
from stream_dedup.evaluate.sweep import grid, parse_axis
from stream_dedup.evaluate.tuning import Aim, default_grid
from stream_dedup.generate import StreamShape, generate
from stream_dedup.settings import Settings

SHAPE = StreamShape(documents=400, words=60, edits=2, resemblance=0.7, viral=1, viral_copies=20)


@pytest.fixture(autouse=True)
def documents(alone: None) -> None:
    """Write the file of documents."""
    Path("docs.jsonl").write_bytes(
        b"".join(msgspec.json.encode(document) + b"\n" for document in generate(SHAPE))
    )


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


def figures(*arguments: str) -> Any:
    """Return what evaluate prints as JSON."""
    result = invoke("evaluate", *arguments, "--json", "--resamples", "50")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refused(*arguments: str) -> str:
    """Return why a command is refused."""
    result = invoke(*arguments)
    assert result.exit_code in {2, 65}, result.output
    return result.stderr


def write(name: str, *documents: tuple[str, str] | tuple[str, str, str | None]) -> None:
    names = ("id", "text", "group")
    lines = [json.dumps(dict(zip(names, one, strict=False))) for one in documents]
    Path(name).write_text("\n".join(lines) + "\n")


A = "one two three four five six seven eight nine ten"
B = "red orange yellow green blue indigo violet black white grey"


class TestGroups:
    def test_known_groups_are_nearly_all_found(self) -> None:
        found = figures("docs.jsonl", "--group-field", "truth.group", "--threshold", "0.6")

        assert found["truth"] == "groups"
        for section, name in (
            ("pairs", "precision"),
            ("pairs", "recall"),
            ("pairs", "f1"),
            ("documents", "accuracy"),
            ("groups", "ari"),
            ("groups", "bcubed_precision"),
            ("groups", "bcubed_recall"),
            ("groups", "bcubed_f1"),
        ):
            low, high = found[section][f"{name}_interval"]
            assert 0.98 < found[section][name] <= 1
            assert low <= found[section][name] <= high
        assert found["counts"]["documents"] == SHAPE.documents

    def test_the_field_is_found_when_it_has_a_usual_name(self) -> None:
        assert figures("docs.jsonl", "--truth", "groups") == {
            **figures("docs.jsonl", "--group-field", "truth.group"),
            "seconds": pytest.approx(0, abs=60),
        }

    def test_a_small_case_by_hand(self) -> None:
        write(
            "few.jsonl", ("a", A, "x"), ("b", A, "x"), ("c", A, "y"), ("d", B, "x"), ("e", "", None)
        )

        found = figures("few.jsonl", "--truth", "groups")

        # Predicted {a b c} {d} {e}, gold {a b d} {c} {e}.
        assert found["pairs"]["precision"] == found["pairs"]["recall"] == pytest.approx(1 / 3)
        assert found["documents"]["accuracy"] == 0.2
        assert found["documents"]["accuracy_counts"] == [1, 5]
        assert found["documents"]["recall"] == 0.5
        assert found["documents"]["precision"] == 0.5
        assert found["groups"]["bcubed_precision"] == pytest.approx((4 / 3 + 1 / 3 + 2) / 5)

    def test_a_missing_field_is_told(self) -> None:
        write("few.jsonl", ("a", A), ("b", B))

        reason = refused("evaluate", "few.jsonl", "--truth", "groups")
        assert "in the field group or cluster or truth.group. Name the field" in reason
        assert "No document has a group in the field gold" in refused(
            "evaluate", "few.jsonl", "--group-field", "gold"
        )

    def test_ids_need_not_be_unique(self) -> None:
        write("few.jsonl", ("a", A, "x"), ("a", B, "y"), ("a", A, "x"))

        assert figures("few.jsonl", "--truth", "groups")["pairs"]["f1"] == 1


class TestPairs:
    def test_tabs_and_json_lines_are_read(self) -> None:
        write("few.jsonl", ("a", A), ("b", A), ("c", B), ("d", B))
        Path("pairs.tsv").write_text(
            "id\tid\tlabel\n# a comment\na\tb\t1\na\tc\t1\nc\td\t0\nb\td\t\n"
        )
        lines = [("a", "b", 1), ("a", "c", 1), ("c", "d", 0), ("b", "d", None)]
        Path("pairs.jsonl").write_text(
            "\n".join(json.dumps({"id": a, "other_id": b, "label": c}) for a, b, c in lines)
        )

        by_tabs = figures("few.jsonl", "--pairs", "pairs.tsv")

        assert by_tabs["pairs"]["precision"] == by_tabs["pairs"]["recall"] == 0.5
        # a and b stand in a pair that is wrong, c and d in another.
        assert by_tabs["documents"]["accuracy_counts"] == [1, 4]
        assert by_tabs["groups"]["ari"] is None
        assert figures("few.jsonl", "--pairs", "pairs.jsonl")["pairs"] == by_tabs["pairs"]

    def test_strata_are_weighed_by_their_pairs(self) -> None:
        write("few.jsonl", ("a", A), ("b", A), ("c", B), ("d", B + " end"), ("e", "x y z"))
        pair = {"other_id": "b", "stratum": "0.9-1", "stratum_pairs": 30, "label": 1}
        other = {"id": "a", "other_id": "e", "stratum": "0.3-0.5", "stratum_pairs": 70}
        lines = [{"id": "a", **pair}, {**other, "label": 1}, {**other, "id": "c", "label": 0}]
        Path("pairs.jsonl").write_text("\n".join(json.dumps(line) for line in lines))

        found = figures("few.jsonl", "--pairs", "pairs.jsonl")

        # One found pair stands for 30; each of the two others for 35, one of them a duplicate.
        assert found["pairs"]["recall"] == pytest.approx(30 / 65)
        assert found["pairs"]["precision"] == 1

    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            ("a\tq\t1", "names 'q', which no document has"),
            ("a\tb\tmaybe", "has the label 'maybe'"),
            ("a\tb", "has not three columns"),
            ('{"id": "a", "label": 1}', "is not a labelled pair"),
            ("a\tb\t", "has no labelled pair"),
        ],
    )
    def test_a_wrong_line_is_told(self, line: str, reason: str) -> None:
        write("few.jsonl", ("a", A), ("b", A))
        Path("pairs.tsv").write_text(line + "\n")

        assert reason in refused("evaluate", "few.jsonl", "--pairs", "pairs.tsv")


class TestReference:
    def test_it_needs_no_label(self) -> None:
        found = figures("docs.jsonl", "--threshold", "0.6")

        assert found["truth"] == "reference"
        assert found["pairs"]["precision"] > 0.99
        assert found["documents"]["recall"] > 0.98
        assert found["counts"]["missed"] == (
            found["counts"]["missed_originals"] + found["counts"]["chains"]
        )

    def test_a_chain_is_counted_as_one(self) -> None:
        words = [f"w{number}" for number in range(100)]
        steps = [" ".join(words[at : at + 60]) for at in (0, 8, 16)]
        write("few.jsonl", *((str(at), text) for at, text in enumerate(steps)))

        found = figures("few.jsonl", "--threshold", "0.7")

        # 0 and 1, and 1 and 2 are near; 0 and 2 are not, so 2 is an original.
        assert found["counts"]["reference_pairs"] == 2
        assert found["counts"]["reference_pairs_exact_rule"] == 1
        assert (found["counts"]["chains"], found["counts"]["missed_originals"]) == (1, 0)
        assert found["pairs"]["recall"] == 0.5
        assert found["documents"]["recall"] == found["documents"]["accuracy"] == 1

    @pytest.mark.parametrize("name", ["saved.tsv", "saved.tsv.gz"])
    def test_a_saved_one_gives_the_same(self, name: str) -> None:
        write(
            "few.jsonl",
            *[(f"{n % 3}", " ".join(f"w{m}" for m in range(n, n + 40))) for n in range(9)],
        )
        options = ("few.jsonl", "--threshold", "0.5")

        new = figures(*options, "--save-reference", name)
        old = figures(*options, "--reference", name)

        assert {**new, "seconds": 0} == {**old, "seconds": 0}
        content = Path(name).read_bytes()
        plain = gzip.decompress(content) if name.endswith(".gz") else content
        assert plain.startswith(b"# threshold=0.5 shingle=word:3 documents=9\n")

    def test_one_from_a_higher_threshold_is_refused(self) -> None:
        figures("docs.jsonl", "--save-reference", "saved.tsv")

        reason = refused("evaluate", "docs.jsonl", "--reference", "saved.tsv", "--threshold", "0.7")

        assert "has pairs from 0.8 on, but 0.7 is wanted" in reason

    def test_texts_are_compared_after_cleaning(self) -> None:
        write("few.jsonl", ("a", A + " https://a.example/x/y"), ("b", A + " https://b.example/z"))

        found = figures("few.jsonl", "--clean", "urls", "--html", "page.html")

        assert found["counts"]["reference_pairs"] == found["counts"]["attached_right"] == 1

    def test_a_window_is_refused(self) -> None:
        assert "a window is set" in refused(
            "evaluate", "docs.jsonl", "--window", "1d", "--time-field", "time"
        )

    def test_two_truths_are_refused(self) -> None:
        Path("pairs.tsv").write_text("a\tb\t1\n")

        reason = refused("evaluate", "docs.jsonl", "--pairs", "pairs.tsv", "--group-field", "g")

        assert "more than one truth" in reason
        assert "no labelled pairs" in refused("evaluate", "docs.jsonl", "--truth", "pairs")


class TestNoDocuments:
    def test_nothing_is_measured_and_nothing_fails(self) -> None:
        Path("none.jsonl").write_bytes(b"")

        found = figures("none.jsonl", "--html", "page.html")

        assert found["counts"]["documents"] == 0
        assert found["pairs"]["precision"] is found["pairs"]["recall"] is None
        assert invoke("sample", "none.jsonl").exit_code == 0
        assert invoke("tune", "none.jsonl", "--grid", "threshold=.5,.6").exit_code == 0

    def test_what_is_no_document_is_told(self) -> None:
        Path("broken.jsonl").write_text('{"id": "a"}\n')

        assert "broken.jsonl:1 is not a document" in refused("evaluate", "broken.jsonl")


class TestSweep:
    @pytest.mark.parametrize(
        ("text", "axis"),
        [
            ("threshold=0.6:0.8:0.1", ("threshold", ["0.6", "0.7", "0.8"])),
            ("k=0:3", ("hamming", ["0", "1", "2", "3"])),
            ("shingle=word:2, char:5", ("shingle", ["word:2", "char:5"])),
            ("shingles=word:3", ("shingle", ["word:3"])),
            ("rows=4", ("rows", ["4"])),
        ],
    )
    def test_values_are_read(self, text: str, axis: tuple[str, list[str]]) -> None:
        assert parse_axis(text) == axis

    @pytest.mark.parametrize(
        "text",
        ["threshold", "threshold=", "seed=1,2", "redis_url=a,b", "threshold=2:1", "rows=1:9:0"],
    )
    def test_anything_else_is_refused(self, text: str) -> None:
        with pytest.raises(SettingsError):
            parse_axis(text)

    def test_several_make_a_grid(self) -> None:
        assert grid([("a", ["1", "2"]), ("b", ["x"])]) == [
            {"a": "1", "b": "x"},
            {"a": "2", "b": "x"},
        ]
        with pytest.raises(SettingsError):
            grid([("a", ["1"]), ("a", ["2"])])

    def test_each_point_is_measured_and_a_useless_one_told(self) -> None:
        found = figures(
            "docs.jsonl", "--truth", "groups", "--sweep", "threshold=0.3:0.9:0.3", "--rows", "3"
        )["sweep"]

        assert [point["settings"]["threshold"] for point in found] == [0.3, 0.6, 0.9]
        assert "No number of bands of 3 rows" in found[0]["reason"]
        assert found[2]["pairs"]["recall"] is not None

    def test_the_point_in_force_has_the_figures_of_the_run(self) -> None:
        found = figures("docs.jsonl", "--truth", "groups", "--sweep", "threshold=0.7,0.8")

        point = found["sweep"][1]
        assert {name: point[name] for name in ("pairs", "documents", "groups", "counts")} == {
            name: found[name] for name in ("pairs", "documents", "groups", "counts")
        }


class TestPictures:
    def test_files_and_a_page_that_needs_nothing_else(self) -> None:
        write(
            "few.jsonl",
            ("a", A, "x"),
            ("<b>&", A + " <script>alert(1)</script>", "x"),
            *((str(n), f"{A} {n}", str(n)) for n in range(4)),
        )

        result = invoke(
            "evaluate", "few.jsonl", "--truth", "groups", "--plots", "drawn", "--html", "page.html",
            "--sweep", "shingle=word:2,word:3", "--sweep", "threshold=0.5:0.9:0.1",
        )  # fmt: skip

        assert result.exit_code == 0, result.output
        names = {"precision-recall.png", "s-curve.png", "similarity.png"}
        assert {path.name for path in Path("drawn").iterdir()} == names
        assert all(path.read_bytes().startswith(b"\x89PNG") for path in Path("drawn").iterdir())
        page = Path("page.html").read_text()
        drawings = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
        assert len([ET.fromstring(drawing) for drawing in drawings]) == len(names)
        assert "<script" not in page
        assert "&lt;script&gt;" in page
        assert not re.search(r'(src|href)="[^#]', page)
        ids = re.findall(r' id="([^"]+)"', page)
        assert len(ids) == len(set(ids))

    @pytest.mark.parametrize(
        "options", [("--method", "simhash"), ("--method", "fused"), ("--threshold", "0.1")]
    )
    def test_every_method_is_drawn(self, options: tuple[str, ...]) -> None:
        result = invoke("evaluate", "docs.jsonl", "--plots", "drawn", "--resamples", "0", *options)

        assert result.exit_code == 0, result.output

    def test_documents_without_pairs_are_drawn(self) -> None:
        write("few.jsonl", ("a", A), ("b", B))

        assert invoke("evaluate", "few.jsonl", "--html", "page.html").exit_code == 0

    def test_a_missing_library_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "matplotlib", None)

        reason = refused("evaluate", "docs.jsonl", "--plots", "drawn")

        assert "pip install 'stream-dedup[evaluate]'" in reason


class TestSample:
    def test_pairs_come_back_labelled(self) -> None:
        result = invoke("sample", "docs.jsonl", "--count", "30", "-o", "sample.jsonl")

        assert result.exit_code == 0, result.output
        pairs = [json.loads(line) for line in Path("sample.jsonl").read_text().splitlines()]
        assert 0 < len(pairs) <= 30
        assert {pair["label"] for pair in pairs} == {None}
        truth = {document.id: document.truth for document in generate(SHAPE)}
        for pair in pairs:
            low, high = map(float, pair["stratum"].split("-"))
            assert low <= pair["similarity"] <= high
            pair["label"] = int(truth[pair["id"]].group == truth[pair["other_id"]].group)  # type: ignore[union-attr]
        Path("sample.jsonl").write_text("\n".join(json.dumps(pair) for pair in pairs))
        found = figures("docs.jsonl", "--pairs", "sample.jsonl", "--threshold", "0.6")
        assert found["counts"]["labelled_pairs"] == len(pairs)
        assert found["pairs"]["recall"] > 0.9

    def test_the_same_seed_draws_the_same(self) -> None:
        def draw(seed: str) -> str:
            return invoke("sample", "docs.jsonl", "--count", "5", "--random-seed", seed).stdout

        assert draw("1") == draw("1") != draw("2")

    def test_what_a_small_stratum_lacks_goes_to_others(self) -> None:
        assert allocate([100, 2, 0, 100], 20) == [9, 2, 0, 9]
        assert sum(allocate([7, 7, 7], 8)) == 8
        assert allocate([1, 1], 10) == [1, 1]
        assert allocate([], 3) == []


class TestTune:
    def test_it_proposes_and_writes_settings_that_reach_the_wanted_recall(self) -> None:
        result = invoke(
            "tune", "docs.jsonl", "--truth", "groups", "--recall", "0.98", "--write", "tuned.toml",
            "--grid", "threshold=0.5:0.9:0.2", "--grid", "shingle=word:2,word:3", "--json",
        )  # fmt: skip

        assert result.exit_code == 0, result.output
        found = json.loads(result.stdout)
        assert found["held_out"]["pairs"]["recall"] > 0.95
        assert sum(found["documents"]) == SHAPE.documents
        written = tomllib.loads(Path("tuned.toml").read_text())
        assert written == found["settings"]
        Settings.model_validate(written)
        again = figures("docs.jsonl", "--truth", "groups", "--config", "tuned.toml")
        assert again["pairs"] == found["all_documents"]["pairs"]

    def test_it_prints_points_and_the_half_held_out(self) -> None:
        result = invoke(
            "tune", "docs.jsonl", "--grid", "method=minhash,simhash", "--resamples", "9"
        )

        assert result.exit_code == 0, result.output
        assert "Proposed: method minhash" in result.stdout
        assert re.search(r"On the \d+ documents held out", result.stdout)

    def test_a_file_is_not_written_over(self) -> None:
        Path("tuned.toml").write_text("mine")

        reason = refused("tune", "docs.jsonl", "--grid", "rows=6", "--write", "tuned.toml")

        assert "tuned.toml cannot be written" in reason

    def test_a_grid_without_a_point_that_can_be_used_is_told(self) -> None:
        assert "No point of the grid" in refused("tune", "docs.jsonl", "--grid", "rows=100")

    def test_a_wanted_precision_goes_before_all(self) -> None:
        def report(precision: float, recall: float) -> Any:
            return {"pairs": {"precision": precision, "recall": recall, "f1": 0.5}}

        aim = Aim(precision=0.9)

        assert aim.rank(report(0.9, 0.5)) > aim.rank(report(0.89, 0.99))
        assert aim.rank(report(0.91, 0.6)) > aim.rank(report(0.99, 0.5))
        assert aim.rank(report(0.8, 0.1)) > aim.rank(report(0.7, 0.9))

    def test_low_thresholds_are_for_few_documents(self) -> None:
        few, many = default_grid(100), default_grid(100_000)

        assert min(float(one.get("threshold", 1)) for one in few) == 0.1
        assert min(float(one.get("threshold", 1)) for one in many) == 0.4
