"""Checks of the clocks: this machine's, that of Redis, and the times of the documents."""

from __future__ import annotations

from collections.abc import Iterator

from stream_dedup.doctor.findings import Finding, Level, check, known, ok, warning
from stream_dedup.doctor.kafka_facts import KafkaFacts
from stream_dedup.doctor.redis_facts import RedisFacts
from stream_dedup.doctor.words import span
from stream_dedup.settings import Settings

#: Seconds by which clocks may differ.
_TOLERANCE = 1.0
_SET_CLOCK = "timedatectl set-ntp true"


@check("clock.redis", Level.WARNING, remedy="NTP on this machine and on that of Redis")
def of_redis(facts: RedisFacts, settings: Settings) -> Iterator[Finding]:
    """The clocks of Redis and of this machine agree to a second."""
    worst = max((known(node.ahead) for node in facts.nodes), key=abs)
    if abs(worst) > _TOLERANCE:
        yield warning(
            f"The clock of Redis is {span(abs(worst))} "
            f"{'ahead of' if worst > 0 else 'behind'} this machine's. Claims do not mind, they go "
            "by that of Redis; what is too far ahead (max_future) and decided_at go by this one.",
            "Have the clocks of both machines set",
            _SET_CLOCK,
        )
    else:
        yield ok(f"The clocks differ by {abs(worst) * 1e3:.0f} ms; claims go by that of Redis.")


@check("clock.documents", Level.WARNING, remedy="NTP on this machine and on those of the producers")
def of_documents(facts: KafkaFacts, settings: Settings) -> Iterator[Finding]:
    """The latest record of the input is not from the future."""
    latest = known(facts.latest)
    if latest is None:
        yield ok(f"{settings.input_topic} has no records to compare clocks by.")
        return
    ahead = latest - facts.now
    if ahead > _TOLERANCE:
        late = ahead > settings.max_future and settings.time_field is None
        yield warning(
            f"The latest record of {settings.input_topic} is {span(ahead)} ahead of this machine's "
            f"clock{', further than max_future' if late else ''}.",
            "Have the clocks of both machines set, this one and the producer's",
            _SET_CLOCK,
        )
    else:
        yield ok(f"The latest record of {settings.input_topic} is {span(-ahead)} old.")


CHECKS_OF_REDIS = (of_redis,)
CHECKS_OF_KAFKA = (of_documents,)
