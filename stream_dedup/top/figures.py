"""The figures of the live view, computed from what changed between two scrapes.

Pure: nothing here asks a server or a clock. A figure that no endpoint tells is None.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from stream_dedup.metrics import STAGES
from stream_dedup.top.scrape import Change, Quantile
from stream_dedup.types import Status

#: Lag that is lost or won in a second without being worth a word, as a share of it.
_STEADY = 0.001
#: What can go wrong, by the counter that tells of it.
_TROUBLES = {
    "aborts": "transaction_aborts_total",
    "rebalances": "rebalances_total",
    "index retries": "index_retries_total",
    "Redis errors": "redis_errors_total",
    "Redis retries": "redis_retries_total",
    "voided claims": "claims_voided_total",
    "claimed again": "claims_retried_total",
    "restarts": "worker_restarts_total",
}


class Documents(msgspec.Struct, frozen=True):
    """What became of messages.

    Attributes:
        per_second: documents decided and published.
        dead_letters_per_second: messages that could not be decided.
        shares: of all of these, by status, and of ``dead_letter``.
    """

    per_second: float | None
    dead_letters_per_second: float | None
    shares: dict[str, float]


class Partition(msgspec.Struct, frozen=True):
    """The lag of an input partition, in records."""

    topic: str
    partition: str
    records: float


class Lag(msgspec.Struct, frozen=True):
    """What has not been polled yet.

    Attributes:
        records: of all partitions.
        partitions: every one, the worst first.
        per_second: by how much it grows; negative: shrinks.
        drained_in: seconds until there is none, if it goes on like this; None if it does not
            shrink.
    """

    records: float | None
    partitions: list[Partition]
    per_second: float | None
    drained_in: float | None


class Latency(msgspec.Struct, frozen=True):
    """Quantiles, in seconds."""

    p50: Quantile | None
    p99: Quantile | None


class Index(msgspec.Struct, frozen=True):
    """How large the index is, beside its plan.

    Attributes:
        originals: in it.
        planned: originals that it is laid out for.
        per_second: originals that come, less those that are swept.
        full_in: seconds until there are as many as planned, if it goes on like this.
        entries: of all tables, estimated.
        tables: number of tables.
        fullest_key: entries of the longest sorted set among the sampled ones.
        mean_key: their mean.
        memory_used: bytes, of all nodes that take writes.
        memory_limit: bytes; None without a limit.
        memory_planned: bytes.
        fullest_node: share of its limit that the fullest node uses; None without a limit.
    """

    originals: float | None
    planned: float | None
    per_second: float | None
    full_in: float | None
    entries: float | None
    tables: int | None
    fullest_key: float | None
    mean_key: float | None
    memory_used: float | None
    memory_limit: float | None
    memory_planned: float | None
    fullest_node: float | None


class Matching(msgspec.Struct, frozen=True):
    """How probes and verification do.

    Attributes:
        candidates: of a probe, on average.
        planned_candidates: the same, by the plan.
        capped: share of probes whose candidates were cut.
        accepted: share of verified candidates that are near.
    """

    candidates: float | None
    planned_candidates: float | None
    capped: float | None
    accepted: float | None


class Tally(msgspec.Struct, frozen=True):
    """How often something happened: between the two scrapes, and since the programs started."""

    lately: float | None
    in_all: float


class Shadow(msgspec.Struct, frozen=True):
    """A second configuration.

    Attributes:
        per_second: documents that it decides.
        differing: share of them that it decides otherwise.
        skipped: documents that it did not decide.
        backlog: documents that wait for it.
    """

    per_second: float | None
    differing: float | None
    skipped: float | None
    backlog: float | None


class State(msgspec.Struct, frozen=True):
    """The programs behind the figures.

    Attributes:
        ready: whether every worker process of every endpoint has joined its group.
        workers: worker processes.
        cores: processors that they keep busy.
        resident: bytes of memory that they take.
        restarts: of worker processes.
        partitions: that are assigned to them.
        published_at: when the latest batch was published, seconds since the epoch.
        versions: of the program.
        configurations: fingerprint configurations.
    """

    ready: bool | None
    workers: int | None
    cores: float | None
    resident: float | None
    restarts: float | None
    partitions: float | None
    published_at: float | None
    versions: list[str]
    configurations: list[str]


class Figures(msgspec.Struct, frozen=True):
    """Everything that the view shows.

    Attributes:
        seconds: what rates, shares and quantiles are over.
        stages: share of the workers' time in each stage of a batch.
        troubles: what can go wrong, by its name.
        shadow: None if there is none.
    """

    seconds: float
    state: State
    documents: Documents
    lag: Lag
    decision: Latency
    end_to_end: Latency
    stages: dict[str, float]
    index: Index
    matching: Matching
    troubles: dict[str, Tally]
    shadow: Shadow | None


def figures_of(change: Change) -> Figures:
    """Compute all figures."""
    return Figures(
        change.seconds,
        _state(change),
        _documents(change),
        _lag(change),
        _latency(change, "decision_seconds"),
        _latency(change, "end_to_end_seconds"),
        _stages(change),
        _index(change),
        _matching(change),
        {
            name: Tally(change.increase(counter), total)
            for name, counter in _TROUBLES.items()
            if (total := change.sum(counter)) is not None
        },
        _shadow(change),
    )


def _state(change: Change) -> State:
    ready = [value for _, value in change.series("ready")]
    workers = change.series("worker_resident_bytes")
    built = [labels for labels, _ in change.series("build_info")]
    return State(
        all(ready) if ready else None,
        len(workers) or None,
        change.rate("worker_cpu_seconds_total"),
        change.sum("worker_resident_bytes"),
        change.sum("worker_restarts_total"),
        change.sum("assigned_partitions"),
        change.largest("last_publish_timestamp_seconds"),
        sorted({labels.get("version", "") for labels in built}),
        sorted({labels.get("configuration", "") for labels in built}),
    )


def _documents(change: Change) -> Documents:
    counts = {status.value: 0.0 for status in Status} | change.increases(
        "documents_total", "status"
    )
    counts["dead_letter"] = change.increase("dead_letters_total") or 0.0
    return Documents(
        change.rate("documents_total"), change.rate("dead_letters_total"), _shares(counts)
    )


def _lag(change: Change) -> Lag:
    # Of a partition that has moved, the one that gave it up says 0.
    worst: dict[tuple[str, str], float] = {}
    for labels, unread in change.series("consumer_lag_records"):
        place = (labels.get("topic", ""), labels.get("partition", ""))
        worst[place] = max(unread, worst.get(place, 0.0))
    partitions = [Partition(*place, unread) for place, unread in worst.items()]
    partitions.sort(key=lambda one: (-one.records, one.topic, len(one.partition), one.partition))
    records = sum(worst.values()) if worst else None
    slope = change.slope("consumer_lag_records")
    drained_in = None
    if records is not None and slope is not None and (slope < -_STEADY * records or not records):
        drained_in = records / -slope if records else 0.0
    return Lag(records, partitions, slope, drained_in)


def _latency(change: Change, name: str) -> Latency:
    return Latency(change.quantile(name, 0.5), change.quantile(name, 0.99))


def _stages(change: Change) -> dict[str, float]:
    seconds = change.increases("stage_seconds_total", "stage")
    shares = _shares(seconds)
    return {stage: shares[stage] for stage in STAGES if stage in shares}


def _index(change: Change) -> Index:
    originals = change.largest("index_originals") or None
    planned = change.largest("index_planned_originals")
    come = change.rate("documents_total", status=Status.ORIGINAL.value)
    growth = None if come is None else come - (change.rate("swept_originals_total") or 0.0)
    full_in = None
    if originals is not None and planned and growth and growth > 0:
        full_in = max(0.0, planned - originals) / growth
    entries: dict[str, float] = {}
    for labels, count in change.series("index_entries"):
        entries[labels["table"]] = max(count, entries.get(labels["table"], 0.0))
    return Index(
        originals,
        planned,
        growth,
        full_in,
        sum(entries.values()) if entries else None,
        sum(table.isdecimal() for table in entries) if entries else None,
        change.largest("index_fullest_key_entries"),
        change.largest("index_mean_key_entries"),
        change.largest("redis_memory_bytes", kind="used"),
        change.largest("redis_memory_bytes", kind="max") or None,
        change.largest("redis_memory_bytes", kind="planned") or None,
        change.largest("redis_fullest_node_ratio") or None,
    )


def _matching(change: Change) -> Matching:
    probes = change.increase("probes_total")
    verified = change.increases("verifications_total", "result")
    return Matching(
        _ratio(change.increase("candidates_total"), probes),
        change.largest("index_planned_candidates"),
        _ratio(change.increase("capped_probes_total"), probes),
        _ratio(verified.get("accepted", 0.0), sum(verified.values())),
    )


def _shadow(change: Change) -> Shadow | None:
    """Return figures of a shadow where a document was given to one."""
    decided = change.sum("shadow_documents_total")
    skipped = change.sum("shadow_skipped_documents_total")
    if decided is None and not skipped:
        return None
    same = 0.0
    for labels, count in change.series("shadow_documents_total"):
        if labels.get("live") == labels.get("shadow") and labels.get("original") == "same":
            same += count
    return Shadow(
        change.rate("shadow_documents_total"),
        _ratio((decided or 0.0) - same, decided),
        skipped,
        change.sum("shadow_backlog_documents"),
    )


def _shares(counts: Mapping[str, float]) -> dict[str, float]:
    total = sum(counts.values())
    return {name: count / total for name, count in counts.items()} if total > 0 else {}


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None
