"""``python -m tests.simulation SEED --trace``, or ``--seeds N`` for the first N."""

from __future__ import annotations

import argparse
import sys
import time
import warnings

# kafka-python reads its message schemas with functions that are deprecated (see tests/conftest.py).
warnings.filterwarnings("ignore", "(open|read)_text is deprecated", DeprecationWarning)

from tests.simulation.many import Totals, replay_command, run_many  # noqa: E402
from tests.simulation.simulation import simulate  # noqa: E402


def main() -> int:
    """Run one seed, or many; fail where something does not hold."""
    parser = argparse.ArgumentParser(prog="tests.simulation", description=__doc__)
    parser.add_argument("seed", type=int, nargs="?", help="one seed")
    parser.add_argument("--trace", action="store_true", help="print everything that happens")
    parser.add_argument("--seeds", type=int, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--processes", type=int, help="default: one for each core")
    asked = parser.parse_args()
    if asked.seeds is not None:
        return _many(range(asked.first, asked.first + asked.seeds), asked.processes)
    if asked.seed is None:
        parser.error("name a seed, or --seeds")
    result = simulate(asked.seed, trace=asked.trace)
    _print("\n".join([*result.trace, *result.violations] or ["everything holds"]))
    return bool(result.violations)


def _many(seeds: range, processes: int | None) -> int:
    began = told = time.monotonic()
    totals = Totals.none()
    for totals in run_many(seeds, processes):
        if time.monotonic() - told > 30:
            told = time.monotonic()
            _print(f"{totals.seeds} seeds, {len(totals.violations)} of them wrong")
    for event, count in sorted(totals.events.items()):
        _print(f"{count:>12,}  {event}")
    for seed, wrong in sorted(totals.violations.items()):
        _print(f"seed {seed}: {wrong[0]}\n    {replay_command(seed)}")
    _print(
        f"{totals.seeds:,} seeds, {totals.records:,} records, {totals.steps:,} steps in "
        f"{time.monotonic() - began:.0f} s: {len(totals.violations)} wrong"
    )
    return bool(totals.violations) or totals.events["died"] > 0


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
