"""Secrets come from the environment or from a file, never from flags, and are masked."""

from __future__ import annotations

import logging
import pickle
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from pydantic import SecretStr, ValidationError

from stream_dedup import secret_values
from stream_dedup.cli.main import cli
from stream_dedup.errors import SettingsError
from stream_dedup.fingerprint.hashing import configuration_version
from stream_dedup.redis_urls import take_password
from stream_dedup.secret_settings import secret_names
from stream_dedup.secret_values import MASK, MaskingFormatter, mask, mask_tracebacks, remember
from stream_dedup.secrets import secret_of
from stream_dedup.settings import Settings
from stream_dedup.settings_sources import load_settings, load_shadow

SECRETS = secret_names(Settings)


@pytest.fixture(autouse=True)
def nothing_remembered(alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret_values, "_forms", ())


class TestFiles:
    def test_it_comes_from_a_setting_or_a_file(self, tmp_path: Path) -> None:
        path = tmp_path / "token"
        path.write_text("secret\n")

        assert secret_of(Settings(), "serve_token") == ""
        assert secret_of(Settings(serve_token=SecretStr("other")), "serve_token") == "other"
        assert secret_of(Settings(serve_token_file=path), "serve_token") == "secret"

    def test_a_replaced_file_counts(self, tmp_path: Path) -> None:
        path = tmp_path / "token"
        path.write_text("old")
        settings = Settings(serve_token_file=path)
        assert secret_of(settings, "serve_token") == "old"

        path.write_text("new")

        assert secret_of(settings, "serve_token") == "new"

    @pytest.mark.parametrize("name", SECRETS)
    def test_two_sources_are_refused(self, name: str, tmp_path: Path) -> None:
        path = tmp_path / "secret"
        path.write_text("other")

        with pytest.raises(ValueError, match=f"{name} and {name}_file are both set"):
            Settings.model_validate({name: "other", f"{name}_file": path})

    @pytest.mark.parametrize("name", ["serve_token", "seed"])
    @pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff"])
    def test_a_file_without_one_is_refused(
        self, name: str, tmp_path: Path, content: bytes | None
    ) -> None:
        path = tmp_path / "token"
        if content is not None:
            path.write_bytes(content)

        with pytest.raises(
            SettingsError, match=rf"{name}_file (cannot|is empty).* (Name a file|Write the secret)"
        ):
            secret_of(Settings.model_validate({f"{name}_file": path}), name)


class TestSeed:
    def test_it_is_read_once(self, tmp_path: Path) -> None:
        path = tmp_path / "seed"
        path.write_text("of one run\n")
        settings = load_settings({"seed_file": str(path)})
        path.write_text("of another")

        assert settings.seed.get_secret_value() == "of one run"
        assert settings.seed_file is None
        copy = Settings.model_validate(settings.model_dump())
        assert copy.seed.get_secret_value() == "of one run"

    def test_the_way_it_is_given_makes_no_configuration(self, tmp_path: Path) -> None:
        path = tmp_path / "seed"
        path.write_text("a seed")

        told = configuration_version(Settings(seed=SecretStr("a seed")))

        assert configuration_version(Settings(seed_file=path)) == told
        assert configuration_version(Settings()) != told

    @pytest.mark.parametrize("line", ['seed = "its own"', 'seed_file = "own"'])
    def test_a_shadow_may_have_its_own(self, line: str) -> None:
        Path("live").write_text("of the live one")
        Path("own").write_text("its own")
        Path("shadow.toml").write_text(f'{line}\nredis_namespace = "other"')
        live = load_settings({"seed_file": "live"})

        shadow = load_shadow(live, Path("shadow.toml"), in_redis=True)

        assert shadow.seed.get_secret_value() == "its own"
        assert live.seed.get_secret_value() == "of the live one"


