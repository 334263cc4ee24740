"""The calls of many documents, gathered for one round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from stream_dedup.index.claims import (
    Call,
    Fate,
    Forget,
    Pause,
    Probe,
    Put,
    Read,
    Register,
    Registered,
    Settle,
    Sight,
    Withdraw,
)
from stream_dedup.index.registrations import Registrations

#: Claims seen under each table key of a document.
Seen = list[list[int]]


class Gathered:
    """The calls of many rows, as lists of rows for one round, and where their replies will be."""

    def __init__(self) -> None:
        self.puts: list[tuple[int, int]] = []
        self.probes: list[tuple[int, int, int, int]] = []
        self.reads: list[tuple[int, int]] = []
        self.registers: list[tuple[int, int, Sequence[int]]] = []
        self.settles: list[tuple[int, int, int]] = []
        self.withdraws: list[tuple[int, int, int]] = []
        self.forgets: list[int] = []
        self.seen: Seen = []
        self.sights: list[Sight] = []
        self.registered = Registrations(0)
        self.put: npt.NDArray[np.uint8] = np.zeros(0, np.uint8)
        self.standing: npt.NDArray[np.uint8] = np.zeros(0, np.uint8)

    def add(self, row: int, call: Call) -> Callable[[], Any]:
        """Add a call; the returned function gives its reply once the round is done."""
        match call:
            case Put(claim):
                at = len(self.puts)
                self.puts.append((row, claim))
                return lambda: Fate(int(self.put[at]))
            case Probe(claim, tables, mode):
                seen = slice(len(self.probes), len(self.probes) + len(tables))
                self.probes += [(row, table, claim, mode) for table in tables]
                return lambda: self.seen[seen]
            case Read(claims):
                read = slice(len(self.reads), len(self.reads) + len(claims))
                self.reads += [(row, claim) for claim in claims]
                return lambda: self.sights[read]
            case Register(claim, _, known):
                at = len(self.registers)
                self.registers.append((row, claim, known))
                return lambda: self._registration(at)
            case Settle(claim, fate):
                at = len(self.settles)
                self.settles.append((row, claim, fate))
                return lambda: Fate(int(self.standing[at]))
            case Withdraw(claim, tables):
                self.withdraws += [(row, table, claim) for table in tables]
            case Forget(claim):
                self.forgets.append(claim)
            case Pause():
                pass
        return lambda: None

    def _registration(self, at: int) -> Registered:
        fate = int(self.registered.fates[at])
        if fate in {Registrations.MET, Registrations.FULL}:
            rows, claims = self.registered.pairs
            seen = claims[rows == at].tolist() if fate == Registrations.MET else ()
            return Registered(Fate.ABSENT, tuple(sorted(seen)))
        return Registered(Fate(fate))


def columns(rows: Sequence[tuple[int, ...]], count: int) -> list[npt.NDArray[np.int64]]:
    """Turn rows into columns; claim ids stay below 2^63, so int64 holds them."""
    table = np.array(rows, np.int64).reshape(len(rows), count)
    return [table[:, column] for column in range(count)]
