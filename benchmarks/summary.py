"""Prints the table of the README, and draws its plot, from the results of a run.

Run: python -m benchmarks.summary [benchmarks/results/2026-11-22.md] [--plot docs/images/speed.png]

The newest results are taken if none are named. A row whose benchmark is missing there is left out.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

RESULTS = Path(__file__).with_name("results")

#: Rows of a table by the text of their first cell, and by those of their first two, with a comma
#: between them; in these the cells by column.
Cells = dict[str, dict[str, str]]
#: All tables of the results by title.
Tables = dict[str, Cells]


class Line(NamedTuple):
    """A row of the README's table.

    Attributes:
        name: what was measured.
        table: the table of the results that has it.
        row: the row there.
        column: the column there.
        unit: of the figure.
        remark: says something more about it.
    """

    name: str
    table: str
    row: str
    column: str
    unit: str
    remark: Callable[[Tables], str]


_FINGERPRINT, _PEERS, _RUN = "From text to fingerprint", "Beside peers", "`stream-dedup run`"
_GROWTH, _REDIS = "Memory, rate and candidates by size", "Beside datasketch on Redis"
_WORKER, _WORDS = "One worker process", "en, 150 words"
_LATENCY, _BATCH = "From produced to annotated", "1,000"
_MINHASH, _SIMHASH = "Redis, MinHash in 16 tables", "Redis, SimHash in 10 tables"
_OURS, _REDIS_OURS = "stream-dedup, minhash", "stream-dedup, 16"
_CPU, _RATE = "documents/s of CPU", "documents/s"


def _fingerprint_ratios(*peers: str) -> Callable[[Tables], str]:
    def remark(tables: Tables) -> str:
        cells = tables[_FINGERPRINT][_WORDS]
        return ", ".join(f"{cells[f'ours / {peer}']} times {peer}" for peer in peers)

    return remark


def _peer_ratios(tables: Tables) -> str:
    found = tables[_PEERS]
    peers = [name for name in ("gaoya", "rensa", "datasketch") if name in found]
    return ", ".join(f"{found[peer]['ours / peer']} times {peer}" for peer in peers)


def _found(tables: Tables) -> str:
    cells = tables[_RUN]["minhash"]
    return f"finds {cells['found']} of the copies, wrong {cells['wrong']}"


def _grown(row: str) -> Callable[[Tables], str]:
    def remark(tables: Tables) -> str:
        cells = tables[_GROWTH][row]
        return f"{cells['bytes an entry']} for each table, at {cells['originals']} originals"

    return remark


def _waited(tables: Tables) -> str:
    return f"median {tables[_LATENCY][_BATCH]['p50 ms']} ms"


def _times(title: str, row: str, column: str, what: str) -> Callable[[Tables], str]:
    return lambda tables: f"{tables[title][row][column]} times {what}"


def _nothing(_tables: Tables) -> str:
    return ""


LINES = (
    Line("text to MinHash fingerprint, one core", _FINGERPRINT, _WORDS, "MinHash", _RATE,
         _fingerprint_ratios("rensa", "datasketch")),
    Line("text to SimHash fingerprint, one core", _FINGERPRINT, _WORDS, "SimHash", _RATE,
         _fingerprint_ratios("simhash")),
    Line("file to file on one core, MinHash", _RUN, "minhash", _CPU, _RATE, _found),
    Line("file to file with `--jobs 2` on two cores", "Jobs", "2", _RATE, _RATE,
         _times("Jobs", "2", "times one job", "one job")),
    Line("fingerprint, look up and insert in memory, one core", _PEERS, _OURS, _CPU, _RATE,
         _peer_ratios),
    Line("Kafka to Kafka through Redis, per second of worker CPU", _WORKER,
         "kafka-python, of the worker's CPU time", "measured", _RATE, _nothing),
    Line("the same with `transport = confluent`", _WORKER,
         "confluent, of the worker's CPU time", "measured", _RATE, _nothing),
    Line("the same by the clock, broker, Redis and worker on two cores", _WORKER,
         "confluent, by the clock", "measured", _RATE, _nothing),
    Line("produced to annotated at half load, p99", _LATENCY, _BATCH, "p99 ms", "ms", _waited),
    Line("fingerprint, look up and register on Redis, by the clock", _REDIS, _REDIS_OURS, _RATE,
         _RATE, _times(_REDIS, _REDIS_OURS, "ours / peer", "datasketch on Redis")),
    Line("memory of an original in Redis, MinHash", _GROWTH, _MINHASH, "bytes an original",
         "bytes", _grown(_MINHASH)),
    Line("memory of an original in Redis, SimHash", _GROWTH, _SIMHASH, "bytes an original",
         "bytes", _grown(_SIMHASH)),
)  # fmt: skip


def read(path: Path) -> Tables:
    """Read the tables of a file of results.

    Where the same cells stand in several rows of a table, the last of these counts.
    """
    tables: Tables = {}
    for section in re.split(r"^### ", path.read_text(), flags=re.MULTILINE)[1:]:
        title, *lines = section.splitlines()
        rows = [
            [cell.strip() for cell in line.strip("|").split("|")]
            for line in lines
            if line.startswith("|") and not line.startswith("| :--")
        ]
        if rows:
            head = rows[0]
            tables[title] = {
                name: dict(zip(head, row, strict=True))
                for row in rows[1:]
                for name in (row[0], ", ".join(row[:2]))
            }
    return tables


def table(tables: Tables) -> str:
    """Return the README's table, as Markdown."""
    rows = ["| what | figure | beside |", "| --- | --- | --- |"]
    for line in LINES:
        cells = tables.get(line.table, {}).get(line.row, {})
        if line.column in cells:
            figure = f"{cells[line.column]} {line.unit}"
            rows.append(f"| {line.name} | {figure} | {line.remark(tables)} |")
    return "\n".join(rows)


