"""The index view: does it grow as planned, does it fit, is it skewed?"""

from __future__ import annotations

from ops.grafana.board import dashboard
from ops.grafana.panels import Json, Query, Steps, bars, row, series, stat
from ops.grafana.queries import SHOWN, increase, largest, rate, ratio

_FILLED: Steps = (("green", None), ("orange", 0.8), ("red", 1))
_NODE: Steps = (("green", None), ("orange", 0.7), ("red", 0.85))
_LEFT: Steps = (("red", None), ("orange", 7 * 86_400), ("green", 30 * 86_400))
_CUT: Steps = (("green", None), ("orange", 0.001), ("red", 0.01))
_AGE: Steps = (("green", None), ("orange", 300), ("red", 1800))
_ORIGINALS = largest("index_originals")
_PLANNED = largest("index_planned_originals")
#: The table of document ids is not probed for similar documents.
_TABLES = 'table!="ids"'


def index() -> Json:
    """Return the dashboard."""
    panels = [*_now(), *_growth(), *_memory(), *_skew(), *_probes(), *_upkeep()]
    description = "Growth, memory and skew of the index. See docs/dashboards.md."
    return dashboard("index", description, panels)


def _used(kind: str) -> str:
    return largest("redis_memory_bytes", labels=f'kind="{kind}"')


def _now() -> list[Json]:
    registered = rate("documents_total", labels='status="original"', over=SHOWN)
    growth = f"{registered} - {rate('swept_originals_total', over=SHOWN)}"
    left = f"clamp_min({_PLANNED} - {_ORIGINALS}, 0) / ({growth} > 0)"
    return [
        row("Now"),
        stat(
            "Originals",
            "Originals in the index, as the latest sample counted them. Duplicates are not kept.",
            "short",
            Query(_ORIGINALS, "originals"),
            absent="not sampled",
        ),
        stat(
            "Of the plan",
            "Originals as a share of expected_originals, which the tables are laid out for. Beyond "
            "100 % each probe finds more candidates by chance, and decisions take longer.",
            "percentunit",
            Query(ratio(_ORIGINALS, _PLANNED), "filled"),
            steps=_FILLED,
            absent="not sampled",
        ),
        stat(
            "Full in",
            "Time until the planned size is reached, at the pace of the time shown: originals "
            "registered less originals swept.",
            "s",
            Query(left, "left"),
            steps=_LEFT,
            absent="not growing",
        ),
        stat(
            "Fullest node",
            "Memory of the fullest Redis node as a share of its maxmemory; 0 without a limit. At "
            "100 % Redis refuses writes and the workers stop.",
            "percentunit",
            Query(largest("redis_fullest_node_ratio"), "fullest"),
            steps=_NODE,
            absent="not sampled",
        ),
        stat(
            "Probes cut short",
            "Share of the probes in the time shown that found more than max_candidates and were "
            "cut: their documents may have missed an original.",
            "percentunit",
            Query(
                ratio(increase("capped_probes_total"), increase("probes_total")),
                "cut short",
            ),
            steps=_CUT,
            absent="idle",
            decimals=2,
        ),
        stat(
            "Age of the sample",
            "Time since a worker last sampled the index. All figures here but rates are of then.",
            "s",
            Query(f"time() - {largest('index_sample_timestamp_seconds')}", "age"),
            steps=_AGE,
            absent="not sampled",
        ),
    ]


def _growth() -> list[Json]:
    registered = rate("documents_total", labels='status="original"', over=SHOWN)
    return [
        row("Does it grow as planned?"),
        series(
            "Originals",
            "Originals in the index, and the size that it is laid out for.",
            "short",
            Query(_ORIGINALS, "originals"),
            Query(_PLANNED, "planned"),
        ),
        series(
            "Registered and removed",
            "Originals per second that come in by decisions and go out by sweeps, each over as "
            "long as is shown. With a window the two meet at the plateau.",
            "ops",
            Query(registered, "registered"),
            Query(rate("swept_originals_total", over=SHOWN), "swept"),
        ),
    ]


