"""Whose turn it is to label which pair."""

from __future__ import annotations

import time
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from stream_dedup.errors import InputError

#: One pair in so many is for two labellers; one in so many that a labeller is shown is one that
#: somebody else has labelled, as long as there are any.
SHARED_EVERY = 3
#: Characters of a labeller's name.
LONGEST_NAME = 40
#: Seconds for which a pair that is shown to one labeller is not shown to another.
_HELD_SECONDS = 300.0


class Waiting(NamedTuple):
    """A pair that a labeller could be shown.

    Attributes:
        id: its number.
        stratum: name of its stratum.
        shared: whether two labellers should see it.
        labellers: how many have.
        mine: whether this labeller has.
    """

    id: int
    stratum: str
    shared: bool
    labellers: int
    mine: bool


class Turns:
    """Keeps two labellers from being shown the same pair at a time."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[str, float]] = {}

    def held(self) -> list[int]:
        """Return the pairs that are being shown to somebody."""
        now = time.monotonic()
        self._held = {pair: held for pair, held in self._held.items() if held[1] > now}
        return list(self._held)

    def hold(self, pair: int, labeller: str) -> None:
        """Show a pair to a labeller, and no other with it."""
        self.release(labeller)
        self._held[pair] = (labeller, time.monotonic() + _HELD_SECONDS)

    def release(self, labeller: str) -> None:
        """Forget what is being shown to a labeller."""
        self._held = {pair: held for pair, held in self._held.items() if held[0] != labeller}

    def take(self, labeller: str, pairs: Sequence[Waiting], strata: Sequence[str]) -> int | None:
        """Choose the pair that a labeller is shown next; None when there is none left.

        It is the one that they are being shown, until they label it. Every so often it is one that
        somebody else has labelled, so that agreement can be measured; else the first that nobody
        has labelled of the first stratum that has any.

        Args:
            labeller: their name.
            pairs: all pairs.
            strata: names of the strata, the one where a label tells most first.
        """
        others = set(self.held())
        unseen = {pair.id for pair in pairs if not pair.mine}
        mine = [pair for pair in others & unseen if self._held[pair][0] == labeller]
        again = [pair.id for pair in pairs if pair.shared and pair.labellers == 1 and not pair.mine]
        fresh: dict[str, list[int]] = {}
        for pair in pairs:
            if not pair.labellers:
                fresh.setdefault(pair.stratum, []).append(pair.id)
        first = [pair for stratum in strata for pair in fresh.get(stratum, [])]
        given = sum(pair.mine for pair in pairs)
        due = given % SHARED_EVERY == SHARED_EVERY - 1
        ordered = [*again, *first] if due else [*first, *again]
        chosen = next(iter([*mine, *(pair for pair in ordered if pair not in others)]), None)
        if chosen is not None:
            self.hold(chosen, labeller)
        return chosen


def checked_name(name: str) -> str:
    """Return a labeller's name in its one spelling.

    Raises:
        InputError: it is none: empty, too long, or with characters that cannot be seen.
    """
    # Normalisation takes long for many marks, and no more than four characters become one.
    some = " ".join(name.split())[: 4 * LONGEST_NAME + 1]
    tidy = " ".join(unicodedata.normalize("NFC", some).split())
    if not 0 < len(tidy) <= LONGEST_NAME or not tidy.isprintable():
        msg = f"A name has 1 to {LONGEST_NAME} characters that can be seen. Choose another name."
        raise InputError(msg)
    return tidy
