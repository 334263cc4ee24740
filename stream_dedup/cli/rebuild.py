"""``stream-dedup rebuild``: a new index from the annotated topic, the input topic, or files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial as bind
from pathlib import Path

import click
import msgspec

from stream_dedup.cli.options import settings_options
from stream_dedup.deduplicator import Deduplicator
from stream_dedup.errors import StateError
from stream_dedup.index.rebuilding import Rebuilding, RedisRebuilding
from stream_dedup.index.redis import RedisIndex
from stream_dedup.index.state import new_state_file
from stream_dedup.replacing import remedy
from stream_dedup.settings import Settings
from stream_dedup.stream.handover import take_topic
from stream_dedup.stream.rebuild import Rebuild, Rebuilt
from stream_dedup.stream.told import Reading

_EPILOG = """\b
Examples:
  stream-dedup rebuild --config worker.toml --redis-namespace sd2
  stream-dedup rebuild --config new.toml --redis-namespace sd2 --follow
  stream-dedup rebuild annotated-*.jsonl.zst --redis-url redis://10.0.0.1:6379
  stream-dedup rebuild annotated.jsonl --threshold 0.7 --state new.db

\b
Exit codes:
  0   done: workers and runs may use the index
  2   a flag or a setting is wrong
  65  a file cannot be read
  69  Kafka or Redis is out of reach, or the index holds something else
  73  the state file is there already, or cannot be written
  78  the index was begun with other fingerprint settings
"""


@click.command(epilog=_EPILOG)
@click.argument(
    "inputs",
    nargs=-1,
    metavar="[FILE]...",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@click.option(
    "--from",
    "source",
    type=click.Choice(["annotated", "input"]),
    default="annotated",
    show_default=True,
    help="Topic to read when no file is given: the annotated one (output_topic), or the input.",
)
@click.option(
    "--state",
    type=click.Path(dir_okay=False, path_type=Path),
    help="New state file to build; without it, the index in Redis.",
)
@click.option(
    "--follow",
    is_flag=True,
    help="Go on until the workers of the group have ended, so that nothing of theirs is missing.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
@settings_options("input", "fingerprint", "redis", "kafka")
def rebuild(
    *,
    inputs: tuple[Path, ...],
    source: str,
    state: Path | None,
    follow: bool,
    as_json: bool,
    settings: Settings,
) -> None:
    """Build a new index from what was annotated.

    FILE is a file of annotated JSON lines; without one the annotated topic is read, from its
    beginning to its end as it is now. Originals that were decided with these settings are
    registered as they are; all other documents are decided anew, and nothing is published.

    The index in Redis must be empty, so give a redis_namespace of its own; workers that start on it
    wait until it is finished. A rebuild that was interrupted goes on where it was.
    """
    if follow and (inputs or state is not None):
        msg = "--follow goes with a topic and an index in Redis. Leave out the files and --state."
        raise click.UsageError(msg)
    with ExitStack() as stack:
        if state is None:
            index = RedisIndex.connect(settings)
            deduplicator = stack.enter_context(Deduplicator(settings, index=index))
            target: Rebuilding = RedisRebuilding(index)
        else:
            partial = stack.enter_context(new_state(state))
            deduplicator = stack.enter_context(Deduplicator(settings, state=partial))
            target = Rebuilding(deduplicator.index)
        reading = Reading(settings, annotated=bool(inputs) or source == "annotated")
        job = Rebuild(deduplicator, target, reading)
        if inputs:
            target.start("files " + ", ".join(path.name for path in inputs))
            job.take(reading.of_files(inputs))
        else:
            topic = settings.output_topic if source == "annotated" else settings.input_topic
            tell = bind(_tell_caught_up, settings)
            take_topic(settings, topic, target, job, reading, follow=follow, caught_up=tell)
        target.finish()
    summary = job.summary()
    click.echo(msgspec.json.encode(summary).decode() if as_json else _sentences(summary))


@contextmanager
def new_state(path: Path) -> Iterator[Path]:
    """Give a state file to write, which gets its name at the end if all goes well.

    Raises:
        StateError: there is one already, or it cannot be written.
    """
    try:
        with new_state_file(path) as partial:
            yield partial
    except FileExistsError as error:
        msg = f"{path} is there already. Name a new file, or remove that one."
        raise StateError(msg) from error
    except OSError as error:
        msg = f"{path} cannot be made: {error.strerror or error}. {remedy(error)}"
        raise StateError(msg) from error


def _tell_caught_up(settings: Settings) -> None:
    click.echo(
        f"Caught up. Start the new workers, which wait, and stop the old ones: when the group "
        f"{settings.group} is empty the index is handed over.",
        err=True,
    )


def _sentences(summary: Rebuilt) -> str:
    rows = {
        "originals registered as they are": summary.registered,
        "originals that were known already": summary.known,
        "duplicates left out": summary.left_out,
        "documents decided anew": summary.decided,
        "  originals": summary.originals,
        "  kept in their group": summary.kept,
        "  merged: originals that became duplicates": summary.merged,
        "  split: duplicates that became originals": summary.split,
        "  moved to another group": summary.moved,
        "originals removed by tombstones": summary.forgotten,
        "messages that are no documents": summary.unreadable,
    }
    rate = summary.messages_per_second
    lines = [f"{summary.messages:,} messages in {summary.seconds:.1f} s ({rate:,} a second)"]
    lines += [f"{count:>12,}  {name}" for name, count in rows.items() if count]
    return "\n".join(lines)
