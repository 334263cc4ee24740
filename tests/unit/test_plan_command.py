"""stream-dedup plan, as a user meets it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from stream_dedup.cli.main import cli
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.settings import Settings
from stream_dedup.settings_sources import load_settings
from stream_dedup.types import Method

SIMHASH = ("--documents", "1e9", "--method", "simhash", "--hamming", "3")

pytestmark = pytest.mark.usefixtures("alone")


def plan(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["plan", *arguments])


def described(*arguments: str) -> dict[str, Any]:
    result = plan(*arguments, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def test_the_table_has_a_line_for_each_design_and_a_reason() -> None:
    result = plan(*SIMHASH, "--memory", "64GB")

    assert result.exit_code == 0
    assert "1,000,000,000 originals; method simhash, hamming 3" in result.stdout
    assert "shards of 64 GB, filled to 80%" in result.stdout
    assert re.search(r"^ +2 +5 blocks +10 +25-26 +all +20\.9 +209 ", result.stdout, re.MULTILINE)
    assert re.search(r"^ +3 +4 x 4 blocks +16 +28 +all +3\.73 ", result.stdout, re.MULTILINE)
    assert re.search(r"Recommended: design 4, 6 blocks\. It takes the least", result.stdout)


def test_bands_are_shown_with_what_they_find_at_several_resemblances() -> None:
    result = plan("--documents", "2e6", "--threshold", ".8")

    assert re.search(r"^ +1 +16 bands of 6 +16 +53 +0\.9923 ", result.stdout, re.MULTILINE)
    assert "share of pairs found, by resemblance" in result.stdout
    assert re.search(r"^ +1 +0\.0010.* 0\.9923 ", result.stdout, re.MULTILINE)
    assert re.search(r"missed at 0.8 +missed above +candidates below", result.stdout)
    assert re.search(r"^ +1 +0\.00772 +0\.00076 +0\.27402$", result.stdout, re.MULTILINE)


def test_json_says_the_same() -> None:
    answer = described(*SIMHASH)

    assert answer["originals"] == 10**9
    assert (answer["method"], answer["hamming"]) == ("simhash", 3)
    assert [design["design"] for design in answer["designs"]] == [1, 2, 3, 4, 5, 6, 7]
    chosen = answer["designs"][answer["recommended"] - 1]
    assert (chosen["name"], chosen["tables"], chosen["recall"]) == ("6 blocks", 20, 1.0)
    assert chosen["prefix_bits"] == [31, 32, 33]
    assert chosen["settings"] == {"blocks": 6, "inner_blocks": 0}
    assert "recall_curve" not in chosen
    curve = described("--documents", "1e6")["designs"][0]["recall_curve"]
    assert curve["0.8"] == pytest.approx(0.9923, abs=1e-4)
    rates = described("--documents", "1e6")["designs"][0]["rates"]
    assert rates["missed_at"] == pytest.approx(0.0077, abs=1e-4)
    assert "rates" not in chosen


def test_longer_fingerprints_and_other_kinds_can_be_planned(tmp_path: Path) -> None:
    long = described("--documents", "1e8", "--method", "simhash", "--simhash-bits", "128")
    both = described("--documents", "1e6", "--method", "fused", "--minhash", "classic")

    assert (long["simhash_bits"], long["hamming"]) == (128, 3)
    assert long["designs"][0]["record_bytes"] > described(*SIMHASH)["designs"][0]["record_bytes"]
    assert (both["threshold"], both["hamming"], both["minhash"]) == (0.8, 3, "classic")
    assert {design["tables"] for design in both["designs"]} == {20, 26, 32, 36, 51, 56}


def test_what_is_written_for_both_methods_is_read(tmp_path: Path) -> None:
    path = tmp_path / "planned.toml"

    result = plan(
        *("--documents", "1e8", "--method", "fused", "--simhash-bits", "128", "--write", str(path))
    )

    settings = load_settings(config=path)
    assert result.exit_code == 0
    assert (settings.method, settings.simhash_bits) == ("fused", 128)


def test_duplicates_take_no_room() -> None:
    assert described("--documents", "1e6", "--duplicates", ".4")["originals"] == 600_000


@pytest.mark.parametrize("written", ["200000000", "200_000_000", "2e8", "200e6"])
def test_counts_are_written_in_many_ways(written: str) -> None:
    assert described("--documents", written)["originals"] == 200_000_000


@pytest.mark.parametrize(
    ("written", "size"),
    [("64GB", 64 * 10**9), ("64 gb", 64 * 10**9), ("1.5T", 15 * 10**11), ("2GiB", 2 * 2**30)],
)
def test_sizes_are_written_in_many_ways(written: str, size: int) -> None:
    assert described("--documents", "1e6", "--memory", written)["memory_bytes_per_shard"] == size


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--documents", "many"], "'many' is not a count; write 200000000 or 2e8."),
        (["--documents", "nan"], "nan is out of range; plans are for 1e3 to 1e10 documents."),
        (["--documents", "1e11"], "1e11 is out of range"),
        (["--documents", "1e6", "--memory", "64"], "'64' is not a size of memory; write 64GB"),
        (["--documents", "1e6", "--memory", "0GB"], "'0GB' is not a size of memory"),
        (["--documents", "1e6", "--hamming", "17"], "hamming: Input should be less than or equal"),
        (["--documents", "1e6", "--threshold", ".01"], "threshold: Input should be greater than"),
        (["--documents", "1e6", "--design", "9"], "There is no design 9; take 1 to 5."),
        (["--documents", "1e6", "--duplicates", "1"], "not in the range"),
        ([], "Missing option '--documents'"),
    ],
)
def test_what_is_wrong_is_said(arguments: list[str], message: str) -> None:
    result = plan(*arguments)

    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""


class TestWrite:
    def test_the_recommended_design_is_written_as_settings(self, tmp_path: Path) -> None:
        result = plan(*SIMHASH, "--write", "planned.toml")

        assert result.exit_code == 0
        assert result.stderr == "Wrote planned.toml.\n"
        settings = load_settings(config=tmp_path / "planned.toml")
        assert (settings.method, settings.hamming) == (Method.SIMHASH, 3)
        assert (settings.blocks, settings.inner_blocks) == (6, 0)
        assert settings.expected_originals == 10**9
        assert settings.partitions == described(*SIMHASH)["designs"][3]["partitions"]

    @pytest.mark.parametrize("number", range(1, 8))
    def test_every_design_comes_back_as_its_tables(self, tmp_path: Path, number: int) -> None:
        path = tmp_path / f"{number}.toml"
        plan(*SIMHASH, "--write", str(path), "--design", str(number))

        tables = Fingerprinter(load_settings(config=path)).method.prefix_bits

        design = described(*SIMHASH)["designs"][number - 1]
        assert len(tables) == design["tables"]
        assert sorted(set(tables)) == design["prefix_bits"]

    def test_so_do_bands(self, tmp_path: Path) -> None:
        plan("--documents", "1e6", "--threshold", "1", "--write", "one.toml")
        plan("--documents", "1e6", "--design", "3", "--write", "other.toml")

        other = load_settings(config=tmp_path / "other.toml")
        assert load_settings(config=tmp_path / "one.toml").threshold == 1.0
        assert (other.rows, len(Fingerprinter(other).method.prefix_bits)) == (4, 9)

    def test_the_default_design_keeps_the_configuration_of_the_defaults(
        self, tmp_path: Path
    ) -> None:
        plan("--documents", "1e7", "--write", "planned.toml")

        planned = load_settings(config=tmp_path / "planned.toml")
        assert Fingerprinter(planned).configuration == Fingerprinter(Settings()).configuration

    def test_a_file_that_exists_is_left_alone(self, tmp_path: Path) -> None:
        (tmp_path / "mine.toml").write_text("hamming = 2\n")

        result = plan("--documents", "1e6", "--write", "mine.toml")

        assert result.exit_code == 2
        assert "mine.toml cannot be written: it is there already. Name a new file" in result.stderr
        assert (tmp_path / "mine.toml").read_text() == "hamming = 2\n"


def test_settings_in_force_are_planned_for_but_not_their_blocks(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('method = "simhash"\nhamming = 2\nblocks = 7\n')

    answer = described("--documents", "1e6", "--config", "mine.toml")

    assert answer["hamming"] == 2
    assert "4 blocks" in [design["name"] for design in answer["designs"]]
