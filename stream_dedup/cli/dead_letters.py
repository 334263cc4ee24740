"""``stream-dedup dead-letters``: look at dead letters, and replay them."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence

import click

from stream_dedup.cli.letter_text import (
    escaped,
    letter_lines,
    outcome_lines,
    summary_json,
    summary_lines,
)
from stream_dedup.cli.options import read_since, settings_options
from stream_dedup.settings import Settings
from stream_dedup.stream.dead_letters import Letter, Place, Summary
from stream_dedup.stream.poison import Reason

_PLACE = re.compile(r"(\d{1,10})/(\d{1,19})", re.ASCII)

_EPILOG = """\b
Examples:
  stream-dedup dead-letters list --since 1d
  stream-dedup dead-letters show 0/17
  stream-dedup dead-letters replay --reason missing_text
"""
_EXIT_CODES = """\b
Exit codes:
  0   done
  2   a flag or a setting is wrong
  65  there is no such letter
  69  Kafka is out of reach, or a topic is missing
"""
_LIST_EPILOG = f"""\b
Examples:
  stream-dedup dead-letters list --kafka-bootstrap kafka:9092
  stream-dedup dead-letters list --reason not_json --reason not_utf8 --since 2h --limit 50
  stream-dedup dead-letters list --config worker.toml --json | jq .reasons

{_EXIT_CODES}"""
_SHOW_EPILOG = f"""\b
Examples:
  stream-dedup dead-letters show 0/17 3/4 --config worker.toml
  stream-dedup dead-letters show 0/17 --raw > value.json

{_EXIT_CODES}"""
_REPLAY_EPILOG = f"""\b
Examples:
  stream-dedup dead-letters replay --reason missing_text --dry-run
  stream-dedup dead-letters replay --reason missing_text
  stream-dedup dead-letters replay 0/17 0/19 --to documents.mended
  stream-dedup dead-letters replay --all --config worker.toml

