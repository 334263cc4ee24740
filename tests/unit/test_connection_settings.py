"""Contradictions between settings of connections, each with what to do."""

from __future__ import annotations

import base64
import importlib.util
import re
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from stream_dedup import Settings, SettingsError
from stream_dedup.stream import confluent_clients, kafka_clients, kafka_tokens
from stream_dedup.tls import tls_context
from tests.services.certificates import Certificates

Given = dict[str, Any]

SASL: Given = {"kafka_security_protocol": "SASL_SSL"}
PLAIN: Given = SASL | {
    "kafka_sasl_mechanism": "PLAIN",
    "kafka_username": "u",
    "kafka_password": "p",
}
BEARER: Given = SASL | {"kafka_sasl_mechanism": "OAUTHBEARER"}
URL: Given = {"kafka_oauth_token_url": "https://login/token"}
CLIENT: Given = {"kafka_oauth_client_id": "c", "kafka_oauth_client_secret": "s"}
TLS: Given = {"kafka_security_protocol": "SSL"}
REDISS: Given = {"redis_url": "rediss://redis:6379/0"}

REFUSED: list[tuple[Given, str]] = [
    (SASL, "no kafka_sasl_mechanism is set; set it to what the brokers offer"),
    ({"kafka_sasl_mechanism": "PLAIN"}, "is for a login, .*set that to SASL_SSL, or leave"),
    ({"kafka_username": "u"}, "kafka_username is for a login"),
    ({"kafka_password_file": "p"}, "kafka_password is for a login"),
    (TLS | {"kafka_oauth_scope": "s"}, "kafka_oauth_scope is for a login"),
    (PLAIN | {"kafka_username": ""}, "PLAIN, but no kafka_username is set; set it"),
    (PLAIN | {"kafka_password": ""}, "PLAIN, but no kafka_password is set; set it"),
    (PLAIN | URL, "kafka_oauth_token_url is not for kafka_sasl_mechanism PLAIN; leave it out"),
    (BEARER, "has no token; set kafka_oauth_token_file or kafka_oauth_token_url"),
    (BEARER | URL, "no kafka_oauth_client_id is set; set it"),
    (BEARER | URL | {"kafka_oauth_client_id": "c"}, "no kafka_oauth_client_secret is set; set it"),
    (BEARER | CLIENT | {"kafka_oauth_token_url": "http://login"}, "does not begin with https://"),
    (BEARER | URL | CLIENT | {"kafka_username": "u"}, "kafka_username is not for .* OAUTHBEARER"),
    (BEARER | {"kafka_oauth_token_file": "t"} | URL, "there is kafka_oauth_token_url; leave it"),
    ({"kafka_ca_file": "c"}, "is for TLS, .*set that to SSL or SASL_SSL, or leave kafka_ca_file"),
    (TLS | {"kafka_certificate_file": "c"}, "kafka_key_file is not; set both"),
    (TLS | {"kafka_key_file": "k"}, "kafka_certificate_file is not; set both"),
    (TLS | {"kafka_key_password": "k"}, "but no kafka_key_file; set both or leave both out"),
    ({"redis_ca_file": "c"}, "begin every address in redis_url with rediss://"),
    (REDISS | {"redis_key_file": "k"}, "redis_certificate_file is not; set both"),
    ({"redis_username": "u"}, "redis_username is set, but no redis_password"),
    ({"redis_url": "rediss://r/0?ssl_cert_reqs=none"}, "take them out of it, and set redis_ca_f"),
    ({"redis_url": "redis://r/0?password=p"}, "take them out of it, and set redis_ca_file"),
]


