"""The service view: is it healthy, and is it keeping up?"""

from __future__ import annotations

from ops.grafana.board import dashboard
from ops.grafana.panels import (
    Column,
    Json,
    Query,
    Steps,
    heatmap,
    row,
    series,
    stat,
    table,
)
from ops.grafana.queries import (
    SHOWN,
    STEP,
    chosen,
    increase,
    largest,
    or_zero,
    quantile,
    rate,
    ratio,
    share,
    total,
)

_CATCHING_UP: Steps = (("green", None), ("orange", 60), ("red", 300))
_LATENCY: Steps = (("green", None), ("orange", 10), ("red", 60))
_DEAD: Steps = (("green", None), ("orange", 0.01), ("red", 0.1))
_READY: Steps = (("red", None), ("green", 1))
_ALERTS: Steps = (("green", None), ("red", 1))
_FIRING = 'count(ALERTS{alertstate="firing",alertname=~"StreamDedup.+"}) or vector(0)'
#: Messages of all kinds that were committed.
_MESSAGES = "end_to_end_seconds_count"
#: Lag over pace of each instance; nothing where there is no lag.
_BEHIND = (
    f"({total('consumer_lag_records', 'instance')} > 0) / {rate(_MESSAGES, 'instance')} "
    f"or {total('consumer_lag_records', 'instance')} * 0"
)


def service() -> Json:
    """Return the dashboard."""
    panels = [*_now(), *_pace(), *_time(), *_cost(), *_faults()]
    description = "Is it healthy, and is it keeping up? See docs/dashboards.md."
    return dashboard("service", description, panels)


def _now() -> list[Json]:
    # What answers queries over HTTP has no worker processes, and so no `ready`.
    ready = f"({chosen('up')} == 1) unless on (instance) ({chosen('ready')} == 0)"
    dead = ratio(increase("dead_letters_total"), increase(_MESSAGES))
    return [
        row("Now"),
        stat(
            "Ready",
            "Share of the programs that Prometheus knows that answer, and whose worker processes "
            "have all joined their group. Below 100 %: the table Instances shows which one, its "
            "log why.",
            "percentunit",
            Query(f"{or_zero(f'count({ready})')} / count({chosen('up')})", "ready"),
            steps=_READY,
            absent="none found",
        ),
        stat(
            "Alerts",
            "Alerts that fire. Each has a heading in the runbook.",
            "short",
            Query(_FIRING, "firing"),
            steps=_ALERTS,
        ),
        stat(
            "Time to catch up",
            "Consumer lag over pace, of the slowest instance. Without end: there is lag, and "
            "nothing is published.",
            "s",
            Query(f"max({_BEHIND})", "behind"),
            steps=_CATCHING_UP,
            absent="no worker",
        ),
        stat(
            "Documents",
            "Documents decided and published per second.",
            "ops",
            Query(rate("documents_total"), "documents"),
            absent="no worker",
        ),
        stat(
            "End to end, 99 %",
            "99 % of the messages in the time shown were published within this time of their "
            "timestamp. The timestamp is the producer's: backlogs and replays count.",
            "s",
            Query(quantile(0.99, "end_to_end_seconds", over=SHOWN), "99 %"),
            steps=_LATENCY,
            absent="idle",
        ),
        stat(
            "Dead letters",
            "Share of the messages in the time shown that could not be decided and went to the "
            "dead-letter topic, each with its reason in its headers.",
            "percentunit",
            Query(dead, "dead letters"),
            steps=_DEAD,
            absent="idle",
            decimals=2,
        ),
    ]


def _pace() -> list[Json]:
    since = f"time() - ({largest('last_publish_timestamp_seconds', 'instance')} > 0)"
    return [
        row("Is it keeping up?"),
        series(
            "Messages by outcome",
            "Messages decided and published per second, with those that went aside.",
            "ops",
            Query(rate("documents_total", "status"), "{{status}}"),
            Query(rate("dead_letters_total"), "dead letter"),
            Query(rate("tombstones_total"), "tombstone"),
            stacked=True,
        ),
        series(
            "Lag by partition",
            "Messages that were not taken yet. One partition alone: its messages share a key. All "
            "of them: the workers are slower than the input, so start more.",
            "short",
            Query(largest("consumer_lag_records", "topic, partition"), "{{topic}}/{{partition}}"),
        ),
        series(
            "Time to catch up",
            "Consumer lag over pace, for each instance. It falls when the workers are faster than "
            "the input.",
            "s",
            Query(_BEHIND, "{{instance}}"),
            width=8,
            steps=_CATCHING_UP,
        ),
        series(
            "Since the last publication",
            "Time since an instance committed a batch. It grows without harm while nothing comes "
            "in; with lag it means that the instance hangs.",
            "s",
            Query(since, "{{instance}}"),
            width=8,
        ),
        series(
            "Partitions by instance",
            "Input partitions that belong to each instance. An instance without any has nothing to "
            "do.",
            "short",
            Query(total("assigned_partitions", "instance"), "{{instance}}"),
            width=8,
            stacked=True,
        ),
    ]


