"""The tables that ``stream-dedup plan`` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stream_dedup.doctor.words import readable_bytes
from stream_dedup.settings import Settings
from stream_dedup.tables.plan import CURVE, FILL, Plan
from stream_dedup.types import Method

#: What says when documents are near; those that few ever set are named only when they are.
_MINHASH_LIMITS = ("threshold", "recall", "minhash")
_SIMHASH_LIMITS = ("hamming", "simhash_bits")
_NAMED_IF_SET = ("minhash", "simhash_bits")


def limits_of(settings: Settings) -> dict[str, Any]:
    """Return the method and what it counts as near, by setting name."""
    described: dict[str, Any] = {"method": settings.method.value}
    names = {
        Method.SIMHASH: _SIMHASH_LIMITS,
        Method.MINHASH: _MINHASH_LIMITS,
        Method.FUSED: _MINHASH_LIMITS + _SIMHASH_LIMITS,
    }
    for name in names[settings.method]:
        value = getattr(settings, name)
        if name not in _NAMED_IF_SET or value != Settings.model_fields[name].default:
            described[name] = value
    return described


def plan_lines(
    settings: Settings, memory: int, plans: Sequence[Plan], at: int, reason: str
) -> list[str]:
    """Return the lines of the table."""
    limit = ", ".join(f"{name} {value}" for name, value in limits_of(settings).items())
    lines = [
        f"{settings.expected_originals:,} originals; {limit}",
        f"shards of {readable_bytes(memory)}, filled to {FILL:.0%}",
        "",
    ]
    lines += _aligned([_HEADER, *(_row(number, plan) for number, plan in enumerate(plans, 1))])
    if plans[0].design.bands:
        lines += _band_lines(settings.threshold, plans)
    lines += ["", f"Recommended: design {at + 1}, {plans[at].design.name}. {reason}"]
    return lines + _warnings(plans[at])


def _band_lines(threshold: float, plans: Sequence[Plan]) -> list[str]:
    """Return the lines that tell what the bands find, and miss."""
    found = [["design", *(f"{resemblance:g}" for resemblance in CURVE)]]
    errors = [["design", f"missed at {threshold:g}", "missed above", "candidates below"]]
    for number, plan in enumerate(plans, 1):
        found.append([str(number), *(f"{plan.design.recall_at(x):.4f}" for x in CURVE)])
        rates = plan.design.rates(threshold)
        if rates:
            shares = (rates.missed_at, rates.missed_share, rates.false_share)
            errors.append([str(number), *(f"{share:.5f}" for share in shares)])
    lines = ["", "share of pairs found, by resemblance", *_aligned(found)]
    title = "error rates of the bands about the threshold, all resemblances alike frequent"
    return [*lines, "", title, *_aligned(errors)]


_HEADER = [
    "design",
    "",
    "tables",
    "prefix bits",
    "recall",
    "cand./probe",
    "cand./document",
    "bytes/original",
    "memory",
    "shards",
    "partitions",
    "documents/s/shard",
]


def _row(number: int, plan: Plan) -> list[str]:
    bits = sorted(set(plan.design.prefix_bits))
    return [
        str(number),
        plan.design.name,
        str(plan.design.tables),
        f"{bits[0]}-{bits[-1]}" if len(bits) > 1 else str(bits[0]),
        "all" if plan.design.recall == 1.0 else f"{plan.design.recall:.4f}",
        f"{plan.candidates_per_probe:.3g}",
        f"{plan.candidates_per_document:.3g}",
        f"{plan.bytes_per_original:.0f}",
        readable_bytes(plan.memory),
        str(plan.shards),
        str(plan.partitions),
        f"{plan.documents_per_second:,.0f}" if plan.documents_per_second >= 1 else "<1",
    ]


def _warnings(plan: Plan) -> list[str]:
    if plan.fullest_shard * FILL <= 1.0:
        return []
    warning = (
        "With the slots split evenly over the shards, the fullest would hold "
        f"{plan.fullest_shard:.2f} times the mean; see docs/planner.md on partitions."
    )
    return [warning]


def _aligned(rows: list[list[str]]) -> list[str]:
    """Put numbers in columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
