"""``stream-dedup``: the group of all commands."""

from __future__ import annotations

import sys
from typing import Any

import click

from stream_dedup import __version__
from stream_dedup.cli.audit import audit_command
from stream_dedup.cli.evaluate import evaluate_command
from stream_dedup.cli.explain import explain
from stream_dedup.cli.generate import generate
from stream_dedup.cli.learn import learn
from stream_dedup.cli.plan import plan
from stream_dedup.cli.run import run
from stream_dedup.cli.sample import sample_command
from stream_dedup.cli.settings import settings
from stream_dedup.cli.tune import tune_command
from stream_dedup.cli.worker import worker
from stream_dedup.errors import StreamDedupError
from stream_dedup.stream.files import forget_standard_output

_EPILOG = """\b
Examples:
  stream-dedup run posts.jsonl -o annotated.jsonl
  stream-dedup run today.jsonl.gz --state originals.db | jq 'select(.dedup.status != "original")'
  stream-dedup explain posts.jsonl:3 posts.jsonl:9
  stream-dedup worker --config worker.toml

\b
Exit codes:
  0    done
  1    an error without a code of its own
  2    a flag or a setting is wrong
  65   a document cannot be read
  69   Kafka or Redis is out of reach, or not set up as needed
  73   a state file cannot be used
  78   an index was built with other fingerprint settings
  130  interrupted
"""


class _Group(click.Group):
    """Turns an error raised on purpose into its sentence and its exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except StreamDedupError as error:
            click.echo(f"Error: {error}", err=True)
            ctx.exit(error.exit_code)
        except BrokenPipeError:
            forget_standard_output()
            ctx.exit(0)
        except KeyboardInterrupt:
            ctx.exit(130)


@click.group(cls=_Group, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="stream-dedup")
def cli() -> None:
    """Find near-duplicate documents in a stream."""


_COMMANDS = (
    run,
    explain,
    worker,
    learn,
    plan,
    evaluate_command,
    sample_command,
    tune_command,
    generate,
    audit_command,
    settings,
)
for command in _COMMANDS:
    cli.add_command(command)


def main() -> None:
    """Run the command line."""
    sys.exit(cli(prog_name="stream-dedup"))
