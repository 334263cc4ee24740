"""Every setting once: name, type, default, unit and range.

Flags, ``--help`` and the table in ``docs/settings.md`` are generated from the fields below;
``load_settings`` reads their values.
"""

from __future__ import annotations

from math import comb
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, model_validator

from stream_dedup.setting_types import (
    Clean,
    Duration,
    DurationOrZero,
    Shingle,
    read_number,
)
from stream_dedup.types import Choice, Measure, Method, Revisions, VerifyBy

#: What the name of a setting begins with in the environment.
ENV_PREFIX = "STREAM_DEDUP_"

#: A table's number is one byte in the keys of a Redis index.
MAX_TABLES = 256

#: Beyond this distance 64-bit fingerprints of unrelated texts begin to meet.
MAX_HAMMING_64 = 8

#: Blocks beyond hamming when ``blocks`` is 0: two-block prefixes (25 bits for hamming 3) in
#: C(hamming + 2, 2) tables; hamming + 1 blocks would leave prefixes of one block (16 bits).
EXTRA_BLOCKS = 2

_OF_SETS = (
    Measure.RESEMBLANCE,
    Measure.CONTAINMENT,
    Measure.COSINE,
    Measure.DICE,
    Measure.OVERLAP,
)
#: The measures that can be computed from what is kept with each original.
MEASURES = {
    VerifyBy.SKETCH: (Measure.RESEMBLANCE,),
    VerifyBy.BOTTOM: _OF_SETS,
    VerifyBy.MOD: _OF_SETS,
    VerifyBy.BLOOM: _OF_SETS,
    VerifyBy.SHINGLES: _OF_SETS,
    VerifyBy.TEXT: (Measure.LCS, Measure.EDIT),
}


def _setting(default: Any, group: str, description: str, **constraints: Any) -> Any:
    """Describe one setting; ``group`` says which commands offer it as a flag."""
    return Field(
        default, description=description, json_schema_extra={"group": group}, **constraints
    )