def _time() -> list[Json]:
    seconds = "end_to_end_seconds"
    stages = rate("stage_seconds_total", "stage")
    return [
        row("How long does it take?"),
        heatmap(
            "From message to annotation",
            "Messages by the time from their timestamp to the commit of their annotation.",
            "s",
            Query(increase(f"{seconds}_bucket", "le", over=STEP), "{{le}}"),
        ),
        series(
            "From message to annotation, quantiles",
            "The same, for half, 95 % and 99 % of the messages; as exact as the buckets are "
            "narrow.",
            "s",
            *_quantiles(seconds),
            logarithmic=True,
        ),
        series(
            "Decision",
            "Time from a document's being decoded to its decision, most of it waits for Redis. It "
            "grows with the batch.",
            "s",
            *_quantiles("decision_seconds"),
            width=8,
        ),
        series(
            "Messages in a batch",
            "Small batches mean that the workers wait for input, full ones that they work off a "
            "backlog.",
            "short",
            *_quantiles("batch_documents"),
            width=8,
        ),
        series(
            "Time by stage",
            "What worker processes spend their time on; poll is waiting for input, decide mostly "
            "Redis, publish the broker. Little poll: they are busy.",
            "percentunit",
            Query(share(stages, rate("stage_seconds_total")), "{{stage}}"),
            width=8,
            stacked=True,
            top=1,
        ),
    ]


def _quantiles(histogram: str) -> list[Query]:
    return [Query(quantile(part, histogram), f"{part:.0%}") for part in (0.5, 0.95, 0.99)]


def _cost() -> list[Json]:
    worker = "{{instance}} {{worker}}"
    versions = largest("build_info", "instance, version, configuration")
    ready = total("ready", "instance")
    return [
        row("What runs, and what does it take?"),
        series(
            "Processor by worker",
            "Processor time of each worker process; 100 % is one core. A process has one busy "
            "thread, so near 100 % it takes another process, or instance.",
            "percentunit",
            Query(rate("worker_cpu_seconds_total", "instance, worker"), worker),
        ),
        series(
            "Memory by worker",
            "Resident memory of each worker process. It should not grow for days.",
            "bytes",
            Query(total("worker_resident_bytes", "instance, worker"), worker),
        ),
        table(
            "Instances",
            "Each program with its version, and the configuration that its decisions carry. Two "
            "configurations on one index are refused, two versions are a rolling upgrade.",
            "instance,version,configuration",
            Column("ready", "short", f"{versions} * on (instance) group_left () {ready}"),
            Column("partitions", "short", total("assigned_partitions", "instance")),
            Column("documents", "ops", rate("documents_total", "instance")),
            Column("processor", "percentunit", rate("worker_cpu_seconds_total", "instance")),
            Column("memory", "bytes", total("worker_resident_bytes", "instance")),
        ),
    ]


def _faults() -> list[Json]:
    return [
        row("What went wrong?"),
        series(
            "Dead letters by reason",
            "Messages per second that could not be decided. not_json and the like are the "
            "producer's, refused is the output topic's limit.",
            "ops",
            Query(rate("dead_letters_total", "reason"), "{{reason}}"),
            width=6,
            stacked=True,
        ),
        series(
            "Redis errors",
            "Calls to Redis that failed in the end, by kind, and calls that were sent again.",
            "ops",
            Query(rate("redis_errors_total", "kind"), "{{kind}}"),
            Query(rate("redis_retries_total"), "sent again"),
            width=6,
        ),
        series(
            "Batches done again",
            "Batches per second that were decided again because Redis was out of reach, or that "
            "were not published; no message is lost or doubled, but time is.",
            "ops",
            Query(rate("index_retries_total"), "index out of reach"),
            Query(rate("transaction_aborts_total"), "transaction aborted"),
            width=6,
        ),
        series(
            "Rebalances and restarts",
            "Assignments of partitions to worker processes, and processes started again. A few at "
            "each start and stop; steadily: a process dies or stalls, see its log.",
            "short",
            Query(increase("rebalances_total", over=STEP), "assignments"),
            Query(or_zero(increase("worker_restarts_total", over=STEP)), "restarts"),
            width=6,
        ),
    ]