class TestRedisUrl:
    @pytest.mark.parametrize(
        ("urls", "bare", "password"),
        [
            ("redis://h:1/2", "redis://h:1/2", ""),
            ("redis://:p%40ss@h:1/2", "redis://h:1/2", "p@ss"),
            ("rediss://me:pw@[::1]:1?db=3", "rediss://me@[::1]:1?db=3", "pw"),
            ("unix://me:pw@/run/redis?db=1", "unix://me@/run/redis?db=1", "pw"),
            ("redis://:pw@a, redis://b", "redis://a,redis://b", "pw"),
        ],
    )
    def test_its_password_is_taken_out(self, urls: str, bare: str, password: str) -> None:
        assert take_password(urls) == (bare, password)

        settings = Settings(redis_url=urls)

        assert settings.redis_url == bare
        assert secret_of(settings, "redis_password") == password

    @pytest.mark.parametrize(
        "urls",
        [
            "",
            "hidden",
            "hidden@h",
            "redis:hidden@h",
            "redis//:hidden@h",
            "redis://:hid/den@h",
            "redis://:hid?den@h",
            "redis://:hid#den@h",
            "redis://h:hidden",
            "redis://[hidden",
            "redis://:hidden@a,redis://:other@b",
            "redis://h?password=hidden",
            "rediss://h?ssl_password=hidden",
        ],
    )
    def test_a_wrong_one_is_not_repeated(self, urls: str) -> None:
        with pytest.raises(ValidationError, match="redis_url") as caught:
            Settings(redis_url=urls)

        assert "hidden" not in str(caught.value)
        assert "den@h" not in str(caught.value)

    def test_a_second_password_is_refused(self) -> None:
        with pytest.raises(ValueError, match="and another one is set"):
            Settings(redis_url="redis://:one@h", redis_password=SecretStr("other"))

    def test_a_shadow_may_have_its_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("STREAM_DEDUP_REDIS_PASSWORD", "of the live one")
        Path("shadow.toml").write_text('redis_url = "redis://:own@h"\nredis_namespace = "other"')

        shadow = load_shadow(load_settings(), Path("shadow.toml"), in_redis=True)

        assert secret_of(shadow, "redis_password") == "own"

    @pytest.mark.parametrize("url", ["redis://:hidden@h", "redis://:hid/den@h"])
    def test_it_has_none_on_the_command_line(self, url: str) -> None:
        result = CliRunner().invoke(cli, ["worker", "--redis-url", url])

        assert result.exit_code == 2
        assert "redis_password_file" in result.stderr
        assert "den@h" not in result.stderr


class TestFlags:
    def test_no_command_has_one(self) -> None:
        found = []
        context = click.Context(cli)
        for name in cli.list_commands(context):
            command = cli.get_command(context, name)
            assert command is not None
            found += [
                (name, parameter.name)
                for parameter in command.params
                if parameter.name in SECRETS and name != "generate"  # its seed is no secret
            ]

        assert found == []

    def test_help_tells_how_to_give_one(self) -> None:
        said = " ".join(CliRunner().invoke(cli, ["serve", "--help"]).stdout.split())

        assert "--serve-token-file" in said
        assert "STREAM_DEDUP_SERVE_TOKEN in the environment does without a file." in said


class TestMasking:
    def test_settings_remember_theirs(self, tmp_path: Path) -> None:
        (tmp_path / "token").write_text("from a file")
        settings = Settings(
            seed=SecretStr("the seed"),
            redis_url="redis://:the%20word@h",
            http_token_file=tmp_path / "token",
        )
        secret_of(settings, "http_token")

        masked = mask("the seed, the word, the%20word, from a file")

        assert masked == ", ".join([MASK] * 4)

    def test_a_process_that_is_handed_settings_remembers_them(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        handed = pickle.dumps(Settings(seed=SecretStr("the seed")))
        monkeypatch.setattr(secret_values, "_forms", ())

        pickle.loads(handed)

        assert mask("the seed") == MASK

    @pytest.mark.parametrize(
        "form", ['a"b\\c/dé', r"a\"b\\c/d\u00e9", r"a\"b\\c/dé", "a%22b%5Cc/d%C3%A9"]
    )
    def test_it_knows_the_forms_that_a_value_is_written_in(self, form: str) -> None:
        remember('a"b\\c/dé')

        assert mask(f"<{form}>") == f"<{MASK}>"

    def test_a_longer_one_is_masked_first(self) -> None:
        remember("secret")
        remember("secret-longer")

        assert mask("secret-longer secret") == f"{MASK} {MASK}"

    def test_a_very_short_one_is_left(self) -> None:
        remember("text")

        assert mask("text") == "text"

    def test_a_log_line_is_masked_with_its_traceback(self) -> None:
        remember("hidden-value")
        formatter = MaskingFormatter(logging.Formatter("%(message)s"))
        try:
            int("hidden-value")
        except ValueError:
            error = sys.exc_info()
        record = logging.LogRecord("n", 20, "p", 1, "it is %s", ("hidden-value",), error)

        line = formatter.format(record)

        assert "hidden-value" not in line
        assert line.startswith(f"it is {MASK}\nTraceback")

    def test_the_traceback_of_a_program_is_masked(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(sys, "excepthook", sys.excepthook)
        remember("hidden-value")
        mask_tracebacks()

        sys.excepthook(RuntimeError, RuntimeError("hidden-value"), None)

        assert capsys.readouterr().err == f"RuntimeError: {MASK}\n"

    @pytest.mark.parametrize("values", [{"seed": ["hidden"]}, {"threshold": "hidden"}])
    def test_errors_do_not_quote_a_value(self, values: dict[str, Any]) -> None:
        with pytest.raises(ValidationError) as caught:
            Settings.model_validate(values)

        assert "hidden" not in str(caught.value)
