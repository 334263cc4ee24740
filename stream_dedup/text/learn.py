"""Learns from a corpus what cleaning needs to know: which lines are boilerplate."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from pathlib import Path

import numpy as np

from stream_dedup.runs import begins_of_runs
from stream_dedup.settings import Settings
from stream_dedup.text.boilerplate import NO_LINE, Boilerplate, Learned, line_keys
from stream_dedup.text.clean import Cleaner, steps_before_boilerplate
from stream_dedup.text.counting import RUN_KEYS, KeyCounter
from stream_dedup.types import Document


class BoilerplateLearner:
    """Counts, for each origin, in how many of its documents a line occurs.

    Memory is bound, but for some hundred bytes for each origin (see ``counting``).

    Args:
        settings: of which the steps before ``boilerplate`` are applied to every document.
        folder: an empty folder for what memory does not hold; the caller removes it.
        run_keys: lines that are held in memory at most.
    """

    def __init__(self, settings: Settings, folder: Path, run_keys: int = RUN_KEYS) -> None:
        self._steps = steps_before_boilerplate(settings)
        before = settings.model_copy(update={"clean": self._steps, "boilerplate_file": None})
        self._clean = Cleaner(before).clean
        self._lines = KeyCounter(folder, run_keys)
        self._numbers: dict[str, int] = {}  # of the origins
        self._documents: list[int] = []

    @property
    def documents(self) -> int:
        """Documents read so far."""
        return sum(self._documents)

    @property
    def origins(self) -> int:
        """Origins met so far."""
        return len(self._documents)

    def add(self, documents: Sequence[Document]) -> None:
        """Count the lines of documents, each line once for each document."""
        origins = [document.origin for document in documents]
        numbers = [self._number(origin) for origin in origins]
        for number in numbers:
            self._documents[number] += 1
        texts = self._clean([document.text for document in documents], origins)
        lines = [text.splitlines() for text in texts]
        keys = line_keys(lines, origins)
        rows = np.repeat(np.arange(len(lines)), [len(own) for own in lines])
        order = np.lexsort((keys, rows))
        keys, rows = keys[order], rows[order]
        first = begins_of_runs(keys, rows) & (keys != NO_LINE)
        self._lines.add(keys[first], np.array(numbers, np.uint32)[rows[first]])

    def learn(self, min_documents: int, min_share: float) -> Boilerplate:
        """Return the lines that enough documents of their origin have.

        Args:
            min_documents: least number of them.
            min_share: least share of the origin's documents.
        """
        least = np.array(
            [max(min_documents, ceil(min_share * count)) for count in self._documents], np.uint64
        )
        keys, lines = [], np.zeros(len(least), np.int64)
        for part in self._lines.counts():
            enough = part.counts >= least[part.groups]
            keys.append(part.keys[enough].astype("<u8").tobytes())
            lines += np.bincount(part.groups[enough], minlength=len(least))
        return Boilerplate(
            steps=self._steps,
            min_documents=min_documents,
            min_share=min_share,
            origins={
                _shown(origin): Learned(self._documents[number], int(lines[number]))
                for origin, number in self._numbers.items()
                if lines[number]
            },
            keys=b"".join(keys),
        )

    def _number(self, origin: str) -> int:
        number = self._numbers.setdefault(origin, len(self._documents))
        if number == len(self._documents):
            self._documents.append(0)
        return number


def _shown(origin: str) -> str:
    """Return a name that can be written: a lone surrogate cannot."""
    return origin.encode("utf-8", "backslashreplace").decode()
