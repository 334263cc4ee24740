"""The settings that an index was built with, kept beside it, so that a refusal can name them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from stream_dedup.settings import Settings

#: Settings that decide how an index in Redis is laid out.
LAYOUT = ("partitions", "expected_originals")
#: Described by a number or a digest that says nothing to people.
_OPAQUE = {"seed", "frequencies", "boilerplate_file"}


def describe(described: Mapping[str, Any], settings: Settings | None = None) -> str:
    """Spell a configuration (``Fingerprinter.described``), and a layout with it, as JSON."""
    whole = dict(described)
    if settings is not None:
        whole |= {name: getattr(settings, name) for name in LAYOUT}
    return msgspec.json.encode(whole, order="deterministic").decode()


def differences(stored: str | None, now: str) -> str:
    """Say what differs, such as ``threshold was 0.8, is 0.7``; empty where nothing is known.

    Args:
        stored: what ``describe`` gave when the index was built; None in an index of before.
        now: what it gives now.
    """
    if stored is None:
        return ""
    old: dict[str, Any] = msgspec.json.decode(stored)
    new: dict[str, Any] = msgspec.json.decode(now)
    named = (_difference(name, old.get(name), new.get(name)) for name in sorted({*old, *new}))
    return ", ".join(one for one in named if one)


def sentence(stored: str | None, now: str) -> str:
    """Say what differs as a sentence with a space before it; empty where nothing is known."""
    found = differences(stored, now)
    return f" What differs: {found}." if found else ""


class Described(NamedTuple):
    """What an index was built with, or would be.

    Attributes:
        configuration: version of the fingerprint configuration.
        layout: how it is laid out (``Layout.describe``).
        settings: the settings behind both (``describe``); None in an index of before.
    """

    configuration: str
    layout: str
    settings: str | None


def mismatch(namespace: str, stored: Described, now: Described) -> str:
    """Say that an index was built with other settings, which, and what to do."""
    differing = sentence(stored.settings, now.settings or "{}")
    return (
        f"The index {namespace!r} in Redis was built with other settings "
        f"(configuration {stored.configuration}, layout {stored.layout}; now configuration "
        f"{now.configuration}, layout {now.layout}).{differing} Start with the settings it was "
        f"built with, or build an index with the new ones under another redis_namespace: "
        f"stream-dedup rebuild."
    )


def _difference(name: str, old: Any, new: Any) -> str:
    if name in _OPAQUE:
        return "" if old == new else f"{name} is another"
    was, is_now = _shown(name, old), _shown(name, new)
    return "" if was == is_now else f"{name} was {was}, is {is_now}"


def _shown(name: str, value: Any) -> str:
    """Spell a value; what is not described stands at its default."""
    if value is None and name in Settings.model_fields:
        value = Settings.model_fields[name].default
    return "unset" if value is None else str(value)
