"""Run all benchmarks, print their tables, and write them to benchmarks/results/<date>.md.

Benchmarks that are named are printed only, unless a file is given.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from benchmarks import machine
from benchmarks.report import Report, progress
from stream_dedup import __version__

BENCHMARKS = (
    "fingerprint",
    "in_memory",
    "embedded",
    "redis_index",
    "redis_peers",
    "growth",
    "stream",
    "rebuild",
    "scaling",
    "latency",
    "query",
    "minhash_error",
    "verification",
    "roofline",
    "window",
)
#: Needs files, which nobody but the user has (``--data``).
ON_DATA = "real_text"
#: What ``--full`` adds: more documents, larger indexes. Takes hours, and 16 GB of memory.
FULL = {
    "fingerprint": ["--characters", "60000000"],
    "in_memory": ["--documents", "300000", "--few", "30000", "--characters", "60000000"],
    "embedded": ["--documents", "1000000"],
    "redis_index": ["--originals", "1000000", "--documents", "100000"],
    "redis_peers": ["--documents", "20000", "--filling", "200000"],
    "growth": ["--full"],
    "stream": ["--documents", "500000"],
    "scaling": ["--documents", "200000"],
    "latency": ["--backlog", "200000", "--seconds", "300"],
}
RESULTS = Path(__file__).with_name("results")


def run_one(name: str, more: Sequence[str]) -> Report | None:
    """Run one benchmark in a process of its own, so that none inherits another's memory."""
    progress(f"== {name}")
    began = time.monotonic()
    command = [sys.executable, "-m", f"benchmarks.{name}", "--json", *more]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE)
    if done.returncode:
        progress(f"{name} failed; its message stands above")
        return None
    progress(f"{time.monotonic() - began:.0f} s")
    return msgspec.json.decode(done.stdout, type=Report)


def document(reports: dict[str, Report], failed: list[str], seconds: float) -> str:
    """Return everything as one Markdown document."""
    facts = machine.facts()
    for report in reports.values():
        facts |= report.versions
    lines = [
        f"# Benchmarks of stream-dedup {__version__}\n",
        f"Written on {datetime.now(UTC):%Y-%m-%d}, in {seconds / 60:.1f} minutes.",
        "What each figure means, and how to read it, is told in [README.md](../README.md).\n",
        "| | |\n| :-- | :-- |",
        *(f"| {name} | {value} |" for name, value in facts.items()),
        "",
        *(f"{name} failed and is missing.\n" for name in failed),
        *(report.markdown() for report in reports.values()),
    ]
    return "\n".join(lines)


def write(text: str, path: Path) -> None:
    """Write the results."""
    path.write_text(text)
    progress(f"written to {path.name}")


def main() -> int:
    """Run all, or those that are named; return 1 when one failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("-o", "--output", type=Path, help="file to write")
    parser.add_argument("--full", action="store_true", help="everything, on more documents")
    parser.add_argument(
        "--data", nargs="+", default=[], metavar="FILE", help=f"files or folders for {ON_DATA}"
    )
    options = parser.parse_args()
    known = [*BENCHMARKS, ON_DATA] if options.data else BENCHMARKS
    unknown = set(options.names) - set(known)
    if unknown:
        parser.error(f"there is no benchmark {', '.join(unknown)}; choose of {known}")
    began = time.monotonic()
    output = options.output
    if output is None and not options.names:
        output = RESULTS / f"{datetime.now(UTC):%Y-%m-%d}.md"
    more = {name: FULL.get(name, []) if options.full else [] for name in BENCHMARKS}
    if output is not None:
        output.parent.mkdir(exist_ok=True)
        more["growth"] = [*more["growth"], "--plot", str(output.with_suffix(".svg"))]
    more[ON_DATA] = options.data
    done = {name: run_one(name, more[name]) for name in options.names or known}
    reports = {name: report for name, report in done.items() if report is not None}
    failed = [name for name in done if name not in reports]
    text = document(reports, failed, time.monotonic() - began)
    print(text)
    if output is not None:
        write(text, output)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
