"""Checks of the brokers: do they answer, are they recent enough, do they allow the transactions?"""

from __future__ import annotations

from collections.abc import Iterator

from stream_dedup.doctor.findings import Finding, Level, check, error, known, ok, warning
from stream_dedup.doctor.kafka_facts import OFFSETS, TRANSACTIONS, KafkaFacts, Topic, value_of
from stream_dedup.doctor.words import kafka_command, set_topic, span
from stream_dedup.settings import Settings

#: First version of the request that commits offsets in a transaction which carries the group's
#: generation (KIP-447, Kafka 2.5).
FENCED_BY_GENERATION = 3
#: Replicas that a topic should have, so that one may be lost while another is restarted.
REPLICAS = 3
#: Replicas that should have a message before it counts as written.
IN_SYNC = 2


@check(
    "kafka.reachable",
    Level.ERROR,
    remedy="start a broker, `--kafka-bootstrap`, the settings of its security",
    required=True,
)
def reachable(facts: KafkaFacts, settings: Settings) -> Iterator[Finding]:
    """A broker answers."""
    brokers = "1 broker" if facts.brokers == 1 else f"{facts.brokers} brokers"
    yield ok(f"{brokers} at {settings.kafka_bootstrap}; connected in {facts.seconds * 1e3:.0f} ms.")


@check("kafka.version", Level.ERROR, remedy="Kafka 2.5 or later", required=True)
def version(facts: KafkaFacts, settings: Settings) -> Iterator[Finding]:
    """Brokers fence commits by the group's generation (KIP-447), so zombies publish nothing."""
    if facts.commit_version < FENCED_BY_GENERATION:
        found = (
            f"The Kafka broker at {settings.kafka_bootstrap} cannot fence a commit by the "
            "group's generation (KIP-447)."
        )
        yield error(found, "Use Kafka 2.5 or later.")
    else:
        yield ok("Commits are fenced by the group's generation (KIP-447).")


@check(
    "kafka.transactions",
    Level.ERROR,
    remedy="`transaction.max.timeout.ms` of the brokers, or `transaction_timeout`",
)
def transactions(facts: KafkaFacts, settings: Settings) -> Iterator[Finding]:
    """The brokers allow transactions as long as `transaction_timeout`."""
    longest = int(value_of(facts.config, "transaction.max.timeout.ms")) / 1000
    wanted = settings.transaction_timeout
    if wanted > longest:
        yield error(
            f"transaction_timeout is {span(wanted)}, and the brokers allow {span(longest)}: no "
            "producer can start.",
            "Set what they allow",
            f"transaction_timeout = {longest:g}",
        )
    else:
        yield ok(f"transaction_timeout is {span(wanted)}; the brokers allow {span(longest)}.")


@check(
    "kafka.replication",
    Level.WARNING,
    remedy="three brokers; replication factor 3, `min.insync.replicas` 2",
)
def replication(facts: KafkaFacts, settings: Settings) -> Iterator[Finding]:
    """Topics have three replicas, of which two must have a message."""
    if facts.brokers < REPLICAS:
        yield warning(
            f"There are {facts.brokers} brokers only, so messages are lost with a disk, and the "
            "stream stands still with a broker."
            if facts.brokers > 1
            else "There is one broker only: without it the stream stands still, and messages are "
            "lost with its disk.",
            "Run three brokers where that matters; topics then take a replication factor of 3 and "
            "min.insync.replicas 2.",
        )
        return
    problems = []
    for _, topic in facts.there():
        if topic.replicas < REPLICAS:
            problems.append(_few_replicas(settings, topic))
            continue
        least = int(value_of(topic.config, "min.insync.replicas"))
        if least < IN_SYNC:
            problems.append(_few_in_sync(settings, topic, least))
    yield from problems or [ok(f"All topics have {REPLICAS} replicas, {IN_SYNC} of them in sync.")]


def _few_replicas(settings: Settings, topic: Topic) -> Finding:
    return warning(
        f"The topic {topic.name} has {topic.replicas} replica(s).",
        "Name the brokers of each partition in a file for this command",
        kafka_command(
            settings, "kafka-reassign-partitions", "--reassignment-json-file", "FILE", "--execute"
        ),
    )


def _few_in_sync(settings: Settings, topic: Topic, least: int) -> Finding:
    return warning(
        f"A message of the topic {topic.name} counts as written when {least} replica has it, and "
        "is lost with that one.",
        "Set it to two",
        set_topic(settings, topic.name, f"min.insync.replicas={IN_SYNC}"),
    )


@check(
    "kafka.inner_topics",
    Level.WARNING,
    remedy="replication factor 3 of `__transaction_state` and `__consumer_offsets`",
)
def inner_topics(facts: KafkaFacts, settings: Settings) -> Iterator[Finding]:
    """The brokers' own topics, of transactions and offsets, are as safe as the data."""
    if facts.brokers < REPLICAS:
        yield ok(f"On {facts.brokers} broker(s) they have as many replicas as there can be.")
        return
    problems = []
    for name in (TRANSACTIONS, OFFSETS):
        topic = known(facts.inner.get(name))
        if topic is not None and topic.replicas < REPLICAS:
            problems.append(_few_replicas(settings, topic))
    yield from problems or [ok(f"They have {REPLICAS} replicas, or are not made yet.")]


@check(
    "kafka.leaders",
    Level.WARNING,
    Level.ERROR,
    remedy="bring the brokers back that are away",
)
def leaders(facts: KafkaFacts, settings: Settings) -> Iterator[Finding]:
    """Every partition has a leader, and all of its replicas are in sync."""
    problems = []
    for _, topic in facts.there():
        show = kafka_command(settings, "kafka-topics", "--describe", "--topic", topic.name)
        if topic.leaderless:
            found = f"Partitions {_numbers(topic.leaderless)} of {topic.name} have no leader."
            problems.append(error(found, "Bring back the brokers that have them", show))
        elif topic.lagging:
            found = f"Partitions {_numbers(topic.lagging)} of {topic.name} lack replicas in sync."
            problems.append(warning(found, "See which brokers are away or slow", show))
    yield from problems or [ok("All partitions have a leader and their replicas are in sync.")]


def _numbers(partitions: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, partitions[:8]))
    return f"{shown}, ..." if len(partitions) > 8 else shown


#: Shorter than this, offsets may be forgotten over a stop of the workers.
_OFFSETS_KEPT = 7 * 86400.0


@check(
    "kafka.offsets_retention",
    Level.WARNING,
    remedy="`offsets.retention.minutes` of the brokers",
)
def offsets_retention(facts: KafkaFacts, settings: Settings) -> Iterator[Finding]:
    """Brokers keep the offsets of a stopped group for a week, or documents would be read again."""
    kept = int(value_of(facts.config, "offsets.retention.minutes")) * 60.0
    if kept < _OFFSETS_KEPT:
        minutes = int(_OFFSETS_KEPT // 60)
        yield warning(
            f"The brokers forget the offsets of a group that is stopped for {span(kept)}; it would "
            "then read and publish everything again.",
            "Have them kept for longer: set this in every broker's server.properties",
            f"offsets.retention.minutes={minutes}",
        )
    else:
        yield ok(f"Offsets of a stopped group are kept for {span(kept)}.")


CHECKS = (
    reachable,
    version,
    transactions,
    replication,
    inner_topics,
    leaders,
    offsets_retention,
)
