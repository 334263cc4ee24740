"""``stream-dedup``: the group of all commands."""

from __future__ import annotations

import errno
import os
import sys
from importlib import import_module
from typing import Any

import click

from stream_dedup import __version__
from stream_dedup.errors import StreamDedupError
from stream_dedup.secret_values import mask, mask_tracebacks
from stream_dedup.stream.files import forget_standard_output

_EPILOG = """\b
Examples:
  stream-dedup run posts.jsonl -o annotated.jsonl
  stream-dedup run today.jsonl.gz --state originals.db | jq 'select(.dedup.status != "original")'
  stream-dedup explain posts.jsonl:3 posts.jsonl:9
  stream-dedup worker --config worker.toml
  STREAM_DEDUP_SEED_FILE=seed.txt stream-dedup run posts.jsonl -o annotated.jsonl

Secrets (seed, passwords, tokens) have no flags, which others could read: give each in a file that
its setting NAME_file names, in STREAM_DEDUP_NAME, or in the settings file. See docs/security.md.

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


#: The object that is each command, in the module of its name.
_COMMANDS = {
    "audit": "audit_command",
    "dead-letters": "dead_letters",
    "doctor": "doctor",
    "evaluate": "evaluate_command",
    "explain": "explain",
    "export": "export",
    "forget": "forget_command",
    "functions": "functions",
    "generate": "generate",
    "group": "group_command",
    "groups": "groups_command",
    "import": "import_command",
    "learn": "learn",
    "metrics": "metrics_command",
    "plan": "plan",
    "query": "query",
    "rebuild": "rebuild",
    "review": "review",
    "run": "run",
    "sample": "sample_command",
    "serve": "serve",
    "settings": "settings",
    "sweep": "sweep_command",
    "top": "top",
    "tune": "tune_command",
    "worker": "worker",
}
#: The modules of commands whose names cannot be imported.
_MODULES = {"dead-letters": "dead_letters", "import": "export"}
#: What writing meets, and no command can do anything about; the last where it was closed.
_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.EBADF}


class _Group(click.Group):
    """Loads a command when it is asked for; turns an error raised on purpose into its exit code.

    The error's sentence is printed. No command pays for what only the others import.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - as click has it
        """Return the names of all commands."""
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Load a command."""
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(f"stream_dedup.cli.{_MODULES.get(cmd_name, cmd_name)}")
        command: click.Command = getattr(module, _COMMANDS[cmd_name])
        return command

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command, or show its help."""
        try:
            return super().main(*args, **extra)
        except OSError as error:
            if error.errno not in _DISK_ERRORS:
                raise
            forget_standard_output()
            name = error.filename or "Standard output, or a temporary file,"
            msg = f"{name} cannot be written: {error.strerror}. Make room, or write elsewhere."
            if error.errno == errno.EBADF:
                msg = "Standard input or output is closed. Run again with both open."
            click.echo(f"Error: {msg}", err=True)
            sys.exit(1)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except StreamDedupError as error:
            click.echo(mask(f"Error: {error}"), err=True)
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


def _open_standard_streams() -> None:
    """Put something in the place of standard streams that were closed before the program began.

    Files that are opened would get their numbers otherwise, and what is printed would be lost
    without a word. Whoever reads or writes one still finds it closed, but for standard error.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDONLY if name == "stdout" else os.O_WRONLY)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, os.fdopen(number, "r" if name == "stdin" else "w"))


def main() -> None:
    """Run the command line."""
    _open_standard_streams()
    mask_tracebacks()
    sys.exit(cli(prog_name="stream-dedup"))
