"""Checks of the topics: are they there, and is each as its part in the stream wants it?"""

from __future__ import annotations

from collections.abc import Iterator

from stream_dedup.doctor.findings import (
    Finding,
    Level,
    Unknown,
    check,
    error,
    hint,
    known,
    ok,
    warning,
)
from stream_dedup.doctor.kafka_facts import KafkaFacts, Role, retention_of, value_of
from stream_dedup.doctor.words import ALLOW, allow, kafka_command, needed, set_topic, span
from stream_dedup.doctor.words import readable_bytes as size
from stream_dedup.settings import Settings
from stream_dedup.stream.decoding import ANNOTATION_BYTES
from stream_dedup.stream.kafka_limits import FETCH_MAX_BYTES, PRODUCE_BATCH_BYTES

#: Partitions of a topic in the command that creates it, unless the input topic tells.
DEFAULT_PARTITIONS = 12
#: An input that is kept for less is lost over a stop that nobody attends to at once.
SHORTEST_RETENTION = 86400.0
#: Where documents are published, with all that they came with.
_ANSWERS = (Role.OUTPUT, Role.DEAD_LETTER)


@check("kafka.topics", Level.ERROR, remedy="`kafka-topics --create`", required=True)
def topics(facts: KafkaFacts, settings: Settings) -> Iterator[Finding]:
    """Every topic is there that the settings name."""
    found = dict(facts.there())
    partitions = found[Role.INPUT].partitions if Role.INPUT in found else DEFAULT_PARTITIONS
    problems = []
    for role, topic in facts.topics.items():
        name = facts.names[role]
        if isinstance(topic, Unknown):
            found_out = f"{topic.why} A worker must see it."
            command = allow(settings, needed(role), "--topic", name)
            problems.append(error(found_out, ALLOW, command))
        elif topic is None:
            more = ["--config", "cleanup.policy=compact"] if role is Role.GROUPS else []
            create = ["--create", "--topic", name, "--partitions", str(partitions), *more]
            command = kafka_command(settings, "kafka-topics", *create)
            problems.append(error(f"The Kafka topic {name} does not exist.", "Create it", command))
    told = ", ".join(f"{topic.name} ({topic.partitions})" for topic in found.values())
    yield from problems or [ok(f"All are there, with so many partitions: {told}.")]


@check(
    "kafka.compaction",
    Level.WARNING,
    Level.ERROR,
    remedy="`cleanup.policy` of the topic",
    required=True,
)
def compaction(facts: KafkaFacts, settings: Settings) -> Iterator[Finding]:
    """The groups topic is compacted; the input is not, which would drop documents unread."""
    problems = []
    told = []
    for role, topic in facts.there():
        if isinstance(topic.config, Unknown) or role not in {Role.GROUPS, Role.INPUT}:
            continue
        policy = topic.config.get("cleanup.policy", "")
        told.append(f"{topic.name} has {policy}")
        compacts = "compact" in policy.split(",")
        if role is Role.GROUPS and not compacts:
            found = (
                f"The Kafka topic {topic.name} has the cleanup policy {policy}, which would forget "
                "groups."
            )
            command = set_topic(settings, topic.name, "cleanup.policy=compact")
            problems.append(error(found, "Set it", command))
        elif role is Role.INPUT and compacts:
            found = (
                f"The input topic {topic.name} is compacted, so a document that is not read at "
                "once goes when another of its key comes."
            )
            command = set_topic(settings, topic.name, "cleanup.policy=delete")
            problems.append(warning(found, "Set it", command))
    if not told:
        known(facts.topic(Role.INPUT))
        known(known(facts.topic(Role.INPUT)).config)
    yield from problems or [ok(f"{', '.join(told)}.")]


@check(
    "kafka.partitions",
    Level.WARNING,
    remedy="`kafka-topics --alter --partitions` of the topic that has fewer",
)
def partitions(facts: KafkaFacts, settings: Settings) -> Iterator[Finding]:
    """The output has as many partitions as the input, so that answers keep the order."""
    read, written = known(facts.topic(Role.INPUT)), known(facts.topic(Role.OUTPUT))
    if read.partitions == written.partitions:
        yield ok(f"Input and output have {read.partitions} partitions each.")
        return
    fewer, more = sorted((read, written), key=lambda topic: topic.partitions)
    alter = ("--alter", "--topic", fewer.name, "--partitions", str(more.partitions))
    yield warning(
        f"{read.name} has {read.partitions} partitions and {written.name} {written.partitions}, so "
        "answers go by their keys and do not keep the partition of their documents.",
        "Give the one as many as the other",
        kafka_command(settings, "kafka-topics", *alter),
    )


@check("kafka.processes", Level.WARNING, remedy="`--processes`, or more partitions")
def processes(facts: KafkaFacts, settings: Settings) -> Iterator[Finding]:
    """There are not more worker processes than partitions of the input."""
    count = known(facts.topic(Role.INPUT)).partitions
    if settings.processes > count:
        yield warning(
            f"{settings.processes} processes share {count} partitions of {settings.input_topic}: "
            f"{settings.processes - count} have nothing to do.",
            "Start as many as there are partitions",
            f"processes = {count}",
        )
    else:
        yield ok(f"{count} partitions for {settings.processes} process(es) of this worker.")


