"""When an index is swept makes no difference, as long as no document is later than ``lateness``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dedup import Decision, Deduplicator, Document, Settings
from stream_dedup.index import registry

WORDS = [f"w{number}" for number in range(12)]


class Step(NamedTuple):
    """A document, and what happens before it.

    Attributes:
        ahead: seconds from the watermark, at least minus the lateness.
        base: which of a few texts it is a copy of.
        edits: words that are changed.
        swept: whether the index is swept before it.
        cut: whether a batch begins with it.
    """

    ahead: float
    base: int
    edits: list[tuple[int, int]]
    swept: bool
    cut: bool


STEPS = st.lists(
    st.builds(
        Step,
        st.floats(-20, 15).map(lambda seconds: round(seconds, 1)),
        st.integers(0, 2),
        st.lists(st.tuples(st.integers(0, 11), st.integers(0, 3)), max_size=3),
        st.booleans(),
        st.booleans(),
    ),
    min_size=1,
    max_size=80,
)


def documents_of(steps: Sequence[Step]) -> list[Document]:
    watermark = 1000.0
    documents = []
    for number, step in enumerate(steps):
        time = watermark + step.ahead
        words = [f"{word}-{step.base}" for word in WORDS]
        for place, word in step.edits:
            words[place] = f"x{word}"
        documents.append(Document(number, " ".join(words), time, str(number)))
        watermark = max(watermark, time)
    return documents


def decide(chosen: Settings, steps: Sequence[Step], *, sweeps: bool) -> list[Decision]:
    documents = documents_of(steps)
    starts = [n for n, step in enumerate(steps) if n == 0 or step.cut or step.swept]
    decisions = []
    with Deduplicator(chosen) as deduplicator:
        for start, end in zip(starts, [*starts[1:], len(steps)], strict=True):
            if sweeps and steps[start].swept:
                deduplicator.sweep()
            decisions += deduplicator.decide(documents[start:end])
        assert deduplicator.index.late == 0
    return decisions


@settings(max_examples=60, deadline=None)
@given(STEPS, st.booleans(), st.sampled_from([1, 1 << 12]))
def test_a_swept_index_decides_like_one_that_never_was(
    steps: list[Step], renew: bool, min_rows: int
) -> None:
    chosen = Settings(window=30.0, lateness=20.0, renew=renew, threshold=0.4, shingle="word:1")
    expected = decide(chosen, steps, sweeps=False)

    # With 1 it also moves its rows at every opportunity.
    with patch.object(registry, "_MIN_ROWS", min_rows):
        assert decide(chosen, steps, sweeps=True) == expected
