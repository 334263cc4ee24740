"""The figures of a campaign as tables."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Sequence
from importlib.metadata import version

from benchmarks.machine import facts
from benchmarks.report import Report, Row, Table, columns
from tests.campaign.campaign import Order, Outcome
from tests.campaign.check import kinds
from tests.campaign.recovery import Row as Tallied
from tests.campaign.recovery import summed, tally
from tests.services.kafka import LIBRARIES

_FAULTS = (
    "Seconds from the end of a fault (its begin, where it has no duration) until every input "
    "partition has published again or has nothing waiting, and the backlog shrinks; faults of "
    "workers, Kafka and Redis go side by side, one of each at a time. Standstill: the longest time "
    "for which some partition with waiting records had no answer, from the fault's begin."
)


def report(order: Order, outcome: Outcome, command: str) -> Report:
    """Put together what came of a campaign.

    Args:
        order: what it was to be.
        outcome: what came of it.
        command: that runs it again.
    """
    tables = [_tally(outcome), _audit(outcome), _machine(command)]
    return Report("Campaign of faults", tables)


def _tally(outcome: Outcome) -> Table:
    every = [*tally(outcome.happened, outcome.seen)]
    if outcome.happened:
        every.append(summed(outcome.happened, outcome.seen))
    header = columns("fault", "count|,.0f", "p50|.1f", "p99|.1f", "max|.1f", "standstill|.1f")
    return Table("Faults", _FAULTS, header, [_cells(row) for row in every])


def _cells(row: Tallied) -> Row:
    return [*row]


def _audit(outcome: Outcome) -> Table:
    found = outcome.verdict
    rows: list[Row] = [
        ["input records", found.sent],
        ["of these, documents", found.documents],
        ["annotated", found.answered],
        ["of these, originals", found.originals],
        ["decided again, to the same answer", found.again],
        ["originals in the index", found.audit.originals],
        ["pairs that the audit of the index compared", found.audit.pairs_compared],
        ["starts of workers that failed while something was broken", outcome.early],
        ["seconds in all", round(outcome.seconds)],
        ["violations", len(outcome.violations)],
    ]
    rows += [[f"dead letters: {reason}", count] for reason, count in found.dead.items()]
    rows += [[f"violations: {kind}", count] for kind, count in kinds(outcome.violations).items()]
    note = (
        "Everything read back with read_committed by partition and offset of the input, and "
        "compared by brute force; the index audited beside it."
    )
    return Table("Audit", note, columns("what", "count|,.0f"), rows)


def _machine(command: str) -> Table:
    found = facts() | {
        "confluent-kafka": version("confluent-kafka"),
        "Kafka": _kafka_version(),
        "Redis": _first_line(["redis-server", "--version"]),
        "Java": _first_line(["java", "--version"]),
        "Machine": platform.machine(),
    }
    rows: list[Row] = [[name, value] for name, value in found.items()]
    return Table("Machine", f"`{command}`", columns("what", "is"), rows)


def _kafka_version() -> str:
    return next((jar.stem.partition("-")[2] for jar in LIBRARIES.glob("kafka_2*.jar")), "")


def _first_line(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stdout or done.stderr).partition("\n")[0]
