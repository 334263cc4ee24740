"""Measure every file of a folder: ``python -m benchmarks.quality FOLDER``.

A file of JSON lines (``id``, ``text``; plain or gzip) is measured when it has a gold group for its
documents (``cluster`` or ``group``), or a list of reference pairs beside it:
``NAME.jaccard.tsv``, lines of id, earlier id and resemblance. All methods decide the same documents
in the same run. The tables go to ``benchmarks/quality/results-<date>.md``.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import machine
from benchmarks.quality.measure import measure_file
from benchmarks.quality.sources import find_sources
from benchmarks.report import Table, progress
from stream_dedup import __version__

_RESULTS = Path(__file__).parent
#: Peers that cut texts by themselves, so that shingles could not be the same, are left out.
_PEERS = ("datasketch", "rensa", "simhash")


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality", description=__doc__)
    parser.add_argument("folder", type=Path, help="folder with *.jsonl or *.jsonl.gz")
    parser.add_argument("--only", nargs="*", help="names of files to measure, without endings")
    parser.add_argument("--documents", type=int, help="documents of each file, from its start")
    parser.add_argument("--peers", nargs="*", choices=_PEERS, default=_PEERS)
    parser.add_argument("-o", "--output", type=Path, help="file to write")
    options = parser.parse_args()
    tables: list[Table] = []
    versions: dict[str, str] = {}
    for source in find_sources(options.folder, options.only):
        progress(f"== {source.name}")
        table, found = measure_file(source, options.peers, options.documents)
        tables.append(table)
        versions |= found
        print(table.markdown(), flush=True)
    output = options.output or _RESULTS / f"results-{datetime.now(UTC):%Y-%m-%d}.md"
    output.write_text(document(tables, versions))
    progress(f"written to {output.name}")


def document(tables: list[Table], versions: dict[str, str]) -> str:
    """Return everything as one Markdown document."""
    facts = machine.facts() | {"stream-dedup": __version__} | versions
    lines = [
        "# Quality of decisions\n",
        f"Written on {datetime.now(UTC):%Y-%m-%d} by `python -m benchmarks.quality`. What the",
        "figures mean is told in [docs/evaluation.md](../../docs/evaluation.md).\n",
        "Ours with default settings but for the shingle and what the name says (*exact*: verified",
        "by all shingles; *once*: each distinct shingle once; 128 bits: within 6); peers with",
        "threshold .8 and 128 permutations (datasketch in 16 bands of 6, rensa in 32 of 4;",
        "simhash: 64 bits, k = 3), on the same shingles, candidates verified by signature. A text",
        "without any token matches only an equal one, and an empty one nothing: peers, which take",
        "shingles, are given the text as its only one, and not asked about empty ones. CPU time is",
        "that of whole decisions, of peers with shingles cut in Python.\n",
        "| | |\n| :-- | :-- |",
        *(f"| {name} | {value} |" for name, value in facts.items()),
        "",
        *(table.markdown() for table in tables),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