{_EXIT_CODES}  1   done, but letters were left out that cannot be replayed
"""


def _places(_context: click.Context, _option: click.Parameter, given: Sequence[str]) -> list[Place]:
    """Read ``PARTITION/OFFSET``, several times."""
    places = []
    for one in given:
        match = _PLACE.fullmatch(one)
        if match is None:
            msg = f"{one!r} is not PARTITION/OFFSET, such as 0/17."
            raise click.BadParameter(msg)
        places.append(Place(int(match[1]), int(match[2])))
    return places


_reason_option = click.option(
    "--reason",
    "reasons",
    multiple=True,
    type=click.Choice(list(map(str, Reason))),
    help="Only letters with this reason; may be given several times.",
)
_since_option = click.option(
    "--since",
    callback=read_since,
    metavar="TIME",
    help="Only letters from the first one on, in each partition, whose message is not older: a "
    "time (2026-11-21T18:00, UTC unless it says otherwise), or how long ago (2h).",
)


@click.group("dead-letters", epilog=_EPILOG)
def dead_letters() -> None:
    """Look at messages that could not be decided, and replay them."""


@dead_letters.command("list", epilog=_LIST_EPILOG)
@_reason_option
@_since_option
@click.option(
    "--limit",
    type=click.IntRange(0, 10_000),
    default=20,
    show_default=True,
    help="Newest letters to list one by one.",
)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@settings_options("kafka")
def list_command(
    *, reasons: tuple[str, ...], since: int | None, limit: int, as_json: bool, settings: Settings
) -> None:
    """Count the dead letters by reason and source, and list the newest.

    A letter is named by its partition and offset on the dead-letter topic; its time is that of the
    message. A * behind a reason says that the message was cut.
    """
    # Imported here and below because help does without the client.
    from stream_dedup.stream.topic import TopicReader  # noqa: PLC0415

    topic = settings.dead_letter_topic
    found = Summary(limit)
    with TopicReader(settings, topic, {}) as reader:
        ends = reader.ends()
        if since is not None:
            reader.seek(reader.since(since))
        for letter in reader.read(ends, Letter.of):
            if not reasons or letter.reason in reasons:
                found.add(letter)
    if as_json:
        click.echo(json.dumps(summary_json(topic, found)))  # all of it is ASCII
    else:
        click.echo("\n".join(summary_lines(topic, found)))


@dead_letters.command("show", epilog=_SHOW_EPILOG)
@click.argument("places", nargs=-1, required=True, metavar="PARTITION/OFFSET...", callback=_places)
@click.option(
    "--raw", is_flag=True, help="Write the bytes of the value, and nothing else, for a file."
)
@settings_options("kafka")
def show_command(*, places: list[Place], raw: bool, settings: Settings) -> None:
    r"""Show dead letters: reason, source, headers, key and value.

    Whatever a terminal would not print as a character is shown escaped (\x1b), and what is not
    UTF-8 in hexadecimal.
    """
    from stream_dedup.stream.replay import read_letter  # noqa: PLC0415
    from stream_dedup.stream.topic import TopicReader  # noqa: PLC0415

    if raw and len(places) > 1:
        msg = "--raw writes one value. Name one letter."
        raise click.UsageError(msg)
    if raw and sys.stdout.isatty():
        msg = "--raw is not for a terminal, which the value could command. Send it to a file."
        raise click.UsageError(msg)
    with TopicReader(settings, settings.dead_letter_topic, {}) as reader:
        letters = [read_letter(reader, place) for place in places]
    if raw:
        sys.stdout.buffer.write(letters[0].record.value or b"")
        return
    click.echo("\n\n".join("\n".join(letter_lines(letter)) for letter in letters))


@dead_letters.command("replay", epilog=_REPLAY_EPILOG)
@click.argument("places", nargs=-1, metavar="[PARTITION/OFFSET]...", callback=_places)
@_reason_option
@_since_option
@click.option("--all", "every", is_flag=True, help="All letters that were not replayed before.")
@click.option("--to", metavar="TOPIC", help="Topic to write to, instead of where they came from.")
@click.option("--again", is_flag=True, help="The letters named, even if they were replayed before.")
@click.option("--dry-run", is_flag=True, help="Say what would be replayed, and write nothing.")
@settings_options("kafka")
@click.pass_context
def replay_command(
    context: click.Context,
    *,
    places: list[Place],
    reasons: tuple[str, ...],
    since: int | None,
    every: bool,
    to: str | None,
    again: bool,
    dry_run: bool,
    settings: Settings,
) -> None:
    """Put the messages of dead letters back on the topic that they came from.

    Key, value, headers and time are those of the message; a header counts its replays. Each letter
    is replayed once: which were is on record in the consumer group GROUP-dead-letter-replay, and a
    replay that was interrupted is simply done again. --again replays letters once more that are
    named by partition and offset.
    """
    from stream_dedup.stream.replay import Replay  # noqa: PLC0415

    _check_choice(places, narrowed=bool(reasons) or since is not None, every=every, again=again)
    if to == settings.dead_letter_topic:
        msg = "--to names the dead-letter topic itself. Name another."
        raise click.UsageError(msg)
    with Replay(settings, to, dry=dry_run) as replay:
        found = replay.chosen(places, again=again) if places else replay.following(reasons, since)
    click.echo("\n".join(outcome_lines(found, dry=dry_run)))
    for place, why in found.told:
        click.echo(f"{place} is left out: {escaped(why)}.", err=True)
    if found.before and places:
        click.echo("Add --again to replay these once more.", err=True)
    if found.left_out:
        context.exit(1)


def _check_choice(places: Sequence[Place], *, narrowed: bool, every: bool, again: bool) -> None:
    if not (places or narrowed or every):
        msg = "Say which letters: PARTITION/OFFSET, --reason, --since or --all."
        raise click.UsageError(msg)
    if places and (narrowed or every):
        msg = "Letters named by PARTITION/OFFSET go without --reason, --since and --all."
        raise click.UsageError(msg)
    if every and narrowed:
        msg = "--all goes without --reason and --since. Leave it out to replay a part."
        raise click.UsageError(msg)
    if again and not places:
        msg = "--again is for letters that are named by PARTITION/OFFSET."
        raise click.UsageError(msg)
