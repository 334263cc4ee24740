"""``stream-dedup metrics``: every metric of the workers and the server, and what it means."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import click
import msgspec
from prometheus_client import REGISTRY
from prometheus_client.metrics import MetricWrapperBase

from stream_dedup import metrics

_EPILOG = """\b
Examples:
  stream-dedup metrics
  stream-dedup metrics --json | jq -r '.[] | select(.type == "histogram").name'
"""


class Definition(NamedTuple):
    """A metric as it is scraped.

    Attributes:
        name: with the ending of a counter.
        type: counter, gauge or histogram.
        labels: names of its labels.
        meaning: a sentence.
        served_by: ``worker`` (and ``groups``), ``serve``, or both.
    """

    name: str
    type: str
    labels: tuple[str, ...]
    meaning: str
    served_by: str


def definitions() -> list[Definition]:
    """Return every metric, by name."""
    return sorted(_definitions())


@click.command("metrics", epilog=_EPILOG)
@click.option("--json", "as_json", is_flag=True, help="Print them as JSON.")
@click.option("--markdown", is_flag=True, help="Print the table of docs/metrics.md.")
def metrics_command(*, as_json: bool, markdown: bool) -> None:
    """Print every metric with its type, its labels and its meaning.

    Workers and stream-dedup groups serve theirs at /metrics on --http-port, stream-dedup serve its
    own on --serve-port.
    """
    if as_json:
        click.echo(msgspec.json.encode([one._asdict() for one in definitions()]))
    elif markdown:
        click.echo(_markdown())
    else:
        for one in definitions():
            labels = f"{{{','.join(one.labels)}}}" if one.labels else ""
            click.echo(f"{one.name}{labels}  {one.type}, {one.served_by}\n    {one.meaning}")


def _definitions() -> Iterator[Definition]:
    served = {family.name for family in metrics.query_registry.collect()}
    for metric in vars(metrics).values():
        if not isinstance(metric, MetricWrapperBase):
            continue
        (family,) = metric.describe()
        name = family.name + ("_total" if family.type == "counter" else "")
        of_workers = metric in REGISTRY._collector_to_names
        by = ["worker"] * of_workers + ["serve"] * (family.name in served)
        labels = tuple(metric._labelnames)
        yield Definition(name, family.type, labels, family.documentation, ", ".join(by))


def _markdown() -> str:
    lines = ["| metric | type | labels | meaning | served by |", "| --- | --- | --- | --- | --- |"]
    for one in definitions():
        labels = ", ".join(f"`{label}`" for label in one.labels)
        lines.append(f"| `{one.name}` | {one.type} | {labels} | {one.meaning} | {one.served_by} |")
    return "\n".join(lines)