@check(
    "kafka.retention",
    Level.WARNING,
    Level.ERROR,
    remedy="`retention.ms` of the input, more workers",
)
def retention(facts: KafkaFacts, settings: Settings) -> Iterator[Finding]:
    """The input keeps documents for a day at least, and none is near its end unread."""
    topic = known(facts.topic(Role.INPUT))
    known(topic.config)
    kept = retention_of(topic)
    if kept is None:
        yield ok(f"{topic.name} keeps its documents without end.")
        return
    longer = set_topic(settings, topic.name, f"retention.ms={round(7 * SHORTEST_RETENTION * 1000)}")
    places = known(facts.places).values()
    unread = [place for place in places if place.committed is not None and place.aged]
    half, most = (sum(place.aged[at] > (place.committed or 0) for place in unread) for at in (0, 1))
    if half:
        say = error if most else warning
        yield say(
            f"In {most or half} partition(s) of {topic.name} what is not read yet has "
            f"{'less than a tenth' if most else 'less than half'} of its retention left, which is "
            f"{span(kept)}: it will be lost unread.",
            "Start more workers, and have it kept for longer",
            longer,
        )
    elif kept < SHORTEST_RETENTION:
        yield warning(
            f"{topic.name} keeps its documents for {span(kept)}: when workers stand still for "
            "longer, some are lost.",
            "Have them kept for longer",
            longer,
        )
    else:
        yield ok(f"{topic.name} keeps its documents for {span(kept)}; none is near its end.")


@check(
    "kafka.output_retention",
    Level.HINT,
    remedy="`retention.ms` of the output: the window, or -1 without one",
)
def output_retention(facts: KafkaFacts, settings: Settings) -> Iterator[Finding]:
    """The output is kept as long as originals last, so that a lost index can be rebuilt from it."""
    topic = known(facts.topic(Role.OUTPUT))
    known(topic.config)
    kept, window = retention_of(topic), settings.window
    if kept is None or (window is not None and kept >= window + settings.lateness):
        yield ok(f"{topic.name} is kept as long as originals last.")
        return
    wanted = -1 if window is None else round((window + settings.lateness) * 1000)
    yield hint(
        f"{topic.name} is kept for {span(kept)} and originals "
        f"{'without end' if window is None else 'for ' + span(window + settings.lateness)}, so a "
        "lost index could be rebuilt in part only.",
        "Keep it as long, if you count on stream-dedup rebuild",
        set_topic(settings, topic.name, f"retention.ms={wanted}"),
    )


@check(
    "kafka.message_bytes",
    Level.WARNING,
    remedy="`max.message.bytes` of the topic, or `max_document_bytes`",
)
def message_bytes(facts: KafkaFacts, settings: Settings) -> Iterator[Finding]:
    """Outputs take the largest document with its annotation; a fetch takes any input."""
    wanted = max(settings.max_document_bytes, PRODUCE_BATCH_BYTES) + ANNOTATION_BYTES
    problems, limits = [], []
    for role, topic in facts.there():
        if isinstance(topic.config, Unknown):
            continue
        limit = int(value_of(topic.config, "max.message.bytes"))
        limits.append(f"{topic.name} {size(limit)}")
        if role in _ANSWERS and limit < wanted:
            found = (
                f"{topic.name} takes messages of {size(limit)}; documents may have "
                f"{size(settings.max_document_bytes)} and batches {size(PRODUCE_BATCH_BYTES)}, so "
                "large ones are refused, and others sent again in parts."
            )
            command = set_topic(settings, topic.name, f"max.message.bytes={wanted}")
            problems.append(warning(found, "Let it take more", command))
        elif role is Role.INPUT and limit > FETCH_MAX_BYTES:
            found = (
                f"{topic.name} takes messages of {size(limit)}, which is more than a fetch of "
                f"{size(FETCH_MAX_BYTES)}: one alone can take a worker's memory."
            )
            command = set_topic(settings, topic.name, f"max.message.bytes={FETCH_MAX_BYTES}")
            problems.append(warning(found, "Let it take less", command))
    if not limits:
        known(known(facts.topic(Role.OUTPUT)).config)
    yield from problems or [ok(f"Largest messages: {', '.join(limits)}.")]


@check(
    "kafka.timestamps",
    Level.WARNING,
    remedy="`message.timestamp.type=CreateTime` of the output",
)
def timestamps(facts: KafkaFacts, settings: Settings) -> Iterator[Finding]:
    """The output keeps the times of the documents."""
    topic = known(facts.topic(Role.OUTPUT))
    kind = value_of(topic.config, "message.timestamp.type")
    if kind != "CreateTime":
        yield warning(
            f"{topic.name} has {kind}, so every answer gets the time at which it was published, "
            "and stream-dedup rebuild takes that for the documents' times.",
            "Keep the times of the documents",
            set_topic(settings, topic.name, "message.timestamp.type=CreateTime"),
        )
    else:
        yield ok("Answers keep the times of their documents.")


@check(
    "kafka.compression",
    Level.WARNING,
    remedy="`compression.type=producer` of the topic",
)
def compression(facts: KafkaFacts, settings: Settings) -> Iterator[Finding]:
    """No broker packs again what workers have packed."""
    problems = []
    for role, topic in facts.there():
        config = {} if isinstance(topic.config, Unknown) else topic.config
        kind = config.get("compression.type", "producer")
        packed = {"producer", settings.compression}
        if settings.compression == "none":
            packed.add("uncompressed")
        if role is not Role.INPUT and kind not in packed:
            found = (
                f"Workers send {settings.compression} to {topic.name}, which has compression.type "
                f"{kind}, so its brokers unpack and pack every batch."
            )
            command = set_topic(settings, topic.name, "compression.type=producer")
            problems.append(warning(found, "Let it keep what comes", command))
    known(facts.topic(Role.OUTPUT))
    yield from problems or [ok(f"Batches stay as workers send them ({settings.compression}).")]


CHECKS = (
    topics,
    compaction,
    partitions,
    processes,
    retention,
    output_retention,
    message_bytes,
    timestamps,
    compression,
)
