"""Where settings come from: a TOML file, then the environment, then flags; the later wins."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from stream_dedup.errors import SettingsError
from stream_dedup.redis_urls import refuse_password
from stream_dedup.secret_settings import overlay
from stream_dedup.settings import ENV_PREFIX, Settings, group_of

#: What a shadow may have otherwise than the live configuration.
_OF_SHADOWS = ("fingerprint", "redis")

#: Looked for in the current directory when neither --config nor STREAM_DEDUP_CONFIG is given.
DEFAULT_CONFIG = Path("stream-dedup.toml")


def load_settings(flags: dict[str, Any] | None = None, config: Path | None = None) -> Settings:
    """Read settings from the TOML file, the environment and ``flags``; the later wins.

    Args:
        flags: values by setting name, as given on the command line.
        config: TOML file. Without it ``$STREAM_DEDUP_CONFIG``, else ``stream-dedup.toml`` if the
            current directory has one.

    Raises:
        SettingsError: a file cannot be read, or a value is unknown or out of range.
    """
    path = config or _config_from_environment()
    if path is not None and not path.is_file():
        msg = f"The settings file {path} does not exist. Name another one with --config."
        raise SettingsError(msg)

    class Sources(Settings, BaseSettings):
        model_config = SettingsConfigDict(
            env_prefix=ENV_PREFIX, extra="forbid", frozen=True, toml_file=path
        )

        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - not a source here
            file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - nor this
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return (init_settings, env_settings, TomlConfigSettingsSource(settings_cls))

    if flags and "redis_url" in flags:
        refuse_password(flags["redis_url"])
    try:
        loaded = Sources(**(flags or {}))
    except ValidationError as error:
        raise SettingsError(_explain(error)) from error
    except (ValueError, OSError, RecursionError) as error:  # not TOML, or not to be read
        msg = f"The settings file {path} cannot be read: {error}. Correct it and start again."
        raise SettingsError(msg) from error
    return Settings.model_validate({name: getattr(loaded, name) for name in Settings.model_fields})


def load_shadow(live: Settings, path: Path, *, in_redis: bool) -> Settings:
    """Read the settings of a second configuration; what its file does not give is as in ``live``.

    Args:
        live: the settings that the shadow stands beside.
        path: TOML file.
        in_redis: whether their originals are kept in Redis, where two cannot share a namespace.

    Raises:
        SettingsError: the file cannot be read, a value is unknown or out of range, is none that a
            shadow can have of its own, or both have one namespace.
    """
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        msg = f"The shadow's settings file {path} cannot be read: {error}. Name a TOML file."
        raise SettingsError(msg) from error
    values = {name: getattr(live, name) for name in Settings.model_fields}
    try:
        shadow = Settings.model_validate(overlay(values, given))
    except ValidationError as error:
        msg = f"The shadow's settings file {path} is wrong.\n{_explain(error)}"
        raise SettingsError(msg) from error
    others = (name for name in given if group_of(name) not in _OF_SHADOWS)
    if foreign := [name for name in others if getattr(shadow, name) != values[name]]:
        msg = (
            f"{path} gives {', '.join(foreign)}, which a shadow cannot have otherwise than the "
            "live configuration: it decides the same documents. Leave it out there."
        )
        raise SettingsError(msg)
    if in_redis and shadow.redis_namespace == live.redis_namespace:
        msg = (
            f"The shadow of {path} has the redis_namespace {live.redis_namespace!r}, as the live "
            "configuration has. Give it another one in that file."
        )
        raise SettingsError(msg)
    return shadow.model_copy(update={"shadow": None})


def _config_from_environment() -> Path | None:
    named = os.environ.get(ENV_PREFIX + "CONFIG")
    if named:
        return Path(named)
    return DEFAULT_CONFIG if DEFAULT_CONFIG.is_file() else None


def _explain(error: ValidationError) -> str:
    """One sentence for each wrong setting, naming it as the user does."""
    lines = []
    for problem in error.errors():
        name = ".".join(str(part) for part in problem["loc"]) or "settings"
        reason = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            lines.append(f"{name}: there is no such setting; see stream-dedup settings.")
        else:
            lines.append(f"{name}: {reason}.")
    return "\n".join(lines)
