"""The quality view: what is decided, how near, and what would another configuration decide?"""

from __future__ import annotations

from ops.grafana.board import dashboard
from ops.grafana.panels import (
    Column,
    Json,
    Query,
    Steps,
    bars,
    heatmap,
    row,
    series,
    stat,
    table,
)
from ops.grafana.queries import SHOWN, STEP, chosen, increase, quantile, rate, ratio, share, total

_CUT: Steps = (("green", None), ("orange", 0.001), ("red", 0.01))
_DUPLICATE = 'status=~".+_duplicate"'
_NEAR = 'status="near_duplicate"'
_EXACT = 'status="exact_duplicate"'
_SHADOWED = "shadow_documents_total"
_STATUSES = ("original", "exact_duplicate", "near_duplicate")
#: Differences between the live decision and that of the shadow.
_DIFFERENCES = {
    "only the shadow finds an original": 'live="original",shadow!="original"',
    "only live finds an original": 'live!="original",shadow="original"',
    "another original": 'live!="original",shadow!="original",original="other"',
    "exact to one, near to the other": 'live="exact_duplicate",shadow="near_duplicate"',
    "near to one, exact to the other": 'live="near_duplicate",shadow="exact_duplicate"',
}


def quality() -> Json:
    """Return the dashboard."""
    panels = [*_now(), *_shares(), *_nearness(), *_doubts(), *_shadow()]
    description = "What is decided, how near, and how a shadow differs. See docs/dashboards.md."
    return dashboard("quality", description, panels)


def _agreement(over: str) -> str:
    """Return the share of documents with the same status and original by both configurations."""
    same = [
        f"rate({chosen(_SHADOWED, labels)}[{over}])"
        for labels in (f'live="{one}",shadow="{one}",original="same"' for one in _STATUSES)
    ]
    return ratio(f"sum({' or '.join(same)})", rate(_SHADOWED, over=over))


def _share(labels: str) -> str:
    return ratio(increase("documents_total", labels=labels), increase("documents_total"))


def _now() -> list[Json]:
    return [
        row("In the time shown"),
        stat(
            "Documents",
            "Documents decided in the time shown.",
            "short",
            Query(increase("documents_total"), "documents"),
            absent="no worker",
            decimals=0,
        ),
        stat(
            "Duplicates",
            "Share of the documents that are a copy, exact or near, of an earlier one. A jump "
            "means that the input has changed: a replay, a new source, a template.",
            "percentunit",
            Query(_share(_DUPLICATE), "duplicates"),
            absent="idle",
            decimals=1,
        ),
        stat(
            "Exact",
            "Share of the documents whose normalised text is equal to that of an earlier one.",
            "percentunit",
            Query(_share(_EXACT), "exact"),
            absent="idle",
            decimals=1,
        ),
        stat(
            "Near",
            "Share of the documents that are near an earlier one without being equal.",
            "percentunit",
            Query(_share(_NEAR), "near"),
            absent="idle",
            decimals=1,
        ),
        stat(
            "Similarity of near duplicates",
            "Median similarity of near duplicates to their originals, where a resemblance decides "
            "(MinHash). Close to the threshold: many decisions are close calls.",
            "percentunit",
            Query(quantile(0.5, "near_similarity", over=SHOWN), "median"),
            absent="none",
            decimals=1,
        ),
        stat(
            "Agreement with the shadow",
            "Share of the documents that the live configuration and the shadow decide alike: same "
            "status, same original.",
            "percentunit",
            Query(_agreement(SHOWN), "alike"),
            absent="no shadow",
            decimals=2,
        ),
    ]


def _shares() -> list[Json]:
    statuses = rate("documents_total", "status")
    found = rate("documents_total", labels=_DUPLICATE)
    return [
        row("How many duplicates?"),
        series(
            "Outcomes",
            "Shares of originals, exact and near duplicates.",
            "percentunit",
            Query(share(statuses, rate("documents_total")), "{{status}}"),
            stacked=True,
            top=1,
        ),
        series(
            "Near against exact",
            "Near and exact ones as shares of the duplicates. Sources that only pass on make exact "
            "copies, sources that edit make near ones.",
            "percentunit",
            Query(ratio(rate("documents_total", labels=_NEAR), found), "near"),
            Query(ratio(rate("documents_total", labels=_EXACT), found), "exact"),
            top=1,
        ),
    ]


