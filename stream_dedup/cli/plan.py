"""``stream-dedup plan``: which tables to make, and what they take."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from stream_dedup.cli.options import write_settings
from stream_dedup.cli.plan_table import limits_of, plan_lines
from stream_dedup.doctor.words import readable_bytes
from stream_dedup.fingerprint import planned
from stream_dedup.fingerprint.banding import SIGNATURE_VALUES
from stream_dedup.settings import Settings
from stream_dedup.settings_sources import load_settings
from stream_dedup.tables.plan import (
    CURVE,
    FILL,
    Design,
    Load,
    Plan,
    fused_designs,
    minhash_designs,
    predict,
    recommend,
    simhash_designs,
)
from stream_dedup.types import Method

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT])(i?)B?", re.IGNORECASE)
_POWERS = {"K": 1, "M": 2, "G": 3, "T": 4}
_LEAST, _MOST = 1_000, 10_000_000_000
_LARGEST = 1e15

_EPILOG = """\b
Examples:
  stream-dedup plan --documents 1e9 --method simhash --hamming 3 --memory 64GB
  stream-dedup plan --documents 200e6 --threshold 0.8 --duplicates 0.4
  stream-dedup plan --documents 1e8 --method simhash --json | jq '.designs[].shards'
  stream-dedup plan --documents 1e8 --write planned.toml
  stream-dedup worker --config planned.toml

\b
Exit codes:
  0   done
  2   a flag or a setting is wrong