class Settings(BaseModel):
    """All settings, checked. Unknown names are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    # What a document is.
    id_field: str = _setting("id", "input", "JSON field that holds the document id.")
    text_field: str = _setting("text", "input", "JSON field that holds the text.")
    time_field: str | None = _setting(
        None,
        "input",
        "JSON field that holds the event time (RFC 3339, or seconds or milliseconds since the "
        "epoch). Without it the worker takes the Kafka timestamp.",
    )

    origin_field: str | None = _setting(
        None,
        "input",
        "JSON field that holds what the document comes from (site, feed, publisher); it decides "
        "which lines are boilerplate.",
    )
    rank_field: str | None = _setting(
        None,
        "input",
        "JSON field that holds the rank of the document's publisher, a number, the smaller the "
        "better; see choice.",
    )

    # How documents are compared. These make up the configuration version of an index.
    method: Method = _setting(
        Method.MINHASH, "fingerprint", "Fingerprint: minhash, simhash or fused."
    )
    threshold: float = _setting(
        0.8,
        "fingerprint",
        "Resemblance from which MinHash calls two documents near.",
        ge=0.05,
        le=1.0,
    )
    minhash: Literal["one-permutation", "classic"] = _setting(
        "one-permutation",
        "fingerprint",
        "How MinHash values are made: one-permutation hashing, or 128 universal hash functions.",
    )
    hamming: int = _setting(
        3,
        "fingerprint",
        "Differing bits up to which SimHash calls two documents near; of 64 bits, at most 8.",
        ge=0,
        le=16,
    )
    simhash_bits: Annotated[Literal[64, 128], BeforeValidator(read_number)] = _setting(
        64, "fingerprint", "Bits of a SimHash."
    )
    weights: Literal["one", "tf", "tfidf"] = _setting(
        "tf",
        "fingerprint",
        "How much a shingle counts in a SimHash: once, as often as it occurs, or that times its "
        "inverse document frequency (see frequencies_file).",
    )
    frequencies_file: Path | None = _setting(
        None,
        "fingerprint",
        "File of document frequencies for weights tfidf; made by stream-dedup learn frequencies.",
    )
    fused_resemblance: float = _setting(
        0.6,
        "fingerprint",
        "Resemblance that the method fused wants of two documents that are within hamming but "
        "below the threshold.",
        ge=0.0,
        le=1.0,
    )
    shingle: Shingle = _setting(
        "word:3", "fingerprint", "Shingle unit and size: word:1 to word:8, char:2 to char:16."
    )
    punctuation: Literal["default", "keep", "drop"] = _setting(
        "default",
        "fingerprint",
        "Punctuation in shingles: keep, drop, or default, which drops it from word shingles and "
        "keeps it in character shingles.",
    )
    clean: Clean = _setting(
        "",
        "fingerprint",
        "Steps that take noise out of a text before it is compared, in this order, with commas "
        "between: markup, urls, numbers, boilerplate.",
    )
    boilerplate_file: Path | None = _setting(
        None,
        "fingerprint",
        "File of the lines that the step boilerplate drops; stream-dedup learn boilerplate makes "
        "it.",
    )
    recall: float = _setting(
        0.99,
        "fingerprint",
        "Share of pairs exactly at the threshold that the MinHash tables must find.",
        ge=0.5,
        le=0.9999,
    )
    blocks: int = _setting(
        0,
        "fingerprint",
        "Blocks that a SimHash is cut into: more make more tables and fewer candidates; 0 takes "
        "hamming + 2. See stream-dedup plan.",
        ge=0,
        le=64,
    )
    inner_blocks: int = _setting(
        0,
        "fingerprint",
        "Blocks that the bits outside a SimHash table's blocks are cut into again; 0 does not.",
        ge=0,
        le=64,
    )
    rows: int = _setting(
        0,
        "fingerprint",
        "MinHash values in one band: fewer make fewer tables and more candidates; 0 takes the most "
        "that recall allows. See stream-dedup plan.",
        ge=0,
        le=128,
    )
    max_characters: int = _setting(
        1_000_000,
        "fingerprint",
        "Characters of a text that are shingled; the exact comparison always takes all of it.",
        ge=1_000,
        le=100_000_000,
    )
    window: Duration | None = _setting(
        None,
        "fingerprint",
        "Two documents match only when their event times are at most this far apart (30d, 12h).",
    )
    renew: bool = _setting(
        default=False,
        group="fingerprint",
        description="With a window: whether a duplicate renews its original, so that the window "
        "goes on from the latest of its duplicates.",
    )
    verify_by: VerifyBy = _setting(
        VerifyBy.SKETCH,
        "fingerprint",
        "What is kept with each original to verify candidates by: sketch (the fingerprint), "
        "bottom, mod, bloom, shingles or text. See docs/verification.md.",
    )
    measure: Measure = _setting(
        Measure.RESEMBLANCE,
        "fingerprint",
        "Measure that candidates are verified by: lcs and edit with text; resemblance with all "
        "others; containment, cosine, dice and overlap with bottom, mod, bloom and shingles.",
    )
    verify_threshold: float | None = _setting(
        None,
        "fingerprint",
        "Value of the measure from which a candidate is near; without it, threshold.",
        ge=0.05,
        le=1.0,
    )
    choice: Choice = _setting(
        Choice.FIRST,
        "fingerprint",
        "Which of several near originals a duplicate belongs to: first (registered), nearest, "
        "earliest (event time) or preferred (smallest rank). Only first gives the same answers "
        "when a stream comes again to an index that has moved on.",
    )
    seed: SecretStr = _setting(
        SecretStr(""),
        "fingerprint",
        "Secret that keys every hash, so that nobody outside can aim documents at one table key.",
    )

    # What leaves an index, and what takes the place of what.
    lateness: Duration = _setting(
        86_400.0,
        "forgetting",
        "Time by which a document may be late: an original is kept for that much longer than its "
        "window, counted from the latest event time.",
    )
    max_future: Duration = _setting(
        3_600.0,
        "forgetting",
        "How far an event time may be ahead of the clock; one that is further counts as this far "
        "when the index decides what has expired.",
    )
    revisions: Revisions = _setting(
        Revisions.OFF,
        "forgetting",
        "What becomes of a new text under an id that has an original: nothing of note (off), its "
        "decision names that original (link), which is then forgotten (replace).",
    )

    # A run on files.
    jobs: int = _setting(
        1,
        "run",
        "Processes that decode, fingerprint and annotate beside the one that has the index; 1 "
        "does all in one process, 0 takes one for each core.",
        ge=0,
        le=256,
    )

    # Where the index lives.
    redis_url: str = _setting(
        "redis://127.0.0.1:6379/0", "redis", "Redis or Valkey address (redis://, rediss://)."
    )
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
        "Candidates that one probe returns, oldest first; what is cut is counted in a metric.",
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
    kafka_bootstrap: str = _setting("127.0.0.1:9092", "kafka", "Kafka brokers, comma-separated.")
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
    batch_wait: Duration = _setting(
        0.1, "kafka", "Time that a worker waits for the first document of a batch."
    )
    max_document_bytes: int = _setting(
        900_000,
        "kafka",
        "Largest message value; a larger one goes to the dead-letter topic.",
        ge=1_000,
        le=100_000_000,
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
    log_format: Literal["text", "json"] = _setting(
        "text", "worker", "Log lines as text for people, or as JSON objects."
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
    def _weights_are_known(self) -> Settings:
        if self.weights == "tfidf" and self.frequencies_file is None:
            msg = (
                "weights is tfidf, but no frequencies_file is set; make one with stream-dedup "
                "learn frequencies"
            )
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _blocks_fit(self) -> Settings:
        if self.simhash_bits == 64 and self.hamming > MAX_HAMMING_64:
            msg = (
                f"hamming can be at most {MAX_HAMMING_64} for a SimHash of 64 bits, and is "
                f"{self.hamming}; lower it, or take simhash_bits 128"
            )
            raise ValueError(msg)
        for name in ("blocks", "inner_blocks"):
            if 0 < getattr(self, name) <= self.hamming:
                msg = f"{name} must be 0 or more than hamming, which is {self.hamming}"
                raise ValueError(msg)
        tables = comb(self.simhash_blocks, self.hamming)
        tables *= comb(self.inner_blocks, self.hamming) if self.inner_blocks else 1
        if tables > MAX_TABLES:
            msg = f"these blocks make {tables} tables, more than {MAX_TABLES}; take fewer blocks"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _measure_fits(self) -> Settings:
        if self.measure not in MEASURES[self.verify_by]:
            allowed = ", ".join(MEASURES[self.verify_by])
            others = ", ".join(kind for kind, found in MEASURES.items() if self.measure in found)
            msg = (
                f"measure {self.measure} cannot be had with verify_by {self.verify_by}; take one "
                f"of its measures ({allowed}), or for {self.measure} another verify_by ({others})"
            )
            raise ValueError(msg)
        if self.by_hamming and self.verify_threshold is not None:
            msg = (
                "verify_threshold does not apply where SimHash fingerprints are compared, which "
                "are near within hamming bits; leave it out, or take another verify_by"
            )
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _times_fit(self) -> Settings:
        if self.renew and self.window is None:
            msg = "renew makes a window go on, but no window is set; set one, or leave renew out"
            raise ValueError(msg)
        if self.revisions is not Revisions.OFF and not self.index_ids:
            msg = "revisions are found by their ids, but index_ids is off; leave one of them out"
            raise ValueError(msg)
        return self

    @property
    def by_hamming(self) -> bool:
        """Whether the Hamming distance of SimHash fingerprints decides."""
        return self.method is Method.SIMHASH and self.verify_by is VerifyBy.SKETCH

    @property
    def near_from(self) -> float:
        """Value of the measure from which a candidate is near."""
        return self.threshold if self.verify_threshold is None else self.verify_threshold

    @property
    def simhash_blocks(self) -> int:
        """Blocks that a SimHash is cut into."""
        return self.blocks or self.hamming + EXTRA_BLOCKS

    @property
    def shingle_unit(self) -> str:
        """``word`` or ``char``."""
        return self.shingle.split(":")[0]

    @property
    def shingle_size(self) -> int:
        """Tokens or characters in one shingle."""
        return int(self.shingle.split(":")[1])

    @property
    def clean_steps(self) -> list[str]:
        """The steps of ``clean``, in order."""
        return self.clean.split(",") if self.clean else []

    @property
    def is_punctuation_inverted(self) -> bool:
        """Whether shingles of this unit treat punctuation the other way than by default."""
        return self.punctuation == ("keep" if self.shingle_unit == "word" else "drop")


def group_of(name: str) -> str:
    """Return the group of a setting, such as fingerprint, redis or serve."""
    extra = Settings.model_fields[name].json_schema_extra
    return str(extra["group"]) if isinstance(extra, dict) else ""
