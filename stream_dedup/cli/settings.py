"""``stream-dedup settings``: every setting, and what it is now."""

from __future__ import annotations

import re

import click
import msgspec

from stream_dedup.cli.options import choices, describe_default, describe_range, settings_options
from stream_dedup.settings import ENV_PREFIX, Settings, group_of

#: The password in redis://user:password@host.
_PASSWORD = re.compile(r"(://[^:/@]*:).*@")

_EPILOG = """\b
Examples:
  stream-dedup settings
  STREAM_DEDUP_THRESHOLD=0.9 stream-dedup settings --json | jq .threshold
"""


@click.command(epilog=_EPILOG)
@click.option("--json", "as_json", is_flag=True, help="Print the values in force as JSON.")
@click.option("--markdown", is_flag=True, help="Print the table of docs/settings.md.")
@settings_options()
def settings(*, as_json: bool, markdown: bool, settings: Settings) -> None:
    """Print every setting with its value in force; secrets are masked.

    A setting is read from the TOML file (--config), then from its environment variable, then from
    its flag; the later wins.
    """
    values = settings.model_dump(mode="json")
    values["redis_url"] = _PASSWORD.sub(r"\1**********@", values["redis_url"])
    if as_json:
        click.echo(msgspec.json.encode(values))
    elif markdown:
        click.echo(_markdown())
    else:
        for name, value in values.items():
            click.echo(f"{name} = {value}")


def _markdown() -> str:
    lines = [
        "| setting | default | range | what it is | group |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, field in Settings.model_fields.items():
        span = describe_range(field) or ", ".join(choices(field))
        lines.append(
            f"| `{name}` (`{ENV_PREFIX}{name.upper()}`) | {describe_default(field)} | {span} | "
            f"{field.description} | {group_of(name)} |"
        )
    return "\n".join(lines)
