"""A marker in any setting is in nothing that the settings command and their errors print."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pydantic import SecretStr, ValidationError

from stream_dedup.cli.main import cli
from stream_dedup.secret_settings import secret_names
from stream_dedup.secrets import secret_of
from stream_dedup.settings import ENV_PREFIX, Settings
from stream_dedup.settings_sources import load_settings
from tests.services.planted import MARKER, VARIANTS, in_environment, in_files, in_toml, value_of

SECRETS = secret_names(Settings)
SOURCES = {"environment": in_environment, "files": in_files, "toml": in_toml}
#: What may be any text is printed as it is.
_ANY_TEXT = (str, str | None, Path, Path | None)
FREE = [name for name, field in Settings.model_fields.items() if field.annotation in _ANY_TEXT]
#: Texts that bring a secret along where an address or a name is expected.
WITH_SECRETS = [
    f"https://someone:{MARKER}@host/token",
    f"https://{MARKER}@host/token",
    f"https://host/token?code={MARKER}",
    f"https://host/token#{MARKER}",
    f"http://someone:{MARKER}/x@proxy:8080",
    f"someone:{MARKER}@host:9092",
    f"host:9092,someone:{MARKER}@host:9092",
    f"redis://host/0?password={MARKER}",
    f"redis://host/0?passwor%64={MARKER}",
    f'PlainLoginModule required username="x" password="{MARKER}";',
    f"https://host/token;code={MARKER}",
    f"someone:{MARKER}%2540host:9092",
    f"someone:{MARKER}\uff20host:9092",
    f"host:9092, password: {MARKER}",
    f'{{"password": "{MARKER}"}}',
    f"pwd={MARKER}",
    f"sasl.password\n%253D{MARKER}",
    f"Authorization: Bearer {MARKER}",
    f"Endpoint=sb://host/;SharedAccessKeyName=x;SharedAccessKey={MARKER}",
]
#: The same where there are only hosts.
WITH_LOGINS = [
    f"{MARKER}@host:9092",
    f"{MARKER}%40host",
    f"host:9092?code={MARKER}",
    f"host:9092 {MARKER}",
    f"host#{MARKER}",
]
HOSTS = [name for name in FREE if name.endswith(("bootstrap", "_host", "_names"))]
STRICT = [name for name in Settings.model_fields if name not in FREE + SECRETS]

pytestmark = pytest.mark.usefixtures("alone")


def show(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["settings", *arguments])


def test_every_secret_is_planted_and_has_a_file() -> None:
    planted = {name for variant in VARIANTS.values() for name in variant.secrets}
    declared = [name for name, field in Settings.model_fields.items() if "SecretStr" in str(field)]

    assert planted == set(SECRETS) == set(declared)
    assert [name for name in SECRETS if f"{name}_file" not in Settings.model_fields] == []


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("source", SOURCES)
class TestShown:
    @pytest.fixture(autouse=True)
    def planted(
        self,
        alone: None,
        variant: str,
        source: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        for name, value in SOURCES[source](VARIANTS[variant], tmp_path).items():
            monkeypatch.setenv(name, value)

    @pytest.mark.parametrize("flags", [(), ("--json",), ("--markdown",)])
    def test_settings_prints_no_secret(self, flags: tuple[str, ...]) -> None:
        result = show(*flags)

        assert result.exit_code == 0, result.stderr
        assert MARKER not in result.output

    def test_no_text_of_the_object_has_one(self, variant: str) -> None:
        settings = load_settings()

        texts = f"{settings!r} {settings} {settings.model_dump()} {settings.model_dump_json()}"
        assert MARKER not in texts
        assert isinstance(settings.seed, SecretStr)
        assert settings.seed.get_secret_value() == value_of("seed")

    @pytest.mark.parametrize("name", ["hamming", "redis_timeout", "shingle", "method", "renew"])
    def test_no_error_about_another_setting_has_one(
        self, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(ENV_PREFIX + name.upper(), "what this cannot be")

        result = show()

        assert result.exit_code == 2
        assert name in result.stderr
        assert MARKER not in result.output


@pytest.mark.parametrize("name", STRICT)
def test_a_secret_in_the_wrong_setting_is_not_quoted(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENV_PREFIX + name.upper(), MARKER)

    result = show()

    assert result.exit_code == 2, result.stdout
    assert name in result.stderr
    assert MARKER not in result.output + str(result.exception)


def shown(variant: str, values: dict[str, str]) -> str:
    """Return what is shown of settings, beside which a variant's are set, or why they are wrong."""
    others = dict(VARIANTS[variant].others)
    needed = {name: SecretStr("a secret") for name in VARIANTS[variant].secrets}
    try:
        settings = Settings.model_validate(others | needed | values)
    except ValidationError as error:
        return f"{error} {error.errors(include_input=False)}"
    return f"{settings!r} {settings.model_dump_json()}"


@pytest.mark.parametrize("name", FREE)
def test_no_setting_shows_a_secret_that_a_text_brings_along(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [shown(variant, {name: value}) for variant in VARIANTS for value in WITH_SECRETS]
    monkeypatch.setenv(ENV_PREFIX + name.upper(), WITH_SECRETS[0])
    printed = show("--json")

    assert [text for text in texts if MARKER in text] == []
    assert name in printed.output
    assert MARKER not in printed.output + str(printed.exception)


@pytest.mark.parametrize("name", ["kafka_bootstrap", "kafka_oauth_token_url", "group"])
def test_what_is_wrong_with_such_a_text_is_said(name: str) -> None:
    texts = [shown("oauth", {name: value}) for value in WITH_SECRETS]

    assert [text for text in texts if f"{name} has a login, a query or a secret" not in text] == []


@pytest.mark.parametrize("name", HOSTS)
def test_where_hosts_are_there_is_nothing_else(name: str) -> None:
    texts = [shown("oauth", {name: value}) for value in WITH_LOGINS]
    hosts = ["a.example:9092, b_2.example", "[fd00::1]:9092", "SASL_SSL://a:1", "fe80::1%eth0"]

    assert [text for text in texts if f"{name} may have hosts and ports only" not in text] == []
    assert [text for text in texts if MARKER in text] == []
    assert [host for host in hosts if host not in shown("oauth", {name: host})] == []


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_where_its_file_should_be_is_not_quoted(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings().model_copy(update={f"{name}_file": Path(MARKER)})
    monkeypatch.setenv(f"{ENV_PREFIX}SEED_FILE", MARKER)

    assert MARKER not in show().output
    with pytest.raises(Exception, match=f"{name}_file cannot be read") as caught:
        secret_of(settings, name)
    assert MARKER not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        f"seed = {MARKER}",
        f"seed = '{MARKER}",
        f"seed = 5\nredis_password = ['{MARKER}']",
        f"seed = {{ of = '{MARKER}' }}",
        f"redis_url = 'redis://:{MARKER}/@h'",
        f"redis_url = ['{MARKER}']",
    ],
)
def test_a_wrong_file_is_not_quoted(content: str) -> None:
    Path("stream-dedup.toml").write_text(content)

    result = show()

    assert result.exit_code == 2
    assert MARKER not in result.output
