"""``stream-dedup doctor``: is everything as a worker needs it, and what to do if not?"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.text import Text

from stream_dedup.cli.options import settings_options
from stream_dedup.settings import Settings

_EPILOG = """\b
Examples:
  stream-dedup doctor --kafka-bootstrap kafka:9092 --redis-url redis://redis:6379/0
  stream-dedup doctor --config worker.toml --strict
  stream-dedup doctor --json | jq -r '.findings[] | select(.level == "error").command'

\b
Exit codes, those that a worker would end with:
  0   nothing keeps a worker from working rightly
  2   a setting is missing or out of range, or the HTTP address cannot be bound
  69  Kafka or Redis is out of reach, or not set up as needed; with --strict also any warning
  78  the index was built with another fingerprint configuration
"""

_STYLES = {
    "ok": "green",
    "hint": "cyan",
    "warning": "yellow",
    "error": "bold red",
    "not checked": "dim",
    "may not look": "magenta",
}


@click.command("doctor", epilog=_EPILOG)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.option("--strict", is_flag=True, help="Count warnings as errors in the exit code.")
@click.option("--markdown", is_flag=True, help="Print the table of docs/doctor.md, check nothing.")
@settings_options(
    "fingerprint",
    "forgetting",
    "redis",
    "kafka",
    "groups",
    "worker",
    "input",
    "shadow",
    also=("serve_host", "serve_token_file"),
    deferred=True,
)
def doctor(*, as_json: bool, strict: bool, markdown: bool, load: Callable[[], Settings]) -> None:
    """Check all that a worker rests on, and say what to do.

    Looks at settings, this machine, Kafka and its topics, Redis, the index in it, the clocks and
    the plan; changes nothing. Each check prints a line, and below it the remedy, with a command or
    a setting to be copied where there is one. What cannot be checked stops nothing else.

    Levels: ok; hint, could be better; warning, works and will hurt; error, keeps a worker from
    working rightly; not checked, because something else is away; may not look, with the permission
    that it takes. docs/doctor.md lists all checks.
    """
    # Imported here because --help needs neither Kafka nor Redis.
    from stream_dedup.doctor.examination import CHECKS, examine  # noqa: PLC0415
    from stream_dedup.doctor.findings import exit_code  # noqa: PLC0415

    if markdown:
        click.echo(_markdown(CHECKS))
        return
    findings = examine(load)
    code = exit_code(findings, CHECKS, strict=strict)
    counts = Counter(str(found.level) for found in findings)
    if as_json:
        told = {
            "findings": [found._asdict() for found in findings],
            "counts": {level: counts[level] for level in _STYLES},
            "exit_code": code,
        }
        click.echo(msgspec.json.format(msgspec.json.encode(told)))
    else:
        _print(findings, counts)
    click.get_current_context().exit(code)


def _print(findings: Sequence[Any], counts: Counter[str]) -> None:
    """Print a line for each finding, and one for its remedy."""
    # Without a terminal there are no colours. Lines are not broken: commands are to be copied.
    console = Console(file=sys.stdout, soft_wrap=True, highlight=False)
    width = max(len(found.check) for found in findings)
    for found in findings:
        level = str(found.level)
        line = Text.assemble((f"{level:<13}", _STYLES[level]), f"{found.check:<{width}}  ")
        console.print(line + Text(found.found))
        if found.remedy:
            command = f": {found.command}" if found.command else ""
            console.print(Text.assemble(" " * 13, ("-> ", "bold"), found.remedy, (command, "bold")))
    console.print(", ".join(f"{level} {counts[level]}" for level in _STYLES if counts[level]))


def _markdown(checks: Sequence[Any]) -> str:
    """Return a table of checks; a worker does not start when one marked with a star fails."""
    rows = ["| check | what must be so | else | remedy |", "| --- | --- | --- | --- |"]
    for one in checks:
        levels = ", ".join(one.levels) + (" \\*" if one.required else "")
        rows.append(f"| `{one.name}` | {one.about} | {levels} | {one.remedy} |")
    return "\n".join(rows)
