"""``stream-dedup audit``: whether an index in Redis keeps its promises."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import msgspec

from stream_dedup.cli.options import settings_options
from stream_dedup.errors import InputError
from stream_dedup.index.audit import Audit, audit
from stream_dedup.index.audit_decisions import Published
from stream_dedup.settings import Settings
from stream_dedup.stream.files import Line, read_lines
from stream_dedup.stream.lines import JsonLines, line_bytes
from stream_dedup.stream.poison import Poison
from stream_dedup.types import Decision, Status

#: Violations that are listed.
_LISTED = 20

_EPILOG = """\b
Examples:
  stream-dedup audit --redis-url redis://10.0.0.1:6379
  stream-dedup audit --config worker.toml --annotated annotated.jsonl.zst
  kcat -C -e -q -t documents.annotated | stream-dedup audit --annotated -
  stream-dedup audit --json | jq '.violations | length'

\b
Exit codes:
  0   nothing is wrong
  1   something is wrong: violations were found
  2   a flag or a setting is wrong
  65  a line is not an annotated document
  69  Redis is out of reach, or has no such index
  78  the index was built with other fingerprint settings
"""


class _Annotated(msgspec.Struct):
    dedup: Decision


_decode = msgspec.json.Decoder(_Annotated).decode


@click.command("audit", epilog=_EPILOG)
@click.option(
    "--annotated",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="File of annotated JSON lines (plain, gzip or zstd), - for standard input, whose "
    "decisions are checked too; may be given several times.",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything found as JSON.")
@settings_options("input", "fingerprint", "forgetting", "redis")
@click.pass_context
def audit_command(
    context: click.Context, *, annotated: tuple[Path, ...], as_json: bool, settings: Settings
) -> None:
    """Read a whole Redis index and check that it keeps its promises.

    No two originals may be near each other (I1), and each must stand in all tables (I4). With
    --annotated, every duplicate must be near an original of the index that it names (I2), and
    every document have one decision, every original be in the index (I3) unless it has expired or
    was forgotten. Workers may go on; nothing is written.
    """
    found = audit(settings, read_published(annotated, settings))
    click.echo(msgspec.json.encode(found).decode() if as_json else _report(found))
    if found.violations:
        context.exit(1)


def read_published(paths: Sequence[Path], settings: Settings) -> Iterator[Published]:
    """Read annotated documents.

    Raises:
        InputError: a line is no annotated document.
    """
    lines = JsonLines(settings)
    for path in paths:
        for line in read_lines(path, 0, line_bytes(settings)):
            yield _published(line, lines)


def _published(line: Line, lines: JsonLines) -> Published:
    try:
        document, decision = lines.decode(line), _decode(line.value).dedup
    except (Poison, msgspec.DecodeError) as error:
        detail = error.detail if isinstance(error, Poison) else f"{error}."
        msg = f"{line.name} is not an annotated document: {detail} Name a file that run or a"
        raise InputError(f"{msg} worker wrote.") from error
    if document.id == line.name and decision.status is Status.ORIGINAL:
        # It names no id: it got one from its place in the stream, which only an original repeats.
        document = msgspec.structs.replace(document, id=decision.original_id)
    return Published(line.name, document, decision)


def _report(found: Audit) -> str:
    rows = {
        "originals": found.originals,
        "pending claims": found.pending,
        "void claims": found.void,
        "table entries": found.entries,
        "  of pending claims": found.pending_entries,
        "  of void claims": found.void_entries,
        "  of unknown claims": found.unknown_entries,
        "id entries": found.id_entries,
        "originals without one": found.unnamed,
        "pairs compared": found.pairs_compared,
        "decisions checked": found.decisions,
        "  of originals gone": found.gone,
    }
    if found.other_configuration:
        rows["  of other settings"] = found.other_configuration
    lines = [f"{name:<21} {count:>14,}" for name, count in rows.items()]
    lines += ["", "table      entries         keys   mean  fullest key"]
    lines += [
        f"{number:>5} {one.entries:>12,} {one.keys:>12,} {one.mean:>6.2f} {one.fullest:>12,}"
        for number, one in enumerate(found.tables)
    ]
    lines += ["", f"{len(found.violations):,} violations"]
    lines += [f"  {one.invariant}  {one.detail}" for one in found.violations[:_LISTED]]
    if len(found.violations) > _LISTED:
        lines.append(f"  and {len(found.violations) - _LISTED:,} more; --json lists all")
    return "\n".join(lines)
