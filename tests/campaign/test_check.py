"""The brute-force check finds whatever is broken in an output."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.campaign.check import Answer, Check, Sent, kinds
from tests.campaign.shingles import Texts

RNG = random.Random(3)
WORDS = [f"word{number}" for number in range(5000)]


def text() -> list[str]:
    return RNG.choices(WORDS, k=150)


ONE, OTHER = text(), text()
NEAR = [*ONE[:70], "changed", *ONE[71:]]
SENT = [
    Sent((0, 0), "a", "a"),
    Sent((1, 0), "b", "a"),
    Sent((0, 1), "c", "a"),
    Sent((1, 1), "d", "d"),
    Sent((0, 2), None, None, "not_json"),
]
ANSWERS = [
    Answer((0, 0), "a", " ".join(ONE), "original", "n1", "a"),
    Answer((1, 0), "b", " ".join(NEAR), "near_duplicate", "n1", "a"),
    Answer((0, 1), "c", " ".join(ONE).upper(), "exact_duplicate", "n1", "a"),
    Answer((1, 1), "d", " ".join(OTHER), "original", "n2", "d"),
]
DEAD = [((0, 2), "not_json")]


def found(answers: list[Answer], dead: list[tuple[tuple[int, int], str]]) -> dict[str, int]:
    check = Check()
    for sent in SENT:
        check.take_sent(sent)
    for answer in answers:
        check.take_answer(answer)
    for place, reason in dead:
        check.take_dead(place, reason)
    return kinds(check.violations())


def changed(number: int, **fields: object) -> Callable[[], dict[str, int]]:
    """Break one answer."""
    broken = [*ANSWERS]
    broken[number] = broken[number]._replace(**fields)  # type: ignore[arg-type]
    return lambda: found(broken, DEAD)


def test_nothing_is_found_where_all_is_well() -> None:
    assert found(ANSWERS, DEAD) == {}


@pytest.mark.parametrize(
    ("broken", "kind"),
    [
        (lambda: found(ANSWERS[:3], DEAD), "lost"),
        (lambda: found(ANSWERS, []), "lost"),
        (lambda: found([*ANSWERS, ANSWERS[3]], DEAD), "doubled"),
        (lambda: found(ANSWERS, [*DEAD, *DEAD]), "doubled"),
        (lambda: found(ANSWERS, [*DEAD, ((1, 1), "refused")]), "doubled"),
        (lambda: found([*ANSWERS, ANSWERS[3]._replace(place=(7, 7))], DEAD), "unknown"),
        (changed(1, id="c"), "mistaken"),
        (lambda: found(ANSWERS, [((0, 2), "refused")]), "mistaken"),
        (lambda: found(ANSWERS[1:], [*DEAD, ((0, 0), "not_json")]), "mistaken"),
        (changed(1, status="original", original_id="b"), "near originals"),
        (changed(0, duplicate_id="n9"), "dangling"),
        (changed(1, original_id="nobody"), "dangling"),
        (changed(0, status="exact_duplicate"), "dangling"),
        (changed(3, original_id="a"), "dangling"),
        (changed(1, duplicate_id="n2", original_id="d"), "not near"),
        (changed(1, status="exact_duplicate"), "not exact"),
        (changed(2, status="near_duplicate"), "not exact"),
        (changed(1, status="original", original_id="b", duplicate_id="n3"), "divided"),
        (changed(1, duplicate_id="n3"), "divided"),
        (changed(3, duplicate_id="n1"), "merged"),
    ],
)
def test_what_is_broken_is_found(broken: Callable[[], dict[str, int]], kind: str) -> None:
    assert kind in broken()


def test_near_pairs_are_those_that_a_comparison_of_all_finds() -> None:
    rng = random.Random(11)
    texts, bases = Texts(), [rng.choices(WORDS[:300], k=rng.randint(5, 60)) for _ in range(12)]
    for base in bases:
        for edits in range(8):
            words = [*base]
            for _ in range(edits):
                words[rng.randrange(len(words))] = rng.choice(WORDS)
            texts.add(" ".join(words))
    numbers = range(len(texts))

    pairs = [
        (one, other)
        for one in numbers
        for other in range(one + 1, len(texts))
        if texts.resemblance(one, other) >= 0.5
    ]

    assert len(pairs) > 20
    assert texts.near_pairs(numbers, 0.5) == pairs
