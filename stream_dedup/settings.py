"""Every setting once: name, type, default, unit and range.

Flags, ``--help`` and the table in ``docs/settings.md`` are generated from the fields below and
those of the classes that they are added to; ``load_settings`` reads their values.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, SecretStr, model_validator

from stream_dedup.connection_settings import ConnectionSettings
from stream_dedup.matching_settings import MatchingSettings
from stream_dedup.review_settings import ReviewSettings
from stream_dedup.secret_settings import SecretSettings
from stream_dedup.setting_types import Duration, DurationOrZero
from stream_dedup.setting_types import setting as _setting
from stream_dedup.types import Revisions

#: What the name of a setting begins with in the environment.
ENV_PREFIX = "STREAM_DEDUP_"


class Settings(ReviewSettings, ConnectionSettings, MatchingSettings, SecretSettings):
    """All settings, checked. Unknown names are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    # A run on files.
    jobs: int = _setting(
        1,
        "run",
        "Processes that decode, fingerprint and annotate; one of them has the index too. 0 takes "
        "one for each core.",
        ge=0,
        le=256,
    )

    # Where the index lives.
    redis_namespace: str = _setting(
        "sd", "redis", "First part of every Redis key.", pattern=r"^[A-Za-z0-9_.-]{1,64}$"
    )
    redis_timeout: Duration = _setting(5.0, "redis", "Time that a Redis call may take.")
    wait_replicas: int = _setting(
        0,
        "redis",
        "Replicas of each node that must have a write before anything is decided on it.",
        ge=0,
        le=5,
    )
    wait_timeout: Duration = _setting(
        1.0, "redis", "Time that replicas may take for that before the batch is tried again."
    )
    partitions: int = _setting(
        1,
        "redis",
        "Hash tags over which the keys of a Redis index are spread; 1 on a single node.",
        ge=1,
        le=4096,
    )
    expected_originals: int = _setting(
        1_000_000,
        "redis",
        "Originals that the Redis index is laid out for; sizes its sorted sets.",
        ge=1_000,
        le=10_000_000_000,
    )
    max_candidates: int = _setting(
        4096,
        "redis",
        "Candidates of a document, oldest first: a share of each of its keys, or more where most "
        "of these are full. What is cut is counted in a metric.",
        ge=16,
        le=1_000_000,
    )
    claim_grace: Duration = _setting(
        0.05, "redis", "Time that a younger claim waits for an older one before it voids it."
    )

    longest_attempt: Duration = _setting(
        600.0,
        "redis",
        "Time after which a claim that is not decided is taken for that of a dead worker.",
    )
    index_ids: bool = _setting(
        default=True,
        group="redis",
        description="Whether the Redis index finds originals by their document ids, to forget them "
        "and for revisions. About 30 bytes an original.",
    )

    # The stream.
    transport: Literal["kafka-python", "confluent"] = _setting(
        "kafka-python",
        "kafka",
        "Kafka client: kafka-python, or confluent (librdkafka; needs stream-dedup[confluent]).",
    )
    input_topic: str = _setting("documents", "kafka", "Topic that documents arrive on.")
    output_topic: str = _setting("documents.annotated", "kafka", "Topic for annotated documents.")
    dead_letter_topic: str = _setting(
        "documents.dead-letter", "kafka", "Topic for messages that cannot be decided."
    )
    groups_topic: str | None = _setting(
        None,
        "kafka",
        "Compacted topic for the states of duplicate groups (see stream-dedup groups); without it "
        "workers tell of no members.",
    )
    members_topic: str = _setting(
        "documents.members",
        "kafka",
        "Topic on which workers tell duplicate groups of their members, when groups_topic is set.",
    )
    members_of: Literal["duplicates", "all"] = _setting(
        "duplicates",
        "kafka",
        "Documents that a group is told of: duplicates, or all, so that its times, origins and "
        "members include the original; that is one message and one state for each original.",
    )
    group: str = _setting("stream-dedup", "kafka", "Consumer group.")
    batch_documents: int = _setting(
        1000, "kafka", "Documents decided and committed together, at most.", ge=1, le=20_000
    )
    batch_bytes: int = _setting(
        33_554_432,
        "kafka",
        "Bytes of messages decided and committed together, about, at most; bounds the memory of a "
        "worker. A larger message is a batch of its own.",
        ge=100_000,
        le=1_000_000_000,
    )
    batch_wait: Duration = _setting(
        0.1, "kafka", "Time that a worker waits for the first document of a batch."
    )
    max_document_bytes: int = _setting(
        900_000,
        "input",
        "Largest message value, or document of a file; a larger one goes to the dead letters.",
        ge=1_000,
        le=100_000_000,
    )
    max_unpacked_bytes: int = _setting(
        64 << 20,
        "kafka",
        "Most bytes that a compressed batch of Kafka may unpack to; the records of a larger one "
        "go to the dead-letter topic unread. Not for all codecs with transport confluent.",
        ge=1 << 20,
        le=1 << 30,
    )
    compression: Literal["none", "gzip", "lz4", "snappy", "zstd"] = _setting(
        "lz4", "kafka", "Compression of produced batches."
    )
    transaction_timeout: Duration = _setting(
        60.0, "kafka", "Time after which the broker aborts an open transaction."
    )

    # The states of duplicate groups.
    group_members: int = _setting(
        10,
        "groups",
        "Members that a group lists from the first on, and as many from the latest back.",
        ge=0,
        le=100,
    )
    group_sources: int = _setting(
        20,
        "groups",
        "Origins that a group counts one by one, the most frequent; the others together.",
        ge=0,
        le=1000,
    )
    group_ttl: Duration | None = _setting(
        None,
        "groups",
        "Time without a new member after which Redis drops the state of a group; without it none "
        "is dropped. Give groups_topic the same retention.",
    )

    # The worker process.
    processes: int = _setting(1, "worker", "Worker processes.", ge=1, le=256)
    http_host: str = _setting("127.0.0.1", "worker", "Address of /metrics, /healthz and /readyz.")
    http_port: int = _setting(
        9464, "worker", "Port of the same; 0 takes a free one.", ge=0, le=65535
    )
    http_names: str = _setting(
        "",
        "worker",
        "Host names by which that address is asked, comma-separated, beside localhost and "
        "addresses; others are refused where these are set, or only this machine can ask and "
        "needs no token.",
    )
    http_token: SecretStr = _setting(
        SecretStr(""),
        "worker",
        "Token that a client of /metrics must send; without it, anybody may ask.",
    )
    http_token_file: Path | None = _setting(
        None, "worker", "File that holds that token, instead of http_token."
    )
    log_level: Literal["debug", "info", "warning", "error"] = _setting(
        "info", "worker", "Least level of the lines to log; debug has those of the clients too."
    )
    log_format: Literal["auto", "text", "json"] = _setting(
        "auto",
        "worker",
        "Log lines as text for people, or as JSON objects; auto: text on a terminal, else JSON.",
    )
    stall_timeout: Duration = _setting(
        90.0,
        "worker",
        "Time without progress after which a worker process is killed and restarted.",
    )
    sweep_interval: DurationOrZero = _setting(
        600.0,
        "worker",
        "Time between two sweeps of the index, in which the workers remove what has expired or was "
        "left behind; 0: never.",
    )
    sample_interval: DurationOrZero = _setting(
        30.0,
        "worker",
        "Time between two samples of the index, which tell its metrics how full it is and how "
        "evenly; of all workers one takes them; 0: never.",
    )

    # A second configuration beside this one; see docs/shadow.md.
    shadow: Path | None = _setting(
        None,
        "shadow",
        "TOML file of a second configuration that decides the same documents unpublished; what it "
        "does not give is as in these settings.",
    )
    shadow_sample: int = _setting(
        50,
        "shadow",
        "Differences of each kind that are sampled: by a run in all, by a worker each minute.",
        ge=0,
        le=10_000,
    )
    shadow_text: int = _setting(
        1000,
        "shadow",
        "Characters of a text that are written into a sample; 0 leaves texts out.",
        ge=0,
        le=1_000_000,
    )
    shadow_topic: str | None = _setting(
        None, "kafka", "Topic for sampled differences to the shadow; without it, none is sent."
    )
    shadow_backlog: int = _setting(
        20_000_000,
        "worker",
        "Characters of published documents that may wait for the shadow in each process; it skips, "
        "and counts, what comes when there are more.",
        ge=1_000,
        le=10_000_000_000,
    )

    # The HTTP service.
    serve_host: str = _setting("127.0.0.1", "serve", "Address that the service listens on.")
    serve_port: int = _setting(
        9465, "serve", "Port of the same; 0 takes a free one.", ge=0, le=65535
    )
    serve_names: str = _setting(
        "",
        "serve",
        "Host names by which the service is asked, comma-separated, beside localhost and "
        "addresses; others are refused where these are set, or only this machine can ask and "
        "needs no token.",
    )
    serve_token: SecretStr = _setting(
        SecretStr(""), "serve", "Token that clients must send; without it, anybody may ask."
    )
    serve_token_file: Path | None = _setting(
        None, "serve", "File that holds that token, instead of serve_token."
    )
    serve_documents: int = _setting(
        256, "serve", "Documents that one request may have.", ge=1, le=10_000
    )
    serve_bytes: int = _setting(
        2_000_000, "serve", "Bytes that the body of a request may have.", ge=1_000, le=100_000_000
    )
    serve_timeout: Duration = _setting(
        5.0, "serve", "Time after which a request that has no answer is told to come again."
    )

    @model_validator(mode="after")
    def _topics_differ(self) -> Settings:
        topics = [self.input_topic, self.output_topic, self.dead_letter_topic]
        if len(set(topics)) < len(topics):
            msg = "input_topic, output_topic and dead_letter_topic must be three different topics"
            raise ValueError(msg)
        if self.groups_topic is not None:
            topics += [self.members_topic, self.groups_topic]
            if len(set(topics)) < len(topics):
                msg = "members_topic and groups_topic must differ from the other topics"
                raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _shadow_topic_differs(self) -> Settings:
        taken = {self.input_topic, self.output_topic, self.dead_letter_topic}
        if self.groups_topic is not None:
            taken |= {self.members_topic, self.groups_topic}
        if self.shadow_topic in taken:
            msg = "shadow_topic must be another than all other topics"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _revisions_are_found(self) -> Settings:
        if self.revisions is not Revisions.OFF and not self.index_ids:
            msg = "revisions are found by their ids, but index_ids is off; leave one of them out"
            raise ValueError(msg)
        return self


def group_of(name: str) -> str:
    """Return the group of a setting, such as fingerprint, redis or serve."""
    extra = Settings.model_fields[name].json_schema_extra
    return str(extra["group"]) if isinstance(extra, dict) else ""