def _nearness() -> list[Json]:
    name, bits = "near_similarity", "near_hamming_distance"
    return [
        row("How near are near duplicates?"),
        heatmap(
            "Similarity over time",
            "Near duplicates by their similarity to the original. Nothing lies below the "
            "threshold; much just above it means that more lies just below.",
            "percentunit",
            Query(increase(f"{name}_bucket", "le", over=STEP), "{{le}}"),
        ),
        series(
            "Similarity, quantiles",
            "5 % of the near duplicates are less similar to their originals than the lowest line, "
            "half of them than the middle one.",
            "percentunit",
            *(Query(quantile(part, name), f"{part:.0%}") for part in (0.05, 0.5, 0.95)),
            top=1,
        ),
        bars(
            "Similarity in the time shown",
            "Near duplicates by their similarity, up to the value under the bar. A valley between "
            "two hills is a good place for the threshold.",
            "short",
            Query(increase(f"{name}_bucket", "le"), "{{le}}"),
            buckets=True,
        ),
        bars(
            "Hamming distance in the time shown",
            "Near duplicates by the bits in which their fingerprints differ from the original's, "
            "where these decide (SimHash); all 0 where a resemblance does.",
            "short",
            Query(increase(f"{bits}_bucket", "le"), "{{le}}"),
            buckets=True,
        ),
    ]


def _doubts() -> list[Json]:
    accepted = rate("verifications_total", labels='result="accepted"')
    dead = ratio(rate("dead_letters_total"), rate("end_to_end_seconds_count"))
    return [
        row("What may be wrong or missing?"),
        series(
            "Verifications accepted",
            "Share of the verified candidates that are near. Low means that the tables bring many "
            "strangers, which costs time, not quality.",
            "percentunit",
            Query(ratio(accepted, rate("verifications_total")), "accepted"),
            width=8,
            top=1,
        ),
        series(
            "Not decided, or cut short",
            "Shares of messages that became dead letters, and of probes cut at max_candidates, "
            "which may miss an original.",
            "percentunit",
            Query(dead, "dead letters"),
            Query(ratio(rate("capped_probes_total"), rate("probes_total")), "probes cut short"),
            width=8,
            steps=_CUT,
        ),
        series(
            "Out of time, and forgotten",
            "Documents per second later than lateness, whose originals may be gone, or further "
            "ahead than max_future; and tombstones, which have documents forgotten.",
            "ops",
            Query(rate("late_documents_total"), "late"),
            Query(rate("future_documents_total"), "ahead of the clock"),
            Query(rate("tombstones_total"), "tombstones"),
            width=8,
        ),
    ]


def _shadow() -> list[Json]:
    skipped = rate("shadow_skipped_documents_total", "reason")
    live_time = rate("stage_seconds_total", labels='stage="decide"')
    return [
        row("What would the shadow decide?"),
        series(
            "Agreement with the shadow",
            "Share of the documents that both decide alike: same status, same original.",
            "percentunit",
            Query(_agreement(STEP), "alike"),
            width=8,
            top=1,
        ),
        series(
            "Differences by kind",
            "Documents per second that both decide differently. Label a sample of each kind before "
            "the settings are changed (docs/shadow.md).",
            "ops",
            *(Query(rate(_SHADOWED, labels=labels), name) for name, labels in _DIFFERENCES.items()),
            width=8,
            stacked=True,
        ),
        table(
            "Both decisions in the time shown",
            "Documents by both decisions, and by whether both name the same original.",
            "live,shadow,original",
            Column(
                "documents",
                "short",
                f"sort_desc({increase(_SHADOWED, 'live, shadow, original')} > 0)",
            ),
            width=8,
            height=8,
        ),
        series(
            "Documents that the shadow missed",
            "Documents that wait for the shadow, and those per minute that it skipped: its index "
            "lacks them from then on, and calls some of their duplicates originals.",
            "short",
            Query(total("shadow_backlog_documents"), "waiting"),
            Query(f"{skipped} * 60", "skipped: {{reason}}"),
        ),
        series(
            "Time of the shadow",
            "Seconds per second that the shadow and the live configuration spend on deciding, over "
            "all worker processes.",
            "short",
            Query(rate("shadow_seconds_total"), "shadow"),
            Query(live_time, "live"),
        ),
    ]
