"""Checks of the consumer group and of this user: who is in it, where it stands, who may what."""

from __future__ import annotations

from collections.abc import Iterator

from stream_dedup.doctor.findings import Finding, Level, check, error, hint, known, ok
from stream_dedup.doctor.kafka_facts import Group, KafkaFacts, Role
from stream_dedup.doctor.words import ALLOW, allow, kafka_command, needed
from stream_dedup.settings import Settings


@check("kafka.permissions", Level.ERROR, remedy="`kafka-acls --add`")
def permissions(facts: KafkaFacts, settings: Settings) -> Iterator[Finding]:
    """This user may read the input and write all others, as far as the brokers tell."""
    problems = []
    for role, topic in facts.there():
        operation = needed(role)
        if topic.operations is not None and operation.upper() not in topic.operations:
            found = f"This user may not {operation.lower()} the topic {topic.name}."
            problems.append(error(found, ALLOW, allow(settings, operation, "--topic", topic.name)))
    found_group = facts.group
    if isinstance(found_group, Group) and "READ" not in (found_group.operations or {"READ"}):
        command = allow(settings, "Read", "--group", settings.group)
        problems.append(
            error(f"This user may not read the group {settings.group}.", ALLOW, command)
        )
    known(facts.topic(Role.INPUT))
    yield from problems or [ok("This user may read the input and write the other topics.")]


@check("kafka.group", Level.ERROR, remedy="another `group`, or stop the other program")
def group(facts: KafkaFacts, settings: Settings) -> Iterator[Finding]:
    """No other program uses the consumer group."""
    found = known(facts.group)
    if found is None or not found.members:
        state = "does not exist yet" if found is None or found.state == "Dead" else found.state
        yield ok(f"The group {settings.group}: {state}, no worker has joined.")
        return
    strangers = [one for one in found.members if set(one.topics) - {settings.input_topic}]
    if strangers:
        clients = ", ".join(sorted({one.client for one in strangers})[:5])
        others = sorted({name for one in strangers for name in one.topics} - {settings.input_topic})
        yield error(
            f"In the group {settings.group} there are readers of {', '.join(others[:5])} "
            f"({clients}): they take part in every rebalance, and commits are mixed.",
            "Give one of the two programs a group of its own",
            f"group = {settings.input_topic}-dedup",
        )
    else:
        yield ok(f"The group {settings.group}: {found.state}, {len(found.members)} member(s).")


@check(
    "kafka.offsets",
    Level.ERROR,
    Level.HINT,
    remedy="`kafka-consumer-groups --reset-offsets`; a longer retention",
)
def offsets(facts: KafkaFacts, settings: Settings) -> Iterator[Finding]:
    """The group's offsets are within the input: nothing was removed unread, nothing begun anew."""
    known(facts.topic(Role.INPUT))
    places = known(facts.places).values()
    lost, beyond = [one for one in places if one.lost], [one for one in places if one.is_beyond]
    begun = any(one.committed is not None for one in places)
    new = [one for one in places if begun and one.committed is None and one.waiting]
    if lost:
        yield error(
            f"{sum(one.lost for one in lost):,} documents of {settings.input_topic} were removed "
            f"before they were read, in {len(lost)} partition(s).",
            "Send them again, and keep the input for longer (kafka.retention). Workers go on with "
            "the oldest that is left, as this does while all are stopped",
            _reset(settings),
        )
    if beyond:
        yield error(
            f"The group {settings.group} stands behind the end of {settings.input_topic} in "
            f"{len(beyond)} partition(s): the topic was probably deleted and made again.",
            "Stop all workers and have it begin anew",
            _reset(settings),
        )
    if new:
        yield hint(
            f"{len(new)} partition(s) of {settings.input_topic} have records and no committed "
            "offset: they are read from their beginning.",
            "That is right for partitions that are new.",
        )
    if not (lost or beyond or new):
        waiting = sum(one.waiting for one in places)
        yield ok(f"{waiting:,} records of {settings.input_topic} wait; none was removed unread.")


def _reset(settings: Settings) -> str:
    group = ("--group", settings.group, "--topic", settings.input_topic)
    reset = ("--reset-offsets", "--to-earliest", "--execute")
    return kafka_command(settings, "kafka-consumer-groups", *group, *reset)


CHECKS = (permissions, group, offsets)
