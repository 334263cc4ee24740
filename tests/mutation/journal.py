"""What became of mutants, line by line, so that a run can go on where another was ended.

Who was noticed once is not tried again: tests are added, seldom taken away. Who survived is, unless
it is asked not to.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from tests.mutation.mutant import Mutant, read
from tests.mutation.trial import Trial


class Journal:
    """A file of trials; one that is not there yet is empty."""

    def __init__(self, file: Path) -> None:
        self._file = file
        lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
        self._known = {key: (rung, failed) for key, rung, failed in map(json.loads, lines)}

    def known(self, mutant: Mutant, *, survivors: bool) -> Trial | None:
        """Return what became of a mutant of the code as it is, None if it is to be tried.

        Args:
            mutant: of the code as it is.
            survivors: whether those that survived are not tried again either.
        """
        rung, failed = self._known.get(_key(mutant), ("", None))
        if failed is None or (not rung and not survivors):
            return None
        return Trial(mutant, rung, failed, ())

    def add(self, trial: Trial) -> None:
        """Write a trial down."""
        assert trial.mutant is not None
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps([_key(trial.mutant), trial.rung, trial.failed]) + "\n")


def _key(mutant: Mutant) -> str:
    source = hashlib.sha256(read(mutant.path).encode()).hexdigest()[:12]
    return f"{mutant.path} {source} {mutant.start} {mutant.end} {mutant.replacement}"
