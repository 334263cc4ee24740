"""How findings spell numbers, times and commands."""

from __future__ import annotations

import shlex

from stream_dedup.doctor.kafka_facts import Role
from stream_dedup.settings import Settings

#: What leads to the command of ``allow``.
ALLOW = "Allow it, in the place of NAME"

_UNITS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))


def span(seconds: float) -> str:
    """Spell a time, such as ``7 d`` or ``90 s``."""
    for unit, size in _UNITS:
        if abs(seconds) >= 2 * size or unit == "s":
            return f"{seconds / size:.3g} {unit}"
    raise AssertionError


def readable_bytes(count: float) -> str:
    """Spell a number of bytes, such as ``30.5 GB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.4g} TB"


def kafka_command(settings: Settings, program: str, *arguments: str) -> str:
    """Spell a call of one of Kafka's own tools; TLS and logins are in a file of theirs."""
    secured = settings.kafka_security_protocol != "PLAINTEXT"
    client = ["--command-config", "client.properties"] if secured else []
    start = [program, "--bootstrap-server", settings.kafka_bootstrap, *client]
    return shlex.join([*start, *arguments])


def set_topic(settings: Settings, topic: str, config: str) -> str:
    """Spell the command that sets a configuration of a topic."""
    return kafka_command(
        settings, "kafka-configs", "--alter", "--topic", topic, "--add-config", config
    )


def needed(role: Role) -> str:
    """Return what a worker must be allowed to do with a topic; either includes to see it."""
    return "Read" if role is Role.INPUT else "Write"


def allow(settings: Settings, operation: str, kind: str, name: str) -> str:
    """Spell the command that allows a user, NAME, something; ``kind`` is --topic or --group."""
    user = ("--add", "--allow-principal", "User:NAME", "--operation", operation)
    return kafka_command(settings, "kafka-acls", *user, kind, name)
