"""``stream-dedup sweep``: remove from an index what is of no more use."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from stream_dedup.cli.index_options import open_index, state_option
from stream_dedup.cli.options import settings_options
from stream_dedup.index.expiry import Swept
from stream_dedup.settings import Settings

_EPILOG = """\b
Examples:
  stream-dedup sweep --redis-url redis://10.0.0.1:6379 --window 30d
  stream-dedup sweep --config worker.toml --json
  stream-dedup sweep --state originals.db --window 30d --lateness 2d

\b
Exit codes:
  0   done
  2   a flag or a setting is wrong
  69  Redis is out of reach, or refuses
  73  the state file cannot be used
  78  the index was built with other fingerprint settings
"""


@click.command("sweep", epilog=_EPILOG)
@state_option()
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
@settings_options("fingerprint", "forgetting", "redis")
@click.pass_context
def sweep_command(
    context: click.Context, *, state: Path | None, as_json: bool, settings: Settings
) -> None:
    """Remove from an index what is of no more use, now and at full speed.

    That is, with a window, each original whose time is over; and whatever forgotten documents,
    crashed workers and repeated attempts have left behind. Workers do the same from time to time,
    slowly (see sweep_interval). It may run beside them and be ended at any moment.
    """
    with open_index(context, settings, state) as deduplicator:
        swept = deduplicator.index.sweep()
    counts = msgspec.json.encode(swept._asdict()).decode()
    click.echo(counts if as_json else "\n".join(told(swept)))


def told(swept: Swept) -> list[str]:
    """Say what a sweep removed, for people."""
    names = ("originals expired", "claims left behind", "entries of these", "originals stay")
    return [f"{count:>12,}  {name}" for count, name in zip(swept, names, strict=True)]
