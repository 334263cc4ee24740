"""What is known of the brokers, the topics and the group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from stream_dedup.doctor.findings import Unknown, known, not_checked
from stream_dedup.settings import Settings

#: Topics of the brokers themselves.
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
#: Shares of the retention after which it is asked what has not been read.
SHARES = (0.5, 0.9)


class Role(StrEnum):
    """What a topic is for."""

    INPUT = "input"
    OUTPUT = "output"
    DEAD_LETTER = "dead letter"
    MEMBERS = "members"
    GROUPS = "groups"
    SHADOW = "shadow"


@dataclass(frozen=True)
class Topic:
    """A topic as the brokers describe it.

    Attributes:
        name: its name.
        partitions: how many.
        replicas: of its partition that has the fewest.
        leaderless: partitions without a leader.
        lagging: partitions of which a replica is not in sync.
        operations: what this user may do with it; None if the brokers do not say.
        config: its configuration, all of it.
    """

    name: str
    partitions: int
    replicas: int = 1
    leaderless: tuple[int, ...] = ()
    lagging: tuple[int, ...] = ()
    operations: frozenset[str] | None = None
    config: Mapping[str, str] | Unknown = field(default_factory=dict)


@dataclass(frozen=True)
class Member:
    """A member of a consumer group: its client id, and the topics that it reads."""

    client: str
    topics: tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """The consumer group.

    Attributes:
        state: Stable, Empty, Dead (there is none), ...
        members: who is in it.
        operations: what this user may do with it; None if the brokers do not say.
    """

    state: str
    members: tuple[Member, ...] = ()
    operations: frozenset[str] | None = None


@dataclass(frozen=True)
class Place:
    """Where the group stands in one partition of the input topic.

    Attributes:
        committed: the offset that it reads next; None if it has committed none.
        oldest: the first offset that is still there.
        end: the offset of the next record to come.
        aged: of each of ``SHARES`` of the retention the first offset that is younger.
    """

    committed: int | None
    oldest: int
    end: int
    aged: tuple[int, ...] = ()

    @property
    def lost(self) -> int:
        """Records that were removed before they were read."""
        return 0 if self.committed is None else max(0, self.oldest - self.committed)

    @property
    def is_beyond(self) -> bool:
        """Whether the group stands behind the end."""
        return self.committed is not None and self.committed > self.end

    @property
    def waiting(self) -> int:
        """Records that are not read yet, marks of transactions among them."""
        return max(0, self.end - max(self.oldest, self.committed or 0))


_NOT_ASKED = not_checked("It was not asked for.")


@dataclass(frozen=True)
class KafkaFacts:
    """All that is known of Kafka.

    Attributes:
        brokers: how many there are.
        commit_version: newest version of the request that commits offsets in a transaction.
        seconds: that the first answer took.
        names: of the topics, by what they are for.
        topics: by the same; None where there is no such topic.
        inner: the topics of the brokers themselves, by name.
        config: configuration of one of the brokers.
        group: the consumer group; None if the brokers have had no group yet.
        places: by partition of the input topic.
        latest: largest timestamp of a record of the input topic, Unix time; None without records.
        now: our time when that was asked.
    """

    brokers: int
    commit_version: int
    seconds: float
    names: Mapping[Role, str]
    topics: Mapping[Role, Topic | Unknown | None]
    inner: Mapping[str, Topic | Unknown | None] = field(default_factory=dict)
    config: Mapping[str, str] | Unknown = _NOT_ASKED
    group: Group | Unknown | None = _NOT_ASKED
    places: Mapping[int, Place] | Unknown = _NOT_ASKED
    latest: float | Unknown | None = _NOT_ASKED
    now: float = 0.0

    def there(self) -> Iterator[tuple[Role, Topic]]:
        """Yield the topics that are there and may be seen."""
        for role, topic in self.topics.items():
            if isinstance(topic, Topic):
                yield role, topic

    def topic(self, role: Role) -> Topic | Unknown:
        """Return a topic, or say why it is not known."""
        found = self.topics.get(role)
        return found if found is not None else not_checked(f"There is no {role} topic.")


def topics_of(settings: Settings) -> dict[Role, str]:
    """Return the topics that workers with these settings read and write."""
    topics = {
        Role.INPUT: settings.input_topic,
        Role.OUTPUT: settings.output_topic,
        Role.DEAD_LETTER: settings.dead_letter_topic,
    }
    if settings.shadow is not None and settings.shadow_topic is not None:
        topics[Role.SHADOW] = settings.shadow_topic
    if settings.groups_topic is not None:
        topics[Role.MEMBERS] = settings.members_topic
    return topics


def topics_of_groups(settings: Settings) -> dict[Role, str]:
    """Return the topics of ``stream-dedup groups``.

    Args:
        settings: those of ``settings_of_groups``.
    """
    return {
        Role.MEMBERS: settings.input_topic,
        Role.GROUPS: settings.output_topic,
        Role.DEAD_LETTER: settings.dead_letter_topic,
    }


def retention_of(topic: Topic) -> float | None:
    """Return the seconds that a topic keeps records; None for ever, or if it is not known."""
    if isinstance(topic.config, Unknown) or "delete" not in topic.config.get("cleanup.policy", ""):
        return None
    milliseconds = int(topic.config.get("retention.ms", "-1"))
    return milliseconds / 1000 if milliseconds >= 0 else None


def value_of(config: Mapping[str, str] | Unknown, name: str) -> str:
    """Return one value of a configuration.

    Raises:
        UnknownFactError: it is not known; ends the check.
    """
    value = known(config).get(name)
    return known(not_checked(f"The brokers do not tell {name}.") if value is None else value)