def plot(tables: Tables, path: Path) -> None:
    """Draw rates of one core beside those of peers, from the same tables."""
    # Imported here because nothing else needs it.
    import matplotlib as mpl  # noqa: PLC0415

    mpl.use("agg")
    from matplotlib import pyplot  # noqa: PLC0415

    prints = tables[_FINGERPRINT][_WORDS]
    ours = _number(prints["MinHash"])
    fingerprints = {"stream-dedup": ours} | {
        peer: ours / _number(prints[f"ours / {peer}"]) for peer in ("rensa", "datasketch")
    }
    wanted = {_OURS: "stream-dedup", "gaoya": "gaoya", "rensa": "rensa", "datasketch": "datasketch"}
    decided = {
        name: _number(tables[_PEERS][row][_CPU])
        for row, name in wanted.items()
        if row in tables[_PEERS]
    }
    figure, panels = pyplot.subplots(1, 2, figsize=(10, 2.6))
    titles = ("text to MinHash fingerprint", "fingerprint, look up and insert in memory")
    for axes, title, rates in zip(panels, titles, (fingerprints, decided), strict=True):
        bars = axes.barh(list(rates), list(rates.values()))
        axes.bar_label(bars, fmt="{:,.0f}", padding=3)
        axes.set(title=title, xlabel="documents of 150 words per second, one core")
        axes.invert_yaxis()
        axes.margins(x=0.2)
    figure.tight_layout()
    figure.savefig(path)


def _number(shown: str) -> float:
    return float(shown.replace(",", ""))


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    newest = max(RESULTS.glob("20??-??-??.md"), default=None)
    parser.add_argument("results", nargs="?", type=Path, default=newest)
    parser.add_argument("--plot", type=Path, help="file to draw to (.svg, .png)")
    options = parser.parse_args()
    tables = read(options.results)
    print(table(tables))
    if options.plot is not None:
        plot(tables, options.plot)


if __name__ == "__main__":
    main()
