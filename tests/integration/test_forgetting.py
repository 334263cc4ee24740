"""One contract, every index: what it forgets is gone, and what it sweeps is of no more use."""

from __future__ import annotations

import random
from collections.abc import Sequence
from unittest import mock

import pytest

from stream_dedup import Decision, Deduplicator, Document, Settings, Status
from stream_dedup.index.rounds import Round
from tests.integration.test_index import Make, make, on_redis
from tests.models.sequential import (
    answers_of,
    awkward_settings,
    awkward_stream,
    batches,
    decide_by_brute_force,
)

__all__ = ["make"]

#: An index that is swept soon, and whose claims are old soon.
SMALL = {"expected_originals": 1_000, "longest_attempt": 0.001}

TEXT = "a text of some words that comes again and again, more or less as it is"


def statuses(deduplicator: Deduplicator, documents: Sequence[Document]) -> list[Status]:
    return [decision.status for decision in deduplicator.decide(documents)]


def test_a_forgotten_document_matches_nothing_and_the_next_duplicate_is_an_original(
    make: Make,
) -> None:
    with make(Settings()) as deduplicator:
        before = statuses(deduplicator, [Document("a", TEXT), Document("b", TEXT)])
        forgotten = deduplicator.index.forget(["b", "a", "nobody", "a"])

        after = statuses(deduplicator, [Document("c", TEXT), Document("d", TEXT)])

        assert before == after == [Status.ORIGINAL, Status.EXACT_DUPLICATE]
        assert forgotten == [0, 1, 0, 0]
        assert deduplicator.index.forget(["a", "c"]) == [0, 1]


def test_a_number_and_its_digits_are_two_ids(make: Make) -> None:
    with make(Settings()) as deduplicator:
        deduplicator.decide(
            [Document(7, TEXT), Document("7", "quite another text, of no one else")]
        )

        assert deduplicator.index.forget([7]) == [1]
        assert statuses(deduplicator, [Document(8, TEXT)]) == [Status.ORIGINAL]
        assert deduplicator.index.forget(["7"]) == [1]


def test_originals_are_found_by_their_ids_and_forgotten_by_their_texts(make: Make) -> None:
    texts = [TEXT, "quite another text, of no one else", "and a third one that none resembles"]
    with make(Settings()) as deduplicator:
        deduplicator.decide([Document("a", text, source=text) for text in texts])
        index = deduplicator.index
        digests = [one.digest for one in index.named(["a"])[0]]

        assert len(set(digests)) == 3
        assert index.forget(["a"], [digests[1]]) == [1]
        assert [one.digest for one in index.named(["b", "a"])[1]] == [digests[0], digests[2]]
        assert index.forget(["a"]) == [2]
        assert index.named(["a"]) == [[]]


def test_who_comes_again_is_entered_under_its_id_again(redis_url: str) -> None:
    """Whoever registered it may have died between the two."""
    with on_redis(Settings(partitions=4), redis_url) as deduplicator:
        with mock.patch.object(Round, "note"):
            deduplicator.decide([Document("a", TEXT)])
        assert deduplicator.index.forget(["a"]) == [0]

        assert statuses(deduplicator, [Document("a", TEXT)]) == [Status.ORIGINAL]

        assert deduplicator.index.forget(["a"]) == [1]


@pytest.mark.parametrize("seed", range(6))
def test_what_is_left_decides_as_brute_force_does(make: Make, seed: int) -> None:
    rng = random.Random(seed)
    settings = awkward_settings(rng)
    documents = awkward_stream(rng, 120)
    parts = list(batches(rng, documents))
    forgotten: dict[int, list[str | int]] = {}
    decided: list[Decision] = []

    with make(settings) as deduplicator:
        for part in parts:
            if rng.random() < 0.5:
                ids = [one.id for one in rng.choices(documents, k=rng.choice([1, 5, 40]))]
                deduplicator.index.forget(ids)
                forgotten[len(decided)] = ids
            decided += deduplicator.decide(part)

    assert answers_of(decided) == decide_by_brute_force(settings, documents, forgotten=forgotten)


@pytest.mark.parametrize("renew", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_sweeps_change_no_decision_about_documents_in_time(
    make: Make, seed: int, *, renew: bool
) -> None:
    rng = random.Random(seed)
    changes = {"window": 30.0, "lateness": 20.0, "renew": renew} | SMALL
    settings = awkward_settings(rng).model_copy(update=changes)
    late = [
        Document(one.id, one.text, number + rng.uniform(0.0, 20.0), source=one.source)
        for number, one in enumerate(awkward_stream(rng, 200))
    ]
    decided: list[Decision] = []
    ends, expired = [], 0

    with make(settings) as deduplicator:
        for start in range(0, len(late), 15):
            decided += deduplicator.decide(late[start : start + 15])
            ends.append(len(decided))
            if rng.random() < 0.4:
                expired += deduplicator.index.sweep().expired

    assert answers_of(decided) == decide_by_brute_force(settings, late, batch_ends=ends)
    assert expired > 0


def test_a_time_from_the_future_expires_nothing_before_the_clock_does(make: Make) -> None:
    settings = Settings(window=60.0, lateness=60.0).model_copy(update=SMALL)
    with make(settings) as deduplicator:
        deduplicator.decide([Document("a", TEXT, time=1_700_000_000.0)])
        deduplicator.decide([Document("b", "a text of the year 2200 or so", time=7.3e9)])
        deduplicator.decide([Document("c", "a text of a later day", time=1_700_000_000.0)])

        swept = deduplicator.index.sweep()

    # The clock, and an hour: what is older than that by window and lateness has expired.
    assert (swept.expired, swept.originals) == (2, 1)


def test_a_second_sweep_finds_nothing(make: Make) -> None:
    settings = Settings(window=10.0, lateness=10.0).model_copy(update=SMALL)
    documents = [
        Document(n, f"text {n} " + " ".join(str(n * k) for k in range(9)), float(n))
        for n in range(100)
    ]
    with make(settings) as deduplicator:
        deduplicator.decide(documents)
        deduplicator.index.forget([99, 98])

        first, second = deduplicator.index.sweep(), deduplicator.index.sweep()

    assert (first.expired, first.originals) == (79, 19)
    assert second == (0, 0, 0, 19)