def _memory() -> list[Json]:
    return [
        row("Does it fit?"),
        series(
            "Memory of Redis",
            "Memory that all Redis nodes use, their limit if they have one, and what the plan "
            "expects at the planned size.",
            "bytes",
            Query(_used("used"), "used"),
            Query(f"{_used('max')} > 0", "limit"),
            Query(_used("planned"), "planned"),
        ),
        series(
            "Fullest node",
            "Largest share of its limit that a node uses. On a Cluster one node far above the "
            "others means that slots are spread badly.",
            "percentunit",
            Query(largest("redis_fullest_node_ratio"), "fullest node"),
            width=6,
            steps=_NODE,
        ),
        series(
            "Memory an original",
            "Memory used over originals. It falls while the index is small, as Redis takes some "
            "itself, and then stays; if it grows, other data shares the Redis, or sweeps are due.",
            "bytes",
            Query(ratio(_used("used"), _ORIGINALS), "an original"),
            width=6,
        ),
    ]


def _skew() -> list[Json]:
    entries = largest("index_entries", "table")
    within = largest("index_entries", "table", labels=_TABLES)
    return [
        row("Is it skewed?"),
        bars(
            "Entries by table",
            "Estimated entries of each table, of more than 32 the fullest. All should be about as "
            "high; ids is the table of document ids.",
            "short",
            Query(f"sort_desc(topk(32, {entries}))", "{{table}}"),
        ),
        series(
            "Fullest and emptiest table",
            "The same over time. Tables drift apart when documents share parts, such as a "
            "template.",
            "short",
            Query(f"max({within})", "fullest"),
            Query(f"avg({within})", "mean"),
            Query(f"min({within})", "emptiest"),
            width=6,
        ),
        series(
            "Entries under a key",
            "Entries of the longest sampled key and of the mean one. A key a thousand times the "
            "mean is a template: boilerplate to clean away (docs/text.md), or max_candidates cuts.",
            "short",
            Query(largest("index_fullest_key_entries"), "fullest"),
            Query(largest("index_mean_key_entries"), "mean"),
            width=6,
            logarithmic=True,
        ),
    ]


def _probes() -> list[Json]:
    found = ratio(rate("candidates_total"), rate("probes_total"))
    return [
        row("What do probes find?"),
        series(
            "Candidates a probe",
            "Candidates that a probe finds, and those that the plan expects by chance at this "
            "size. Far above the plan: skew. Duplicates themselves add to it.",
            "short",
            Query(found, "found"),
            Query(largest("index_planned_candidates"), "planned, by chance"),
            width=8,
        ),
        series(
            "Verifications",
            "Candidates compared with the document per second, by whether they turned out near. "
            "Mostly rejected: the tables are too coarse for these documents.",
            "ops",
            Query(rate("verifications_total", "result"), "{{result}}"),
            width=8,
            stacked=True,
        ),
        series(
            "Probes",
            "Probes per second, and those of them that were cut at max_candidates.",
            "ops",
            Query(rate("probes_total"), "sent"),
            Query(rate("capped_probes_total"), "cut short"),
            width=8,
        ),
    ]


def _upkeep() -> list[Json]:
    return [
        row("Claims and sweeps"),
        series(
            "Contended claims",
            "Claims per second that another worker's claim made void or that were made again: "
            "copies at the same moment. Rare, unless a worker has died or hangs.",
            "ops",
            Query(rate("claims_voided_total"), "voided"),
            Query(rate("claims_retried_total"), "made again"),
            width=8,
        ),
        series(
            "Removed by sweeps",
            "What sweeps took out per second, counted at the end of each. An original leaves with "
            "one entry in each table.",
            "ops",
            Query(rate("swept_originals_total"), "originals"),
            Query(rate("swept_claims_total"), "claims"),
            Query(rate("swept_entries_total"), "entries"),
            width=8,
        ),
        series(
            "Time in sweeps",
            "Share of the time that a sweep was under way, over as long as is shown; most of it is "
            "pauses between calls. Near 100 % sweeps do not keep up with sweep_interval.",
            "percentunit",
            Query(rate("sweep_seconds_total", over=SHOWN), "sweeping"),
            width=8,
        ),
    ]
