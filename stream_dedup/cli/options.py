"""Command-line flags, made from the settings."""

from __future__ import annotations

import functools
import time
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

import click
import msgspec
from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

from stream_dedup.errors import SettingsError
from stream_dedup.replacing import replacing
from stream_dedup.secret_settings import is_secret
from stream_dedup.setting_types import parse_duration
from stream_dedup.settings import ENV_PREFIX, Settings, group_of
from stream_dedup.settings_sources import load_settings
from stream_dedup.stream.decoding import parse_time
from stream_dedup.stream.poison import Poison

Command = Callable[..., Any]


def inputs_argument(name: str, metavar: str) -> Callable[[Command], Command]:
    """Give a command the argument that takes files of documents, or - for standard input."""
    path = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)
    return click.argument(name, nargs=-1, required=True, metavar=metavar, type=path)


def read_since(_context: click.Context, _option: click.Parameter, given: str | None) -> int | None:
    """Read a time, or how long ago it was, into milliseconds since the epoch."""
    if given is None:
        return None
    try:
        moment = time.time() - float(str(parse_duration(given)))
    except ValueError:
        try:
            moment = parse_time(given)
        except Poison:
            moment = -1
    if moment < 0:
        msg = f"{given!r} is neither a time such as 2026-11-21T18:00 nor a duration such as 2h."
        raise click.BadParameter(msg)
    return int(moment * 1000)


def write_settings(path: Path, comments: Sequence[str], values: Mapping[str, Any]) -> None:
    """Write settings, under comments, into a new TOML file for ``--config``.

    Raises:
        SettingsError: the file is there already, or cannot be written.
    """
    lines = [f"# {comment}" for comment in comments]
    lines += [f"{name} = {msgspec.json.encode(value).decode()}" for name, value in values.items()]
    try:
        with replacing(path, new=True) as partial:
            partial.write_text("\n".join(lines) + "\n")
    except OSError as error:
        msg = f"{path} cannot be written: {error.strerror}. Name a new file with --write."
        raise SettingsError(msg) from error
    click.echo(f"Wrote {path}.", err=True)


def settings_options(
    *groups: str, also: Collection[str] = (), deferred: bool = False
) -> Callable[[Command], Command]:
    """Give a command ``--config`` and a flag for each setting of these groups.

    The command gets a ready ``settings`` argument, or ``load``, which makes them.

    Args:
        groups: groups of settings.
        also: names of more settings.
        deferred: whether the command loads them itself.
    """
    fields = Settings.model_fields.items()
    # Others can read the flags of a process, so a secret has none.
    names = [
        name
        for name, field in fields
        if (group_of(name) in groups or name in also) and not is_secret(field)
    ]

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def run(*args: Any, config: Path | None, **values: Any) -> Any:
            given = {name: values.pop(name) for name in names}
            flags = {name: value for name, value in given.items() if value is not None}
            load = functools.partial(load_settings, flags, config)
            if deferred:
                return command(*args, load=load, **values)
            return command(*args, settings=load(), **values)

        wrapped: Command = run
        for name in reversed(names):
            wrapped = _option(name)(wrapped)
        return click.option(
            "--config",
            type=click.Path(path_type=Path),
            help="TOML file with settings; flags and STREAM_DEDUP_* variables go before it.",
        )(wrapped)

    return decorate


def describe_range(field: FieldInfo) -> str:
    """Return a setting's range, such as ``0.3 to 1.0``, or nothing."""
    limits: dict[type, str] = {type(item): str(_limit(item)) for item in field.metadata}
    low, high = limits.get(Ge) or limits.get(Gt), limits.get(Le) or limits.get(Lt)
    return f"{low} to {high}" if low is not None and high is not None else ""


def describe_default(field: FieldInfo) -> str:
    """Return a setting's default as a user would write it."""
    default = field.default
    if default is None or not str(default):
        return ""
    if is_duration(field):
        return f"{default:g}s"
    return str(default.get_secret_value()) if hasattr(default, "get_secret_value") else str(default)


def is_duration(field: FieldInfo) -> bool:
    """Return whether a setting is written with a unit of time."""
    return any(getattr(item, "func", None) is parse_duration for item in field.metadata)


def choices(field: FieldInfo) -> list[str]:
    """Return the values that a setting may take, if they are a short list."""
    annotation = _plain(field.annotation)
    if typing.get_origin(annotation) is Literal:
        return [str(value) for value in typing.get_args(annotation)]
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return [member.value for member in annotation]
    return []


def _limit(item: object) -> object:
    for name in ("ge", "gt", "le", "lt"):
        if hasattr(item, name):
            return getattr(item, name)
    return None


def _option(name: str) -> Callable[[Command], Command]:
    field = Settings.model_fields[name]
    notes = [
        note
        for note in (
            f"range {describe_range(field)}" if describe_range(field) else "",
            f"default {describe_default(field)}" if describe_default(field) else "",
        )
        if note
    ]
    description = field.description or ""
    secret = name.removesuffix("_file")
    if secret != name and is_secret(Settings.model_fields.get(secret, field)):
        description += f" {ENV_PREFIX}{secret.upper()} in the environment does without a file."
    if notes:
        description = f"{description}  [{'; '.join(notes)}]"
    return click.option(f"--{name.replace('_', '-')}", name, type=_type(field), help=description)


def _type(field: FieldInfo) -> Any:
    values = choices(field)
    if values:
        return click.Choice(values)
    if is_duration(field):
        return str
    # Ranges, durations and the like are checked with all other sources, by the settings.
    return {int: int, float: float, bool: bool}.get(_plain(field.annotation), str)


def _plain(annotation: Any) -> Any:
    if typing.get_origin(annotation) in {types.UnionType, typing.Union}:
        return next(part for part in typing.get_args(annotation) if part is not type(None))
    return annotation
