"""How Kafka and Redis are reached: each setting of it once, and its checks."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self
from urllib.parse import unquote

from pydantic import BaseModel, SecretStr, model_validator

from stream_dedup.setting_types import setting

Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]

_TLS_FILES = ("ca_file", "certificate_file", "key_file")
_KAFKA_LOGIN = ("kafka_username", "kafka_password")
_KAFKA_CLIENT = ("kafka_oauth_client_id", "kafka_oauth_client_secret")
_KAFKA_OAUTH = (
    "kafka_oauth_token_file",
    "kafka_oauth_token_url",
    *_KAFKA_CLIENT,
    "kafka_oauth_scope",
    "kafka_oauth_ca_file",
)
#: What no option of ``redis_url`` may be named.
_NO_OPTIONS = ("ssl_", "username", "password", "secret", "token")


class ConnectionSettings(BaseModel):
    """Addresses, TLS and logins; see docs/connections.md."""

    kafka_bootstrap: str = setting("127.0.0.1:9092", "kafka", "Kafka brokers, comma-separated.")
    kafka_security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = setting(
        "PLAINTEXT",
        "kafka",
        "How Kafka is spoken to: with or without TLS (SSL), with or without a login (SASL).",
    )
    kafka_ca_file: Path | None = setting(
        None,
        "kafka",
        "PEM file of the authorities that the brokers' certificates are checked against; without "
        "it, those of the system.",
    )
    kafka_certificate_file: Path | None = setting(
        None, "kafka", "PEM file of the certificate that this program shows to the brokers."
    )
    kafka_key_file: Path | None = setting(
        None, "kafka", "PEM file of the key of that certificate; may be the same file."
    )
    kafka_key_password: SecretStr = setting(
        SecretStr(""), "kafka", "Password of that key, if it is encrypted."
    )
    kafka_key_password_file: Path | None = setting(
        None, "kafka", "File that holds that password, instead of kafka_key_password."
    )
    kafka_sasl_mechanism: Mechanism | None = setting(None, "kafka", "How the login is done.")
    kafka_username: str = setting("", "kafka", "User for PLAIN and SCRAM.")
    kafka_password: SecretStr = setting(SecretStr(""), "kafka", "Password for PLAIN and SCRAM.")
    kafka_password_file: Path | None = setting(
        None, "kafka", "File that holds that password, instead of kafka_password."
    )
    kafka_oauth_token_file: Path | None = setting(
        None,
        "kafka",
        "File that holds the token for OAUTHBEARER; it is read again whenever one is needed.",
    )
    kafka_oauth_token_url: str = setting(
        "",
        "kafka",
        "Address (https://) that hands out tokens for OAUTHBEARER to a client id and secret; "
        "needs stream-dedup[oauth].",
    )
    kafka_oauth_client_id: str = setting("", "kafka", "Client id for kafka_oauth_token_url.")
    kafka_oauth_client_secret: SecretStr = setting(
        SecretStr(""), "kafka", "Client secret for kafka_oauth_token_url."
    )
    kafka_oauth_client_secret_file: Path | None = setting(
        None, "kafka", "File that holds that secret, instead of kafka_oauth_client_secret."
    )
    kafka_oauth_scope: str = setting("", "kafka", "Scope that is asked for there.")
    kafka_oauth_ca_file: Path | None = setting(
        None,
        "kafka",
        "PEM file of the authorities that the certificate of kafka_oauth_token_url is checked "
        "against; without it, those of the system.",
    )

    redis_url: str = setting(
        "redis://127.0.0.1:6379/0", "redis", "Redis or Valkey address (redis://, rediss://)."
    )
    redis_username: str = setting("", "redis", "User; without it, that of redis_url, or default.")
    redis_password: SecretStr = setting(
        SecretStr(""), "redis", "Password; without it, that of redis_url."
    )
    redis_password_file: Path | None = setting(
        None, "redis", "File that holds that password, instead of redis_password."
    )
    redis_ca_file: Path | None = setting(
        None,
        "redis",
        "PEM file of the authorities that the servers' certificates are checked against; without "
        "it, those of the system.",
    )
    redis_certificate_file: Path | None = setting(
        None, "redis", "PEM file of the certificate that this program shows to the servers."
    )
    redis_key_file: Path | None = setting(
        None, "redis", "PEM file of the key of that certificate; may be the same file."
    )

    @property
    def kafka_has_tls(self) -> bool:
        """Whether Kafka is spoken to through TLS."""
        return self.kafka_security_protocol in {"SSL", "SASL_SSL"}

    @property
    def kafka_has_login(self) -> bool:
        """Whether Kafka wants a login."""
        return self.kafka_security_protocol in {"SASL_PLAINTEXT", "SASL_SSL"}

    @property
    def redis_urls(self) -> list[str]:
        """Addresses of Redis nodes."""
        return [url.strip() for url in self.redis_url.split(",")]

    @model_validator(mode="after")
    def _kafka_tls_fits(self) -> Self:
        given = self._given("kafka_key_password", *(f"kafka_{name}" for name in _TLS_FILES))
        if given and not self.kafka_has_tls:
            msg = (
                f"{given[0]} is for TLS, but kafka_security_protocol is "
                f"{self.kafka_security_protocol}; set that to SSL or SASL_SSL, or leave "
                f"{given[0]} out"
            )
            raise ValueError(msg)
        self._check_pair("kafka")
        if given == ["kafka_key_password"]:
            msg = "kafka_key_password is set, but no kafka_key_file; set both or leave both out"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _kafka_login_fits(self) -> Self:
        mechanism = self.kafka_sasl_mechanism
        if not self.kafka_has_login:
            given = self._given("kafka_sasl_mechanism", *_KAFKA_LOGIN, *_KAFKA_OAUTH)
            if given:
                msg = (
                    f"{given[0]} is for a login, but kafka_security_protocol is "
                    f"{self.kafka_security_protocol}; set that to SASL_SSL, or leave {given[0]} out"
                )
                raise ValueError(msg)
        elif mechanism is None:
            msg = (
                f"kafka_security_protocol is {self.kafka_security_protocol}, but no "
                "kafka_sasl_mechanism is set; set it to what the brokers offer"
            )
            raise ValueError(msg)
        else:
            bearer = mechanism == "OAUTHBEARER"
            wanted = self._missing_oauth() if bearer else self._missing(*_KAFKA_LOGIN)
            if wanted:
                msg = f"kafka_sasl_mechanism is {mechanism}, but {wanted}"
                raise ValueError(msg)
            foreign = self._given(*(_KAFKA_LOGIN if bearer else _KAFKA_OAUTH))
            if foreign:
                msg = f"{foreign[0]} is not for kafka_sasl_mechanism {mechanism}; leave it out"
                raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _redis_tls_fits(self) -> Self:
        given = self._given(*(f"redis_{name}" for name in _TLS_FILES))
        if given and not all(url.startswith("rediss://") for url in self.redis_urls):
            msg = f"{given[0]} is for TLS; begin every address in redis_url with rediss://"
            raise ValueError(msg)
        options = unquote("&".join(url.partition("?")[2] for url in self.redis_urls)).lower()
        if any(name in options for name in _NO_OPTIONS):
            msg = (
                "redis_url has options for TLS or a login; take them out of it, and set "
                "redis_ca_file, redis_username and redis_password_file and their like"
            )
            raise ValueError(msg)
        self._check_pair("redis")
        if self.redis_username and not self._given("redis_password"):
            msg = "redis_username is set, but no redis_password; set redis_password_file, too"
            raise ValueError(msg)
        return self

    def _missing_oauth(self) -> str:
        """Say what the source of tokens lacks; empty when it is whole."""
        if self.kafka_oauth_token_file is not None:
            others = " and ".join(self._given(*_KAFKA_OAUTH[1:]))
            return (
                f"beside kafka_oauth_token_file there is {others}; leave it out" if others else ""
            )
        if not self.kafka_oauth_token_url:
            return "it has no token; set kafka_oauth_token_file or kafka_oauth_token_url"
        if not self.kafka_oauth_token_url.startswith("https://"):
            return "kafka_oauth_token_url does not begin with https://; write one that does"
        return self._missing(*_KAFKA_CLIENT)

    def _missing(self, *names: str) -> str:
        given = self._given(*names)
        missing = next((name for name in names if name not in given), None)
        return "" if missing is None else f"no {missing} is set; set it"

    def _check_pair(self, service: str) -> None:
        pair = [f"{service}_certificate_file", f"{service}_key_file"]
        given = self._given(*pair)
        if len(given) == 1:
            (other,) = set(pair) - set(given)
            msg = (
                f"{given[0]} is set, but {other} is not; set both (they may be the same file), or "
                "leave both out"
            )
            raise ValueError(msg)

    def _given(self, *names: str) -> list[str]:
        """Return which of some settings are set; a secret may be set by its file."""
        return [
            name
            for name in names
            if getattr(self, name) or getattr(self, f"{name}_file", None) is not None
        ]