"""


def _count(_context: click.Context, _option: click.Parameter, value: str) -> int:
    """Read a number of documents, such as 200000000, 200_000_000 or 2e8."""
    try:
        count = float(value)
    except ValueError as error:
        msg = f"{value!r} is not a count; write 200000000 or 2e8."
        raise click.BadParameter(msg) from error
    if not _LEAST <= count <= _MOST:
        msg = f"{value} is out of range; plans are for 1e3 to 1e10 documents."
        raise click.BadParameter(msg)
    return round(count)


def _size(_context: click.Context, _option: click.Parameter, value: str) -> int:
    """Read a number of bytes, such as 64GB or 512MiB."""
    match = _SIZE.fullmatch(value.strip())
    size = 0.0
    if match:
        size = float(match[1]) * (1024 if match[3] else 1000) ** _POWERS[match[2].upper()]
    if not 1 <= size <= _LARGEST:
        msg = f"{value!r} is not a size of memory; write 64GB, 512MB or 16GiB."
        raise click.BadParameter(msg)
    return round(size)


@click.command(epilog=_EPILOG)
@click.option(
    "--documents",
    callback=_count,
    required=True,
    help="Documents that the index shall hold, such as 1e9.",
)
@click.option(
    "--duplicates",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.0,
    show_default=True,
    help="Share of them that are duplicates, which take no room.",
)
@click.option(
    "--method", type=click.Choice([method.value for method in Method]), help="Fingerprint."
)
@click.option("--hamming", type=int, help="SimHash: differing bits up to which documents are near.")
@click.option("--simhash-bits", type=click.Choice(["64", "128"]), help="SimHash: its bits.")
@click.option("--minhash", type=click.Choice(["one-permutation", "classic"]), help="MinHash: kind.")
@click.option("--threshold", type=float, help="MinHash: resemblance from which they are near.")
@click.option("--recall", type=float, help="MinHash: share of pairs at the threshold to be found.")
@click.option(
    "--memory", callback=_size, default="16GB", show_default=True, help="Memory of one shard."
)
@click.option(
    "--id-bytes",
    type=click.IntRange(1, 255),
    default=20,
    show_default=True,
    help="Mean bytes of a document id.",
)
@click.option(
    "--evidence-bytes",
    type=click.IntRange(8, 1_000_000),
    help="Mean bytes of what verify_by keeps of an original, where that is not the fingerprint; "
    "without it, that of documents of 150 words (see docs/verification.md).",
)
@click.option(
    "--candidates",
    type=click.FloatRange(min=0, min_open=True),
    default=10.0,
    show_default=True,
    help="SimHash: candidates for a document that the recommended design may return.",
)
@click.option("--design", type=click.IntRange(min=1), help="Number of the design to write.")
@click.option(
    "--write",
    type=click.Path(dir_okay=False, path_type=Path),
    help="New TOML file for the settings of the recommended design, or of --design.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the plans as JSON.")
@click.option(
    "--config", type=click.Path(path_type=Path), help="TOML file to take unnamed settings from."
)
def plan(
    *,
    documents: int,
    duplicates: float,
    memory: int,
    id_bytes: int,
    evidence_bytes: int | None,
    candidates: float,
    design: int | None,
    write: Path | None,
    as_json: bool,
    config: Path | None,
    **limits: Any,
) -> None:
    """Show the table designs for a number of documents, and what each would take in Redis.

    Candidates are those that random fingerprints would return; a stream of look-alikes has more.
    docs/planner.md has the formulas. A shard is a Redis server, filled to 80 % of --memory; its
    rate is for one core that only takes originals.
    """
    settings = _settings(limits, max(_LEAST, round(documents * (1 - duplicates))), config)
    load = Load(
        settings.expected_originals,
        planned.evidence_bytes(settings, evidence_bytes),
        id_bytes,
        memory,
    )
    load = load._replace(namespace=settings.redis_namespace, ids=settings.index_ids)
    plans = [predict(design_, load) for design_ in _designs(settings)]
    at, reason = recommend(plans, candidates, settings.max_candidates)
    if design is not None and design > len(plans):
        msg = f"There is no design {design}; take 1 to {len(plans)}."
        raise click.BadParameter(msg, param_hint="--design")
    if as_json:
        click.echo(msgspec.json.encode(_described(settings, memory, plans, at, reason)))
    else:
        click.echo("\n".join(plan_lines(settings, memory, plans, at, reason)))
    if write is not None:
        _write(write, settings, plans[at if design is None else design - 1])


def _settings(limits: dict[str, Any], originals: int, config: Path | None) -> Settings:
    """Check the flags as settings; the blocks and rows in force are what is planned anew."""
    flags = {name: value for name, value in limits.items() if value is not None}
    flags |= {"blocks": 0, "inner_blocks": 0, "rows": 0, "expected_originals": originals}
    return load_settings(flags, config)


def _designs(settings: Settings) -> list[Design]:
    blocks = simhash_designs(settings.hamming, settings.simhash_bits)
    if settings.method is Method.SIMHASH:
        return blocks
    bands = minhash_designs(settings.threshold, settings.recall, SIGNATURE_VALUES)
    return bands if settings.method is Method.MINHASH else fused_designs(bands, blocks)


def _described(
    settings: Settings, memory: int, plans: Sequence[Plan], at: int, reason: str
) -> dict[str, Any]:
    """Return the plans as they are printed in JSON."""
    return {
        "originals": settings.expected_originals,
        **limits_of(settings),
        "memory_bytes_per_shard": memory,
        "filled_to": FILL,
        "designs": [
            {"design": number, **_facts(plan, settings)}
            for number, plan in enumerate(plans, start=1)
        ],
        "recommended": at + 1,
        "reason": reason,
    }


def _facts(plan: Plan, settings: Settings) -> dict[str, Any]:
    design = plan.design
    rates = design.rates(settings.threshold)
    facts: dict[str, Any] = {
        "name": design.name,
        "tables": design.tables,
        "prefix_bits": sorted(set(design.prefix_bits)),
        "recall": design.recall,
        "recall_curve": {f"{at:g}": design.recall_at(at) for at in CURVE},
        "rates": rates and rates._asdict(),
        "candidates_per_probe": plan.candidates_per_probe,
        "candidates_per_document": plan.candidates_per_document,
        "bytes_per_original": plan.bytes_per_original,
        "table_bytes": plan.table_bytes,
        "record_bytes": plan.record_bytes,
        "memory_bytes": plan.memory,
        "shards": plan.shards,
        "partitions": plan.partitions,
        "fullest_shard": plan.fullest_shard,
        "documents_per_second_per_shard": plan.documents_per_second,
        "settings": design.settings,
    }
    if design.bands is None:
        del facts["recall_curve"], facts["rates"]
    return facts


def _write(path: Path, settings: Settings, plan: Plan) -> None:
    """Write what differs from the defaults for a plan, into a new file."""
    values: dict[str, Any] = limits_of(settings)
    values |= {name: value for name, value in plan.design.settings.items() if value}
    values |= {"expected_originals": settings.expected_originals, "partitions": plan.partitions}
    comments = [
        f"{plan.design.name}, {plan.design.tables} tables: {plan.bytes_per_original:.0f} bytes",
        f"for an original, {readable_bytes(plan.memory)} in all, {plan.shards} shards.",
        "None of these can be changed once the index is in use.",
    ]
    write_settings(path, comments, values)
