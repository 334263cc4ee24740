"""``stream-dedup groups``: the states of duplicate groups, from a topic or from files."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import click

from stream_dedup.cli.audit import read_published
from stream_dedup.cli.options import settings_options
from stream_dedup.errors import SettingsError
from stream_dedup.groups import Limits, Member, encode, fold_all
from stream_dedup.settings import Settings
from stream_dedup.stream.files import STANDARD, open_output
from stream_dedup.types import Status

_EPILOG = """\b
Examples:
  stream-dedup groups --groups-topic documents.groups --redis-url redis://redis:6379/0
  stream-dedup groups --config worker.toml --restore
  stream-dedup groups annotated.jsonl -o groups.jsonl
  stream-dedup run posts.jsonl | stream-dedup groups - | jq 'select(.size > 10)'

\b
Exit codes:
  0   stopped by SIGTERM or SIGINT, or done
  2   a setting is missing or out of range, or the HTTP address cannot be bound
  65  a line is not an annotated document
  69  Kafka or Redis is out of reach, or not set up as needed
  78  the states in Redis are spread over another number of partitions
"""


@click.command("groups", epilog=_EPILOG)
@click.argument(
    "annotated",
    nargs=-1,
    metavar="[ANNOTATED]...",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    default=STANDARD,
    help="File for the groups of ANNOTATED; .gz and .zst are compressed. Without it, standard "
    "output.",
)
@click.option(
    "--restore",
    is_flag=True,
    help="Put every state of groups_topic that Redis lacks, or has an older one of, back there, "
    "and end.",
)
@settings_options("groups", "redis", "kafka", "worker", "input")
def groups_command(
    *, annotated: tuple[Path, ...], output: Path, restore: bool, settings: Settings
) -> None:
    """Keep the size and the members of each duplicate group.

    Without ANNOTATED: a worker that reads what `stream-dedup worker` tells of groups on the members
    topic, keeps their states in Redis, and publishes each on the compacted groups topic, exactly
    once. With ANNOTATED, files of annotated JSON lines or - for standard input: writes the state of
    each group in them as a JSON line, without a server.
    """
    if annotated:
        with open_output(output) as file:
            for group in fold_all(read_members(annotated, settings), limits_of(settings)).values():
                file.write(encode(group) + b"\n")
        return
    if settings.groups_topic is None:
        msg = (
            "groups_topic is not set. Name the compacted topic for groups with --groups-topic, or "
            "name files of annotated documents."
        )
        raise SettingsError(msg)
    if restore:
        click.echo(f"Put back the states of {_restore(settings):,} groups.")
        return
    click.get_current_context().exit(_work(settings))


def limits_of(settings: Settings) -> Limits:
    """Return what a group keeps."""
    return Limits(settings.group_members, settings.group_sources)


def read_members(paths: Sequence[Path], settings: Settings) -> Iterator[Member]:
    """Read what a worker would tell of groups, from files of annotated documents.

    Raises:
        InputError: a line is no annotated document.
    """
    for published in read_published(paths, settings):
        if published.decision.status is not Status.ORIGINAL or settings.members_of == "all":
            yield Member.of(published.document, published.decision)


def _work(settings: Settings) -> int:
    # Imported here because files need neither Kafka nor Redis nor a HTTP server.
    from stream_dedup_workers import checks, group  # noqa: PLC0415
    from stream_dedup_workers.supervisor import Supervisor  # noqa: PLC0415

    from stream_dedup.stream.grouping import settings_of_groups  # noqa: PLC0415

    settings = settings_of_groups(settings)
    return Supervisor(settings, target=group.run, check=checks.check_groups).run()


def _restore(settings: Settings) -> int:
    from stream_dedup.index.group_store import GroupStore  # noqa: PLC0415
    from stream_dedup.stream.grouping import settings_of_groups  # noqa: PLC0415
    from stream_dedup.stream.keeper import keeper_of  # noqa: PLC0415

    with closing(GroupStore.connect(settings)) as store:
        return keeper_of(settings_of_groups(settings), store, time).restore()
