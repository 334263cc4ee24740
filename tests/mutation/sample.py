"""A sample of mutants: from each module and each kind of mistake its share, drawn by a seed."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence

from tests.mutation.mutant import Mutant


def sample(mutants: Sequence[Mutant], size: int, seed: int) -> list[Mutant]:
    """Return ``size`` mutants, or all if there are no more, in the order of ``mutants``.

    Each module and operator has its share, rounded up or down. Which shares are rounded up, and
    which mutants are taken, follows from the seed.
    """
    if size >= len(mutants):
        return list(mutants)
    rng = random.Random(seed)
    strata: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number, mutant in enumerate(mutants):
        strata[mutant.path, mutant.operator].append(number)
    taken, left = [], []
    for members in strata.values():
        rng.shuffle(members)
        whole = size * len(members) // len(mutants)
        taken += members[:whole]
        left.append((size * len(members) / len(mutants) - whole, members[whole]))
    rng.shuffle(left)  # so that equal remainders have equal chances
    left.sort(reverse=True, key=lambda one: one[0])
    taken += [number for _, number in left[: size - len(taken)]]
    return [mutants[number] for number in sorted(taken)]
