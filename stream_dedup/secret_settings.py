"""What holds for every secret among the settings.

A secret NAME is declared as ``NAME: SecretStr`` beside ``NAME_file: Path | None``. It has no flag,
is never printed, and has one source.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote

from pydantic import BaseModel, ConfigDict, SecretStr, model_validator
from pydantic.fields import FieldInfo

from stream_dedup.redis_urls import take_password
from stream_dedup.secret_values import read_secret, remember

#: What a text that is shown may not have, for it brings a secret along: a login before a host, a
#: query or fragment of an address, and what is named a secret.
_LOGIN = re.compile(r":.*@", re.DOTALL)
_QUERY = re.compile(r":/.*[?#;]", re.DOTALL)
_NAMED = re.compile(
    r"(pass(word|wd|phrase)?|pwd|secret|token|key|credentials?|sig(nature)?|auth)[\"']?\s*="
    r"|(password|passwd|pwd|secret|api.?key|authorization)[\"']?\s*:|bearer\s",
    re.IGNORECASE,
)
#: Endings of the settings that hold hosts, and what one host with its port looks like.
_HOSTS = ("_bootstrap", "_host", "_names")
_HOST = re.compile(r"(\w+://)?[\w.:%\[\]-]*")
#: Settings of these types may be any text, and are shown.
_TEXT = (str, str | None, Path, Path | None)


class SecretSettings(BaseModel):
    """A base of settings that keeps the secrets among them."""

    # A validation error would otherwise quote the values that it is about.
    model_config = ConfigDict(hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _password_is_no_part_of_an_address(cls, given: Any) -> Any:
        """Keep the password of ``redis_url`` as ``redis_password``; what is left can be shown."""
        if not isinstance(given, Mapping) or not isinstance(given.get("redis_url"), str):
            return given
        urls, password = take_password(given["redis_url"])
        if not password:
            return given
        others = {password, _text(given.get("redis_password")) or password}
        if given.get("redis_password_file") or len(others) > 1:
            msg = "redis_url has a password, and another one is set; take it out of redis_url"
            raise ValueError(msg)
        return {**given, "redis_url": urls, "redis_password": SecretStr(password)}

    @model_validator(mode="before")
    @classmethod
    def _what_is_shown_has_no_secret(cls, given: Any) -> Any:
        """Refuse a secret in a setting that is printed and logged; no message has a part of it."""
        if not isinstance(given, Mapping):
            return given
        for name, field in cls.model_fields.items():
            is_shown = field.annotation in _TEXT and isinstance(given.get(name), str | Path)
            if not is_shown or name == "redis_url":  # which has checks of its own
                continue
            text = _plain(str(given[name]))
            if any(pattern.search(text) for pattern in (_LOGIN, _QUERY, _NAMED)):
                msg = (
                    f"{name} has a login, a query or a secret in it, and is printed and logged; "
                    "take it out, and set the setting that is for it, such as kafka_password_file"
                )
                raise ValueError(msg)
            hosts = text.split(",") if name.endswith(_HOSTS) else []
            if not all(_HOST.fullmatch(host.strip()) for host in hosts):
                msg = f"{name} may have hosts and ports only, with commas between"
                raise ValueError(msg)
        return given

    @model_validator(mode="before")
    @classmethod
    def _seed_is_read_once(cls, given: Any) -> Any:
        """Put the content of ``seed_file`` into ``seed``: it must not change while a run lasts."""
        if not isinstance(given, Mapping) or not given.get("seed_file"):
            return given
        if _text(given.get("seed")):
            msg = "seed and seed_file are both set; set one of them"
            raise ValueError(msg)
        seed = read_secret("seed_file", Path(given["seed_file"]))
        return {**given, "seed": SecretStr(seed), "seed_file": None}

    @model_validator(mode="after")
    def _secrets_have_one_source(self) -> Self:
        for name in secret_names(type(self)):
            if getattr(self, f"{name}_file") is not None and getattr(self, name):
                msg = f"{name} and {name}_file are both set; set one of them"
                raise ValueError(msg)
        self._remember()
        return self

    def __setstate__(self, state: dict[Any, Any]) -> None:
        """Remember the secrets in a process that has got the settings from another, too."""
        super().__setstate__(state)
        self._remember()

    def _remember(self) -> None:
        for name in secret_names(type(self)):
            remember(getattr(self, name).get_secret_value())


def is_secret(field: FieldInfo) -> bool:
    """Return whether a setting is a secret."""
    return field.annotation is SecretStr


def secret_names(settings: type[BaseModel]) -> list[str]:
    """Return the names of all secrets among settings."""
    return [name for name, field in settings.model_fields.items() if is_secret(field)]


def overlay(values: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``values`` with ``given`` put over them; a secret's new source replaces its old one.

    Args:
        values: by setting.
        given: likewise.
    """
    replaced = {name.removesuffix("_file") for name in given}
    if isinstance(url := given.get("redis_url"), str) and take_password(url)[1]:
        replaced.add("redis_password")
    stale = {
        f"{name}{end}" for name in replaced if f"{name}_file" in values for end in ("", "_file")
    }
    return {name: value for name, value in values.items() if name not in stale} | dict(given)


def _plain(text: str) -> str:
    """Return a text as whoever reads it may take it: decoded as often as it is encoded."""
    while (decoded := unicodedata.normalize("NFKC", unquote(text))) != text:
        text = decoded
    return text


def _text(value: object) -> str:
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value or "")
