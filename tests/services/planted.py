"""Secrets that are easy to find wherever they turn up, and settings that take them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from stream_dedup.settings import ENV_PREFIX

#: In every planted secret; no escaping changes it.
MARKER = "Planted5ecretMarker"


class Variant(NamedTuple):
    """Settings that go together, and the secrets that they need."""

    secrets: tuple[str, ...]
    others: Mapping[str, str]


_EVERYWHERE = ("seed", "redis_password", "http_token", "serve_token", "review_token")
#: Which secrets can be set depends on how Kafka is reached.
VARIANTS = {
    "plain": Variant(_EVERYWHERE, {}),
    "password": Variant(
        (*_EVERYWHERE, "kafka_password", "kafka_key_password"),
        {
            "kafka_security_protocol": "SASL_SSL",
            "kafka_sasl_mechanism": "PLAIN",
            "kafka_username": "someone",
            "kafka_certificate_file": "certificate.pem",
            "kafka_key_file": "key.pem",
        },
    ),
    "oauth": Variant(
        (*_EVERYWHERE, "kafka_oauth_client_secret"),
        {
            "kafka_security_protocol": "SASL_SSL",
            "kafka_sasl_mechanism": "OAUTHBEARER",
            "kafka_oauth_token_url": "https://127.0.0.1:1/token",
            "kafka_oauth_client_id": "someone",
        },
    ),
}


def value_of(name: str) -> str:
    """Return the secret that is planted as a setting; it needs escaping nearly everywhere."""
    return f'{MARKER}/@"%{name}'


def in_environment(variant: Variant, _folder: Path) -> dict[str, str]:
    """Return the environment that gives a variant in variables."""
    return _environment(dict(variant.others) | {name: value_of(name) for name in variant.secrets})


def in_files(variant: Variant, folder: Path) -> dict[str, str]:
    """Return the environment that gives a variant in files; writes these into a folder."""
    named = {}
    for name in variant.secrets:
        path = folder / f"{name}.secret"
        path.write_text(f"{value_of(name)}\n")
        named[f"{name}_file"] = str(path)
    return _environment(dict(variant.others) | named)


def in_toml(variant: Variant, folder: Path) -> dict[str, str]:
    """Return the environment that gives a variant in a settings file; writes that into a folder."""
    values = dict(variant.others) | {name: value_of(name) for name in variant.secrets}
    path = folder / "planted.toml"
    lines = [f"{name} = {msgspec.json.encode(value).decode()}\n" for name, value in values.items()]
    path.write_text("".join(lines))
    return {f"{ENV_PREFIX}CONFIG": str(path)}


Source = Callable[[Variant, Path], dict[str, str]]


def _environment(values: Mapping[str, str]) -> dict[str, str]:
    return {f"{ENV_PREFIX}{name.upper()}": value for name, value in values.items()}
