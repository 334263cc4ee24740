"""``python -m tests.mutation``: try a sample of mutants, and write down what became of them."""

from __future__ import annotations

import argparse
import datetime
import os
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

# Before numpy is loaded: what has threads cannot be forked.
os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")

from tests.mutation.equivalent import StaleError, load, reasons
from tests.mutation.journal import Journal
from tests.mutation.mutant import Mutant, read
from tests.mutation.report import Run, report
from tests.mutation.rungs import Rung
from tests.mutation.sample import sample
from tests.mutation.targets import all_mutants, target_of
from tests.mutation.trial import (
    Spent,
    Task,
    Trial,
    limits_of,
    try_mutants,
)

#: Share of the mutants that must be noticed.
_WANTED = 0.9


def main() -> int:
    """Try mutants; fail where too few are noticed."""
    asked = _arguments()
    every = all_mutants()
    try:
        known = reasons(every, load())
    except StaleError as error:
        _print(str(error))
        return 2
    size = len(every) if asked.mutants == "all" else int(asked.mutants)
    drawn = sample(every, size, asked.seed)
    chosen = [one for one in drawn if asked.only in f"{one.path}:{one.function}"]
    if asked.list:
        for mutant in chosen:
            _print(_told(mutant))
        return 0
    began = time.monotonic()
    trials = _try([one for one in chosen if one not in known], asked)
    if trials is None:
        return 2
    places = {mutant: number for number, mutant in enumerate(every)}
    trials.sort(key=lambda one: places[one.mutant] if one.mutant else -1)
    skipped = {one: known[one] for one in chosen if one in known}
    date = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
    run = Run(date, asked.seed, len(every), trials, skipped)
    if asked.output:
        asked.output.write_text(report(run), encoding="utf-8")
    _print(
        f"{100 * run.share:.1f} % noticed: {dict(run.counts)}, in {time.monotonic() - began:.0f} s"
    )
    return int(run.share < _WANTED)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.mutation", description=__doc__)
    parser.add_argument("--mutants", default="300", help="size of the sample, or all")
    parser.add_argument("--seed", type=int, default=9, help="of the sample")
    parser.add_argument("--processes", type=int, default=2, help="mutants that are tried at once")
    parser.add_argument("--only", default="", help="of these, those with this in file:function")
    parser.add_argument("--output", type=Path, help="file for the report")
    parser.add_argument("--journal", type=Path, help="file to go on from, and to add to")
    parser.add_argument("--keep", action="store_true", help="nor try its survivors again")
    parser.add_argument("--list", action="store_true", help="list them only")
    return parser.parse_args()


def _try(mutants: Sequence[Mutant], asked: argparse.Namespace) -> list[Trial] | None:
    """Try mutants; None where tests fail without one."""
    journal = Journal(asked.journal) if asked.journal else None
    trials, left = [], defaultdict(list)
    for mutant in mutants:
        known = journal.known(mutant, survivors=asked.keep) if journal else None
        if known is None:
            _check(mutant)
            left[mutant.path].append(mutant)
        else:
            trials.append(known)
    count = sum(map(len, left.values()))
    limits: dict[tuple[Rung, ...], list[Spent]] = {}
    for path, some in left.items():
        rungs = target_of(some[0]).rungs
        if rungs not in limits:
            (untouched,) = try_mutants(path, [Task(None, rungs)], 1)
            _tell_untouched(untouched, rungs)
            if untouched.rung:
                return None
            limits[rungs] = limits_of(untouched)
        tasks = [Task(one, rungs, limits[rungs]) for one in some]
        for trial in try_mutants(path, tasks, asked.processes):
            trials.append(trial)
            if journal:
                journal.add(trial)
            _tell(trial, f"{len(trials) - len(mutants) + count}/{count}")
    return trials


def _check(mutant: Mutant) -> None:
    """Make sure that a mutant is Python; that they are Lua is tested on a Redis."""
    if mutant.path.endswith(".py"):
        compile(mutant.apply(read(mutant.path)), mutant.path, "exec")


def _tell_untouched(trial: Trial, rungs: Sequence[Rung]) -> None:
    if trial.rung:
        _print(f"Without a mutant {trial.rung} fails: {trial.failed}. Mend that first.")
        return
    times = (
        f"{rung.name}: {spent.clock:.1f} s ({spent.processor:.1f} s of the processor)"
        for rung, spent in zip(rungs, trial.spent, strict=True)
    )
    _print(f"without a mutant: {', '.join(times)}")


def _told(mutant: Mutant) -> str:
    source = read(mutant.path)
    place = f"{mutant.path}:{mutant.line_number(source)}:{mutant.function}"
    return f"{place} {mutant.operator}: {mutant.line(source)} -> {mutant.mutated_line(source)}"


def _tell(trial: Trial, progress: str) -> None:
    assert trial.mutant is not None
    by = f"{trial.rung}: {trial.failed}" if trial.rung else "by nothing"
    _print(f"{progress} {trial.outcome} ({by}) {_told(trial.mutant)}")


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