@pytest.mark.parametrize(("given", "told"), REFUSED)
def test_a_contradiction_is_refused(given: Given, told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        Settings(**given)


@pytest.mark.parametrize(
    "given",
    [
        PLAIN,
        BEARER | URL | CLIENT,
        BEARER | {"kafka_oauth_token_file": "t"},
        TLS | {"kafka_certificate_file": "c", "kafka_key_file": "k", "kafka_key_password": "p"},
        REDISS | {"redis_ca_file": "c", "redis_username": "u", "redis_password": "p"},
        {"redis_url": "redis://u:p@r/0", "redis_username": "u", "redis_password": "p"},
    ],
)
def test_what_belongs_together_is_taken(given: Given) -> None:
    Settings(**given)


class TestFiles:
    def test_what_is_wrong_with_each(self, certificates: Certificates, tmp_path: Path) -> None:
        text = tmp_path / "text"
        text.write_text("no certificate")
        pair, other = certificates.client, certificates.stranger
        locked = certificates.encrypted_key("open sesame")
        named = {"kafka_certificate_file": pair.certificate}
        wrong: list[tuple[Given, str]] = [
            ({"kafka_ca_file": tmp_path / "absent"}, "absent cannot be used: No such file"),
            ({"kafka_ca_file": text}, "it holds no certificate. Name a PEM file"),
            (named | {"kafka_key_file": other.key}, "the key belongs to another certificate"),
            (named | {"kafka_key_file": locked}, "its password is wrong or missing"),
            (
                named | {"kafka_key_file": locked, "kafka_key_password": "wrong"},
                "its password is wrong or missing",
            ),
        ]
        for given, told in wrong:
            with pytest.raises(SettingsError, match=told):
                tls_context(Settings(**TLS, **given), "kafka")

    def test_a_redis_key_that_is_locked_is_not_asked_about(
        self, certificates: Certificates
    ) -> None:
        given: Given = {
            "redis_certificate_file": certificates.client.certificate,
            "redis_key_file": certificates.encrypted_key("open sesame"),
        }
        with pytest.raises(SettingsError, match="its password is wrong or missing"):
            tls_context(Settings(**REDISS, **given), "redis")


class TestOptions:
    def test_without_tls_or_login_nothing_is_said_of_them(self) -> None:
        options = kafka_clients.connection_options(Settings(kafka_bootstrap="a:1,b:2"))
        assert options["bootstrap_servers"] == ["a:1", "b:2"]
        assert not any(name.startswith(("ssl_", "sasl_")) for name in options)
        assert confluent_clients.connection_options(Settings()) == {
            "bootstrap.servers": "127.0.0.1:9092",
            "security.protocol": "PLAINTEXT",
        }

    def test_host_names_are_checked(self) -> None:
        settings = Settings(**PLAIN)
        assert kafka_clients.connection_options(settings)["ssl_check_hostname"] is True
        options = confluent_clients.connection_options(settings)
        assert options["ssl.endpoint.identification.algorithm"] == "https"
        assert "enable.ssl.certificate.verification" not in options

    def test_a_password_comes_from_its_file_each_time(self, tmp_path: Path) -> None:
        held = tmp_path / "password"
        settings = Settings(**PLAIN | {"kafka_password": "", "kafka_password_file": held})
        options = kafka_clients.connection_options(settings)
        for password in ("first password", "second password"):
            held.write_text(password + "\n")
            assert options["sasl_plain_password"]() == password
            assert confluent_clients.connection_options(settings)["sasl.password"] == password


class TestTokens:
    def settings(self, path: Path) -> Settings:
        return Settings(**BEARER, kafka_oauth_token_file=path)

    def test_a_file_is_read_each_time(self, tmp_path: Path) -> None:
        held = tmp_path / "token"
        source = kafka_tokens.token_source(self.settings(held))
        with pytest.raises(SettingsError, match=r"cannot be read: No such file.*Have a token"):
            source()
        held.write_text("\n")
        with pytest.raises(SettingsError, match="is empty"):
            source()
        ends = base64.urlsafe_b64encode(b'{"exp": 4102444800}').decode().rstrip("=")
        held.write_text(f"e30.{ends}.\n")
        assert source() == (f"e30.{ends}.", 4102444800.0)

    @pytest.mark.parametrize("token", ["opaque", "a.b.c", "e30.e30.", "e30.W10."])
    def test_a_token_that_does_not_tell_its_end_is_fetched_again_soon(
        self, token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(time, "time", lambda: 1000.0)
        held = tmp_path / "token"
        held.write_text(token)
        assert kafka_tokens.token_source(self.settings(held))() == (token, 1300.0)

    def test_what_fetches_tokens_must_be_installed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
        with pytest.raises(SettingsError, match=r"pip install 'stream-dedup\[oauth\]'"):
            kafka_tokens.token_source(Settings(**BEARER, **URL, **CLIENT))


class TestPage:
    TEXT = (Path(__file__).parents[2] / "docs" / "connections.md").read_text()

    @pytest.mark.parametrize("example", re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL))
    def test_an_example_can_be_used(self, example: str) -> None:
        settings = Settings.model_validate(tomllib.loads(example))
        assert settings.kafka_has_tls or settings.redis_url.startswith("rediss://")

    def test_the_examples_use_every_kind_of_login(self) -> None:
        for mechanism in ("SCRAM-SHA-512", "OAUTHBEARER"):
            assert f'kafka_sasl_mechanism = "{mechanism}"' in self.TEXT

    def test_settings_that_it_names_exist(self) -> None:
        named = set(re.findall(r"`((?:kafka|redis)_[a-z_]+|[a-z_]+_topic)`", self.TEXT))
        assert named <= set(Settings.model_fields)
