"""The whole examination: all subjects, none of which stops another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from stream_dedup.doctor import (
    clock,
    kafka_brokers,
    kafka_group,
    kafka_look,
    kafka_topics,
    machine,
    plan,
    redis_index,
    redis_look,
    redis_servers,
    setup,
)
from stream_dedup.doctor.findings import (
    Check,
    Finding,
    Level,
    check,
    judged,
    not_checked,
    of_error,
    ok,
)
from stream_dedup.doctor.kafka_facts import KafkaFacts, Role, topics_of
from stream_dedup.errors import ServiceError, SettingsError
from stream_dedup.settings import Settings

KAFKA = (
    *kafka_brokers.CHECKS,
    *kafka_topics.CHECKS,
    *kafka_group.CHECKS,
    *clock.CHECKS_OF_KAFKA,
)
REDIS = (
    *redis_servers.CHECKS,
    *redis_index.CHECKS,
    *plan.CHECKS,
    *clock.CHECKS_OF_REDIS,
)


@check(
    "shadow.redis",
    Level.HINT,
    Level.WARNING,
    remedy="that of the check which the finding names",
)
def of_shadow(facts: list[Finding], settings: Settings) -> Iterator[Finding]:
    """All checks of Redis hold for the shadow too; the live stream does without it."""
    problems = [
        found._replace(
            level=Level.WARNING if found.level is Level.ERROR else found.level,
            found=f"{found.check}: {found.found}",
        )
        for found in facts
        if found.level is not Level.OK
    ]
    yield from problems or [ok("Redis and the index of the shadow are as they must be.")]


CHECKS: tuple[Check, ...] = (*setup.CHECKS, *machine.CHECKS, *KAFKA, *REDIS, of_shadow)


def examine(load: Callable[[], Settings]) -> list[Finding]:
    """Carry out all checks, in the order of ``CHECKS``.

    Args:
        load: reads the settings.
    """
    try:
        settings = load()
    except SettingsError as problem:
        first, *others = CHECKS
        nothing = not_checked("The settings cannot be read.")
        # No check looks at the settings when there are no facts to hold to them.
        rest = judged(others, nothing, Settings())
        return [of_error(problem)._replace(check=first.name), *rest]
    found = setup.look(settings)
    findings = judged(setup.CHECKS, found, settings)
    findings += judged(machine.CHECKS, machine.look(settings), settings)
    findings += of_service("Kafka", KAFKA, settings, look_at_kafka)
    findings += of_service("Redis", REDIS, settings, redis_look.look)
    if isinstance(found.shadow, Settings):
        of_redis = of_service("Redis", REDIS, found.shadow, redis_look.look)
        findings += judged((of_shadow,), of_redis, settings)
    return findings


def look_at_kafka(settings: Settings) -> KafkaFacts:
    """Look at Kafka for workers and for ``stream-dedup groups``, if there is one."""
    topics = topics_of(settings)
    if settings.groups_topic is not None:
        topics[Role.GROUPS] = settings.groups_topic
    return kafka_look.look(settings, topics)


def of_service(
    name: str,
    checks: tuple[Check, ...],
    settings: Settings,
    look: Callable[[Settings], Any],
) -> list[Finding]:
    """Carry out the checks of a service; without an answer only the first, and that fails."""
    try:
        facts = look(settings)
    except (ServiceError, SettingsError) as problem:
        reachable, *others = checks
        first = of_error(problem)._replace(check=reachable.name)
        return [first, *judged(others, not_checked(f"{name} does not answer."), settings)]
    return judged(checks, facts, settings)
