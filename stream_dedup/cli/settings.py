"""``stream-dedup settings``: every setting, and what it is now."""

from __future__ import annotations

import click
import msgspec

from stream_dedup.cli.options import choices, describe_default, describe_range, settings_options
from stream_dedup.settings import Settings, group_of

#: Every group of settings, in the order in which one meets them.
_TITLES = {
    "input": "What a document is",
    "fingerprint": "What matches",
    "forgetting": "What leaves an index",
    "run": "A run on files",
    "redis": "The index in Redis",
    "kafka": "The stream on Kafka",
    "worker": "Worker programs",
    "shadow": "A shadow",
    "groups": "Duplicate groups",
    "serve": "The HTTP service",
    "review": "The review page",
}

_EPILOG = """\b
Examples:
  stream-dedup settings
  STREAM_DEDUP_THRESHOLD=0.9 stream-dedup settings --json | jq .threshold
"""


@click.command(epilog=_EPILOG)
@click.option("--json", "as_json", is_flag=True, help="Print the values in force as JSON.")
@click.option("--markdown", is_flag=True, help="Print the tables of docs/settings.md.")
@settings_options()
def settings(*, as_json: bool, markdown: bool, settings: Settings) -> None:
    """Print every setting with its value in force; secrets are masked.

    A setting is read from the TOML file (--config), then from its environment variable, then from
    its flag; the later wins.
    """
    values = settings.model_dump(mode="json")
    if as_json:
        click.echo(msgspec.json.encode(values))
    elif markdown:
        click.echo(_markdown())
    else:
        for name, value in values.items():
            click.echo(f"{name} = {value}")


def _markdown() -> str:
    return "\n\n".join(f"## {title}\n\n{_table(group)}" for group, title in _TITLES.items())


def _table(group: str) -> str:
    lines = ["| setting | default | range | what it is |", "| --- | --- | --- | --- |"]
    for name, field in Settings.model_fields.items():
        if group_of(name) == group:
            span = describe_range(field) or ", ".join(choices(field))
            default = describe_default(field)
            lines.append(f"| `{name}` | {default} | {span} | {field.description} |")
    return "\n".join(lines)
