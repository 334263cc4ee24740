"""What became of mutants, as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tests.mutation.mutant import Mutant, read
from tests.mutation.targets import TARGETS
from tests.mutation.trial import Trial

_OUTCOMES = ("killed", "timed out", "survived", "equivalent")


class Run(NamedTuple):
    """A run over a sample.

    Attributes:
        date: day of the run.
        seed: of the sample.
        every: number of all mutants.
        trials: what became of those that were tried.
        known: those of the sample that are known to be equivalent, with the reason.
    """

    date: str
    seed: int
    every: int
    trials: Sequence[Trial]
    known: Mapping[Mutant, str]

    @property
    def counts(self) -> Counter[str]:
        """Number of mutants by outcome."""
        return Counter([*(one.outcome for one in self.trials), *["equivalent"] * len(self.known)])

    @property
    def share(self) -> float:
        """Share of the tried mutants that tests noticed."""
        return 1 - self.counts["survived"] / max(1, len(self.trials))


def report(run: Run) -> str:
    """Return the report."""
    counts = run.counts
    size = len(run.trials) + len(run.known)
    drawn = "all" if size == run.every else f"a sample of {size} (seed {run.seed}) of all"
    head = f"""# Mutants of the claim protocol and the transaction loop, {run.date}

Tried: {drawn} {run.every:,} mutants; `python -m tests.mutation` makes this page.

**{100 * run.share:.1f} % are noticed**: {counts["killed"]} killed by a test and
{counts["timed out"]} because it did not end, of {len(run.trials)}; {counts["survived"]} survived.
{counts["equivalent"]} more are known to be equivalent.
"""
    whys = {target.path: target.why for target in TARGETS}
    parts = [
        head.splitlines(),
        ["", "## By module", "", *_table(run, lambda one: one.path), ""],
        [f"- `{path}`: {why}" for path, why in whys.items()],
        ["", "## By kind of mistake", "", *_table(run, lambda one: one.operator), ""],
        ["## By what noticed them", "", *_rungs(run.trials), ""],
        ["## Survivors", "", *_survivors(run.trials)],
        ["## Equivalent", "", *_equivalent(run.known)],
    ]
    return "\n".join(line for part in parts for line in part).rstrip() + "\n"


def _table(run: Run, key: Callable[[Mutant], str]) -> Iterator[str]:
    rows: dict[str, Counter[str]] = {}
    for trial in run.trials:
        assert trial.mutant is not None
        rows.setdefault(key(trial.mutant), Counter())[trial.outcome] += 1
    for mutant in run.known:
        rows.setdefault(key(mutant), Counter())["equivalent"] += 1
    yield f"| | {' | '.join(_OUTCOMES)} | noticed |"
    yield f"| --- |{' ---: |' * (len(_OUTCOMES) + 1)}"
    for name, counts in sorted(rows.items()):
        tried = counts.total() - counts["equivalent"]
        share = f"{100 * (1 - counts['survived'] / tried):.0f} %" if tried else ""
        yield f"| {name} | {' | '.join(str(counts[one]) for one in _OUTCOMES)} | {share} |"


def _rungs(trials: Iterable[Trial]) -> Iterator[str]:
    counts = Counter(trial.rung for trial in trials if trial.rung)
    yield "| tried | mutants |"
    yield "| --- | ---: |"
    for name, count in counts.most_common():
        yield f"| {name} | {count} |"


def _survivors(trials: Iterable[Trial]) -> Iterator[str]:
    survivors = [trial.mutant for trial in trials if trial.mutant and not trial.rung]
    if not survivors:
        yield "None."
        yield ""
    for mutant in survivors:
        source = read(mutant.path)
        place = f"{mutant.path}:{mutant.line_number(source)}"
        yield f"{place}, {mutant.function or 'module'}: {mutant.operator}"
        yield ""
        yield "```diff"
        yield mutant.diff(source)
        yield "```"
        yield ""


def _equivalent(known: Mapping[Mutant, str]) -> Iterator[str]:
    if not known:
        yield "None in this sample."
    for mutant, reason in known.items():
        source = read(mutant.path)
        place = f"{mutant.path}:{mutant.line_number(source)}"
        yield f"- {place}: `{mutant.line(source)}` → `{mutant.mutated_line(source)}`. {reason}"
