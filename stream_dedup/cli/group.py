"""``stream-dedup group``: how large one duplicate group is, and who is in it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import click

from stream_dedup.cli.groups import limits_of, read_members
from stream_dedup.cli.options import settings_options
from stream_dedup.errors import ConfigurationMismatch, InputError, ServiceError
from stream_dedup.groups import DUPLICATE_ID, Group, ListedMember, decode_group, encode, fold_all
from stream_dedup.index.base import duplicate_id
from stream_dedup.settings import Settings
from stream_dedup.types import ids_meant_by

_EPILOG = """\b
Examples:
  stream-dedup group 5f0c3b8a91d2e4467c1a0b9f --redis-url redis://redis:6379/0
  stream-dedup group 5f0c3b8a91d2e4467c1a0b9f --json | jq .size
  stream-dedup group post-1001 --config worker.toml
  stream-dedup group post-1001 --annotated annotated.jsonl

\b
Exit codes:
  0   the group was found
  1   there is no such group
  2   a flag or a setting is wrong
  65  a line is not an annotated document, or the document id is in several groups
  69  Redis is out of reach, or refuses, or has no index that keeps ids
  78  the index was built with other fingerprint settings
"""


@click.command("group", epilog=_EPILOG)
@click.argument("name", metavar="ID")
@click.option(
    "--annotated",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="File of annotated JSON lines (plain, gzip or zstd), - for standard input, to take the "
    "group from instead of Redis; may be given several times.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the state as it is published.")
@settings_options("groups", "redis", "input", "fingerprint", also=("members_of",))
@click.pass_context
def group_command(
    context: click.Context,
    *,
    name: str,
    annotated: tuple[Path, ...],
    as_json: bool,
    settings: Settings,
) -> None:
    """Show one duplicate group: its size, times, origins and members.

    ID is the `duplicate_id` of an annotation, or the document id of the group's original. The state
    is looked up in Redis, where `stream-dedup groups` keeps it; to find an original by its id takes
    the index of the workers, with its settings. With --annotated the group is counted out of files,
    and ID may be the id of any document in it. A group is known from its first duplicate on.
    """
    group = _fold(name, annotated, settings) if annotated else _look_up(name, settings)
    if group is None:
        click.echo(f"There is no group {name}: no duplicate of it is known.", err=True)
        context.exit(1)
    click.echo(encode(group).decode() if as_json else _report(group))


def _look_up(name: str, settings: Settings) -> Group | None:
    # Imported here because files do without the client.
    from stream_dedup.index.group_view import GroupView  # noqa: PLC0415

    is_group = DUPLICATE_ID.fullmatch(name) is not None
    with closing(GroupView.connect(settings)) as view:
        if is_group and (state := view.look_up(name)):
            return decode_group(state)
        try:
            names = _groups_of(name, settings)
        except (ServiceError, ConfigurationMismatch):
            if is_group:  # maybe no document id at all, and groups need no index
                return None
            raise
        states = {one: view.look_up(one) for one in names}
    return _only(name, {one: decode_group(state) for one, state in states.items() if state})


def _groups_of(name: str, settings: Settings) -> list[str]:
    """Return the duplicate ids of the originals in Redis that have a document id."""
    from stream_dedup.index.look_up import RedisLookUp  # noqa: PLC0415

    with closing(RedisLookUp.connect(settings)) as index:
        named = index.named(ids_meant_by(name))
    originals = [one for some in named for one in some]
    return [duplicate_id(one.document_id, one.digest) for one in originals]


def _fold(name: str, paths: tuple[Path, ...], settings: Settings) -> Group | None:
    members = list(read_members(paths, settings))
    names = {name} | {m.duplicate_id for m in members if name in {str(m.id), str(m.original_id)}}
    found = fold_all((m for m in members if m.duplicate_id in names), limits_of(settings))
    return _only(name, found)


def _only(name: str, found: Mapping[str, Group]) -> Group | None:
    if len(found) > 1:
        msg = f"Documents with the id {name} are in {len(found)} groups. Name one: "
        raise InputError(msg + ", ".join(found))
    return next(iter(found.values()), None)


def _report(group: Group) -> str:
    lines = [
        f"{group.size - 1:,} similar to {group.original_id}",
        "",
        f"duplicate id      {group.duplicate_id}",
        f"documents         {group.size:,}, the original included",
        f"exact duplicates  {group.exact_duplicates:,}",
        f"near duplicates   {group.near_duplicates:,}",
    ]
    if group.first_seen is not None and group.last_seen is not None:
        lines.append(f"seen              {_moment(group.first_seen)} to {_moment(group.last_seen)}")
    if group.sources:
        lines += ["", "documents  origin"]
        lines += [
            f"{source.count:>9,}  {source.origin}" + (f" (-{source.over:,})" if source.over else "")
            for source in group.sources
        ]
        if group.other_sources:
            lines.append(f"{group.other_sources:>9,}  others")
    lines += ["", *(_line(member) for member in group.first_members)]
    listed = len(group.first_members) + len(group.latest_members)
    if left_out := group.revision - listed:
        lines.append(f"  ... {left_out:,} more")
    lines += [_line(member) for member in group.latest_members]
    return "\n".join(lines)


def _line(member: ListedMember) -> str:
    parts = [f"  {member.status:<15}  {member.id}"]
    if member.similarity is not None:
        parts.append(f"similarity {member.similarity:.2f}")
    if member.hamming_distance is not None:
        parts.append(f"{member.hamming_distance} bits differ")
    if member.time is not None:
        parts.append(_moment(member.time))
    if member.origin:
        parts.append(member.origin)
    return "  ".join(parts)


def _moment(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
    return moment.replace("+00:00", "Z")
