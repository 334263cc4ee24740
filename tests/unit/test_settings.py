"""Settings: where they come from, and what is said about a wrong one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from stream_dedup.cli.main import cli
from stream_dedup.cli.options import describe_default
from stream_dedup.errors import SettingsError
from stream_dedup.setting_types import parse_duration
from stream_dedup.settings import ENV_PREFIX, Settings, group_of
from stream_dedup.settings_sources import load_settings

DOCUMENT = Path(__file__).parents[2] / "docs" / "settings.md"
NAMES = sorted(Settings.model_fields)

pytestmark = pytest.mark.usefixtures("alone")


def show(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["settings", *arguments])


def refused(config: Path | None = None, **flags: Any) -> str:
    with pytest.raises(SettingsError) as caught:
        load_settings(flags, config)
    return str(caught.value)


class TestSources:
    def test_without_any_source_the_defaults_are_in_force(self) -> None:
        assert load_settings() == Settings()

    def test_a_flag_goes_before_the_environment_before_the_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        config = tmp_path / "some.toml"
        config.write_text("threshold = 0.5\nrecall = 0.6\nhamming = 1\n")
        monkeypatch.setenv("STREAM_DEDUP_THRESHOLD", "0.55")
        monkeypatch.setenv("STREAM_DEDUP_RECALL", "0.65")

        loaded = load_settings({"threshold": 0.9}, config)

        assert (loaded.threshold, loaded.recall, loaded.hamming) == (0.9, 0.65, 1)

    def test_the_file_is_looked_for_in_the_current_directory(self, tmp_path: Path) -> None:
        (tmp_path / "stream-dedup.toml").write_text("hamming = 2\n")

        assert load_settings().hamming == 2

    def test_a_file_named_by_the_environment_goes_before_that_one(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "stream-dedup.toml").write_text("hamming = 2\n")
        (tmp_path / "other.toml").write_text("hamming = 4\n")
        monkeypatch.setenv("STREAM_DEDUP_CONFIG", "other.toml")

        assert load_settings().hamming == 4

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        assert "absent.toml does not exist." in refused(tmp_path / "absent.toml")

    @pytest.mark.parametrize("content", [b"threshold = \n", b"threshold = 0.5\nthr", b"\xff"])
    def test_a_file_that_is_not_toml_is_named(self, tmp_path: Path, content: bytes) -> None:
        config = tmp_path / "bad.toml"
        config.write_bytes(content)

        assert "bad.toml cannot be read: " in refused(config)


class TestValues:
    def test_an_unknown_name_is_refused(self, tmp_path: Path) -> None:
        config = tmp_path / "some.toml"
        config.write_text("treshold = 0.5\n")

        assert refused(config) == "treshold: there is no such setting; see stream-dedup settings."

    @pytest.mark.parametrize(
        ("name", "value", "reason"),
        [
            ("threshold", 0.04, "greater than or equal to 0.05"),
            ("threshold", 1.01, "less than or equal to 1"),
            ("threshold", float("nan"), ""),
            ("threshold", "high", "valid number"),
            ("hamming", 17, "less than or equal to 16"),
            ("hamming", 2.5, "valid integer"),
            ("recall", 1.0, "less than or equal to 0.9999"),
            ("method", "md5", "'minhash', 'simhash' or 'fused'"),
            ("compression", "rar", "'none'"),
            ("redis_namespace", "a b", "match pattern"),
            ("http_port", 65536, "less than or equal to 65535"),
            ("window", "0s", "greater than 0"),
            ("window", "9" * 400 + "d", "finite number"),
            ("window", float("inf"), "finite number"),
            ("window", "-1d", "this is not a duration; write a number and a unit"),
            ("window", "a month", "is not a duration"),
            ("window", "5 y", "is not a duration"),
            ("redis_timeout", "", "is not a duration"),
            ("shingle", "word", "this is not a shingle; write word:1 to word:8"),
            ("shingle", "word:0", "is not a shingle"),
            ("shingle", "word:9", "is not a shingle"),
            ("shingle", "char:1", "is not a shingle"),
            ("shingle", "char:17", "is not a shingle"),
            ("shingle", "byte:4", "is not a shingle"),
            ("punctuation", "some", "'keep'"),
            ("clean", "html", "step 1 is unknown; write markup, urls, numbers, boilerplate"),
            ("clean", "markup,", "step 2 is unknown"),
            ("clean", "Markup", "step 1 is unknown"),
            ("clean", "boilerplate,markup,boilerplate", "can be there once only"),
        ],
    )
    def test_a_value_out_of_range_is_named_in_one_sentence(
        self, name: str, value: Any, reason: str
    ) -> None:
        message = refused(**{name: value})

        assert message.startswith(f"{name}: ")
        assert message.endswith(".")
        assert reason in message
        assert "\n" not in message

    def test_every_wrong_setting_is_named_at_once(self) -> None:
        lines = refused(hamming=17, threshold=2).splitlines()

        assert [line.split(":")[0] for line in lines] == ["threshold", "hamming"]

    def test_a_distance_too_large_for_64_bits_says_what_to_do(self) -> None:
        assert "at most 8 for a SimHash of 64 bits" in refused(hamming=9)
        assert load_settings({"hamming": "16", "simhash_bits": "128"}).simhash_bits == 128
        assert "64 or 128" in refused(simhash_bits=96)

    def test_weights_by_frequency_need_a_file(self) -> None:
        message = refused(weights="tfidf")

        assert "no frequencies_file is set" in message
        assert "stream-dedup learn frequencies" in message

    def test_the_same_topic_cannot_be_read_and_written(self) -> None:
        assert "three different topics" in refused(output_topic="documents")

    @pytest.mark.parametrize(
        ("written", "seconds"),
        [("250ms", 0.25), ("90s", 90), ("1.5m", 90), (" 2 h ", 7200), ("30d", 2_592_000)],
    )
    def test_a_duration_has_a_unit(self, written: str, seconds: float) -> None:
        assert parse_duration(written) == seconds
        assert load_settings({"window": written}).window == seconds

    @pytest.mark.parametrize("unit", ["word:1", "word:8", "char:2", "char:16"])
    def test_a_shingle_has_a_unit_and_a_size(self, unit: str) -> None:
        loaded = load_settings({"shingle": unit})

        assert f"{loaded.shingle_unit}:{loaded.shingle_size}" == unit

    @pytest.mark.parametrize(
        ("written", "steps"),
        [("", []), (" ", []), ("urls", ["urls"]), (" markup ,urls,markup", ["markup", "urls"] * 2)],
    )
    def test_steps_of_cleaning_keep_their_order(self, written: str, steps: list[str]) -> None:
        loaded = load_settings({"clean": written})

        assert loaded.clean_steps == steps[:3]
        assert loaded.clean == ",".join(steps[:3])

    def test_settings_cannot_be_changed(self) -> None:
        with pytest.raises(ValueError, match="frozen"):
            load_settings().hamming = 4


class TestDescriptions:
    @pytest.mark.parametrize("name", NAMES)
    def test_every_setting_has_a_group_and_a_sentence(self, name: str) -> None:
        assert group_of(name) in {
            "input",
            "fingerprint",
            "run",
            "forgetting",
            "redis",
            "kafka",
            "groups",
            "worker",
            "shadow",
            "serve",
            "review",
        }
        assert (Settings.model_fields[name].description or "").endswith(".")

    @pytest.mark.parametrize("name", NAMES)
    def test_every_default_is_shown_as_one_can_write_it(
        self, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shown = describe_default(Settings.model_fields[name])
        if shown:
            monkeypatch.setenv(ENV_PREFIX + name.upper(), shown)

        assert getattr(load_settings(), name) == getattr(Settings(), name)

    def test_the_table_in_the_documentation_is_up_to_date(self) -> None:
        tables = DOCUMENT.read_text().partition("## ")

        printed = show("--markdown").stdout

        assert "".join(tables[1:]) == printed, "make it with stream-dedup settings --markdown"
        assert [name for name in NAMES if f"| `{name}` |" not in printed] == []

    def test_the_documentation_names_no_other_setting(self) -> None:
        example = DOCUMENT.read_text().split("```toml\n")[1].split("```")[0]
        Path("stream-dedup.toml").write_text(example)

        assert load_settings() != Settings()


class TestSecrets:
    @pytest.fixture(autouse=True)
    def secrets(self, alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("STREAM_DEDUP_SEED", "hush")
        monkeypatch.setenv("STREAM_DEDUP_REDIS_URL", "rediss://me:hush@redis.example:6380/2")

    def test_settings_prints_none(self) -> None:
        printed = show().stdout

        assert "hush" not in printed
        assert "seed = ****" in printed
        assert "redis_url = rediss://me@redis.example:6380/2" in printed
        assert "redis_password = ****" in printed

    def test_settings_prints_none_as_json(self) -> None:
        values = json.loads(show("--json").stdout)

        assert sorted(values) == NAMES
        assert "hush" not in msgspec.json.encode(values).decode()

    def test_the_seed_is_not_in_the_text_of_an_object(self) -> None:
        loaded = load_settings()

        assert loaded.seed.get_secret_value() == "hush"
        assert "hush" not in str(loaded.seed) + repr(loaded) + loaded.model_dump_json()

    def test_an_error_does_not_quote_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("STREAM_DEDUP_HAMMING", "17")

        result = show()

        assert result.exit_code == 2
        assert result.stderr == "Error: hamming: Input should be less than or equal to 16.\n"


def test_flags_take_durations_with_a_unit() -> None:
    help_text = CliRunner().invoke(cli, ["worker", "--help"]).stdout
    wrong = CliRunner().invoke(cli, ["worker", "--batch-wait", "100ms", "--redis-timeout", "5y"])

    assert "[default 0.1s]" in " ".join(help_text.split())
    assert wrong.exit_code == 2
    assert wrong.stderr.startswith("Error: redis_timeout: this is not a duration")
