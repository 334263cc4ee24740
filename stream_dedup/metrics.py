"""Every Prometheus metric once.

Labels take values from closed lists (a status, a reason, a stage) or from the configuration
(topics, partitions), never from documents. Worker processes share these through prometheus_client's
multi-process mode, so every gauge says how the values of several processes become one.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_PREFIX = "stream_dedup"

#: The stages of a batch, in order; the label values of ``stage_seconds_total``.
STAGES = ("poll", "decode", "decide", "annotate", "publish")

#: 1 ms to 10 s: a decision takes tens of microseconds, the batch that it comes in milliseconds.
_DECISION_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
#: 25 ms to an hour: from a commit every few milliseconds to a worker that was away.
_END_TO_END_BUCKETS = (0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
_SIMILARITY_BUCKETS = tuple(part / 20 for part in range(6, 21))
_DISTANCE_BUCKETS = tuple(range(17))
_BATCH_BUCKETS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000)

documents_total = Counter(
    f"{_PREFIX}_documents_total", "Documents decided and published.", ["status"]
)
tombstones_total = Counter(
    f"{_PREFIX}_tombstones_total", "Messages without a value that had documents forgotten."
)
dead_letters_total = Counter(
    f"{_PREFIX}_dead_letters_total", "Messages published to the dead-letter topic.", ["reason"]
)
stage_seconds_total = Counter(
    f"{_PREFIX}_stage_seconds_total", "Time spent in each stage of a batch.", ["stage"]
)
batch_documents = Histogram(
    f"{_PREFIX}_batch_documents", "Messages in a batch.", buckets=_BATCH_BUCKETS
)
decision_seconds = Histogram(
    f"{_PREFIX}_decision_seconds",
    "Time from a document's being decoded to its decision, waits for its batch included.",
    buckets=_DECISION_BUCKETS,
)
end_to_end_seconds = Histogram(
    f"{_PREFIX}_end_to_end_seconds",
    "Time from a message's timestamp to the commit of its annotation.",
    buckets=_END_TO_END_BUCKETS,
)
near_similarity = Histogram(
    f"{_PREFIX}_near_similarity",
    "Similarity of published near duplicates to their originals, where a resemblance decides.",
    buckets=_SIMILARITY_BUCKETS,
)
near_hamming_distance = Histogram(
    f"{_PREFIX}_near_hamming_distance",
    "Fingerprint bits in which published near duplicates differ from their originals, where these "
    "decide.",
    buckets=_DISTANCE_BUCKETS,
)
last_publish_timestamp_seconds = Gauge(
    f"{_PREFIX}_last_publish_timestamp_seconds",
    "Time of the latest batch that was published, Unix time.",
    multiprocess_mode="mostrecent",
)
assigned_partitions = Gauge(
    f"{_PREFIX}_assigned_partitions",
    "Input partitions that belong to the worker processes.",
    multiprocess_mode="livesum",
)
# The most recent value among live processes: a partition belongs to one process at a time.
consumer_lag_records = Gauge(
    f"{_PREFIX}_consumer_lag_records",
    "Records of an input partition that were not polled yet.",
    ["topic", "partition"],
    multiprocess_mode="livemostrecent",
)
transaction_aborts_total = Counter(
    f"{_PREFIX}_transaction_aborts_total", "Batches that were not published and were done again."
)
rebalances_total = Counter(
    f"{_PREFIX}_rebalances_total", "Assignments of input partitions to a worker process."
)
probes_total = Counter(f"{_PREFIX}_probes_total", "Table keys looked under in the index.")
candidates_total = Counter(
    f"{_PREFIX}_candidates_total",
    "Pairs of a document and a claim under one of its keys, in however many tables; those that "
    "Redis rules out by their Hamming distance too.",
)
verifications_total = Counter(
    f"{_PREFIX}_verifications_total",
    "Candidates verified, by whether they are near; those that Redis rules out are rejected.",
    ["result"],
)
capped_probes_total = Counter(
    f"{_PREFIX}_capped_probes_total", "Probes of which candidates were cut (max_candidates)."
)
claims_voided_total = Counter(
    f"{_PREFIX}_claims_voided_total", "Claims of other documents that were voided as undecided."
)
claims_retried_total = Counter(
    f"{_PREFIX}_claims_retried_total", "Claims that were made again because they were voided."
)
index_retries_total = Counter(
    f"{_PREFIX}_index_retries_total", "Batches decided again because the index was out of reach."
)
# A shadow: a second configuration beside the live one, see docs/shadow.md.
shadow_documents_total = Counter(
    f"{_PREFIX}_shadow_documents_total",
    "Published documents that the shadow decided too, by both decisions.",
    ["live", "shadow", "original"],
)
shadow_skipped_documents_total = Counter(
    f"{_PREFIX}_shadow_skipped_documents_total",
    "Published documents that the shadow did not decide; its index lacks their originals.",
    ["reason"],
)
shadow_skipped_ids_total = Counter(
    f"{_PREFIX}_shadow_skipped_ids_total",
    "Ids of published tombstones that the shadow did not forget; its index may keep originals.",
)
shadow_seconds_total = Counter(
    f"{_PREFIX}_shadow_seconds_total", "Time that the shadow spent deciding."
)
shadow_backlog_documents = Gauge(
    f"{_PREFIX}_shadow_backlog_documents",
    "Published documents that wait for the shadow.",
    multiprocess_mode="livesum",
)
members_total = Counter(
    f"{_PREFIX}_members_total", "Members folded into duplicate groups and published.", ["status"]
)
groups_published_total = Counter(
    f"{_PREFIX}_groups_published_total", "States of duplicate groups published."
)
groups_restored_total = Counter(
    f"{_PREFIX}_groups_restored_total", "States of duplicate groups put back from their topic."
)
foreign_states_total = Counter(
    f"{_PREFIX}_foreign_states_total",
    "Messages on groups_topic that are no states of groups, passed over when they were read back.",
)
late_documents_total = Counter(
    f"{_PREFIX}_late_documents_total",
    "Documents later than the setting lateness, whose originals may have been removed.",
)
future_documents_total = Counter(
    f"{_PREFIX}_future_documents_total",
    "Documents further ahead of the clock than the setting max_future.",
)
sweeps_total = Counter(
    f"{_PREFIX}_sweeps_total", "Sweeps of the index that ended; of all workers one does each."
)
sweep_seconds_total = Counter(
    f"{_PREFIX}_sweep_seconds_total", "Time that sweeps took, most of it pauses between calls."
)
swept_originals_total = Counter(
    f"{_PREFIX}_swept_originals_total", "Originals removed because their time was over."
)
swept_claims_total = Counter(
    f"{_PREFIX}_swept_claims_total", "Claims removed that were void, forgotten or left undecided."
)
swept_entries_total = Counter(
    f"{_PREFIX}_swept_entries_total", "Entries of removed originals and claims taken from tables."
)
# The index as the latest sample found it. One worker takes it and all report it, so of many workers
# any value will do; a worker that knows none reports none.
index_originals = Gauge(
    f"{_PREFIX}_index_originals",
    "Originals in the index.",
    multiprocess_mode="livemostrecent",
)
index_planned_originals = Gauge(
    f"{_PREFIX}_index_planned_originals",
    "Originals that the index is laid out for, the setting expected_originals.",
    multiprocess_mode="livemostrecent",
)
index_entries = Gauge(
    f"{_PREFIX}_index_entries",
    "Entries of each table, estimated from the lengths of sampled keys; table ids is that of "
    "document ids.",
    ["table"],
    multiprocess_mode="livemostrecent",
)
index_fullest_key_entries = Gauge(
    f"{_PREFIX}_index_fullest_key_entries",
    "Entries of the longest of the sampled keys.",
    multiprocess_mode="livemostrecent",
)
index_mean_key_entries = Gauge(
    f"{_PREFIX}_index_mean_key_entries",
    "Mean entries of the sampled keys that have any.",
    multiprocess_mode="livemostrecent",
)
index_planned_candidates = Gauge(
    f"{_PREFIX}_index_planned_candidates",
    "Candidates of a probe by chance at this number of originals, were fingerprints random.",
    multiprocess_mode="livemostrecent",
)
index_sample_timestamp_seconds = Gauge(
    f"{_PREFIX}_index_sample_timestamp_seconds",
    "Time of the latest sample of the index, Unix time.",
    multiprocess_mode="livemostrecent",
)
redis_memory_bytes = Gauge(
    f"{_PREFIX}_redis_memory_bytes",
    "Memory of the Redis nodes that take writes: used, their limit (0 without one), and what the "
    "plan expects of the index at its planned size.",
    ["kind"],
    multiprocess_mode="livemostrecent",
)
redis_fullest_node_ratio = Gauge(
    f"{_PREFIX}_redis_fullest_node_ratio",
    "Largest share of its memory limit that a Redis node uses, 0 without a limit.",
    multiprocess_mode="livemostrecent",
)
redis_errors_total = Counter(
    f"{_PREFIX}_redis_errors_total", "Calls to Redis that failed in the end, by kind.", ["kind"]
)
redis_retries_total = Counter(
    f"{_PREFIX}_redis_retries_total",
    "Calls and connections to a single Redis node that the client tried again; the client of a "
    "Cluster does not tell.",
)
build_info = Gauge(
    f"{_PREFIX}_build_info",
    "Always 1; its labels name the version and the fingerprint configuration.",
    ["version", "configuration"],
    multiprocess_mode="livemax",
)

# Kept by the supervisor, whose own process is outside the multi-process mode.
worker_restarts_total = Counter(
    f"{_PREFIX}_worker_restarts_total",
    "Worker processes started again after they ended or stalled.",
    ["cause"],
)
ready = Gauge(
    f"{_PREFIX}_ready",
    "1 when every worker process has joined its consumer group, else 0.",
)
worker_resident_bytes = Gauge(
    f"{_PREFIX}_worker_resident_bytes",
    "Resident memory of each worker process.",
    ["worker"],
)
worker_cpu_seconds_total = Counter(
    f"{_PREFIX}_worker_cpu_seconds_total",
    "Processor time of each worker process, user and system, through all of its lives.",
    ["worker"],
)
SUPERVISED = (worker_restarts_total, ready, worker_resident_bytes, worker_cpu_seconds_total)

#: What the HTTP service counts; it has none of the workers' metrics.
query_registry = CollectorRegistry()
#: 0.5 ms to 5 s.
_QUERY_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
query_registry.register(build_info)
query_registry.register(redis_errors_total)
query_registry.register(redis_retries_total)
query_documents_total = Counter(
    f"{_PREFIX}_query_documents_total",
    "Documents looked up for requests.",
    ["status"],
    registry=query_registry,
)
query_requests_total = Counter(
    f"{_PREFIX}_query_requests_total",
    "Requests to /v1/query, by HTTP status.",
    ["code"],
    registry=query_registry,
)
query_seconds = Histogram(
    f"{_PREFIX}_query_seconds",
    "Time from a request's arrival to the head of its answer.",
    buckets=_QUERY_BUCKETS,
    registry=query_registry,
)

#: Looked up once: finding a label costs a lock and a dictionary.
stage_seconds = {stage: stage_seconds_total.labels(stage) for stage in STAGES}
verifications = {result: verifications_total.labels(result) for result in ("accepted", "rejected")}


def observe_all(histogram: Histogram, values: Iterable[float]) -> None:
    """Observe many values at once.

    The same as ``observe`` on each, which a test holds it to, at 2 instead of 3,000 us for a
    batch of 1,000: in multi-process mode each single observation writes to a mapped file.
    """
    observed = np.fromiter(values, np.float64)
    if not len(observed):
        return
    bounds = np.array(histogram._upper_bounds)
    counts = np.bincount(np.searchsorted(bounds, observed), minlength=len(bounds))
    for bucket, count in zip(histogram._buckets, counts.tolist(), strict=True):
        if count:
            bucket.inc(count)
    histogram._sum.inc(float(observed.sum()))
