"""From bytes to a decision, nothing takes more than linear time, whatever a message repeats.

So does what shows texts to people: an explanation, the review page.
"""

from __future__ import annotations

import json
from contextlib import suppress

import pytest

from stream_dedup import Document, Measure, Settings
from stream_dedup.deduplicator import Stages
from stream_dedup.errors import InputError
from stream_dedup.explain import compare
from stream_dedup.review.diff import compare_texts
from stream_dedup.review.turns import checked_name
from tests.hostile.growth import (
    CHARACTERS,
    LARGE,
    SHAPES,
    WAYS,
    Make,
    align,
    colliding,
    decide,
    growth,
    pairs,
)

#: Bytes of the messages that are measured; each is four times the one before.
SIZES = (16_000, 64_000, 256_000)


TEXTS = CHARACTERS | SHAPES


def text_of(value: bytes) -> str:
    return str(json.loads(value)["text"])


@pytest.mark.parametrize(("way", "name"), list(pairs()))
def test_four_times_the_bytes_do_not_take_ten_times_as_long(way: str, name: str) -> None:
    make = WAYS[way][1][name]

    assert growth(decide(way), make, SIZES) < LARGE


@pytest.mark.parametrize("measure", [Measure.LCS, Measure.EDIT])
def test_nor_does_the_alignment_of_two_texts(measure: Measure) -> None:
    """It is quadratic in what is kept of a text, which is less than the least of these sizes."""
    assert growth(align(measure), lambda size: colliding(size).encode(), (32_000, 128_000)) < LARGE


@pytest.mark.parametrize("make", TEXTS.values(), ids=TEXTS)
def test_nor_does_comparing_on_the_review_page(make: Make) -> None:
    def step(value: bytes) -> None:
        text = text_of(value)
        compare_texts(text, text[len(text) // 2 :] + " z", cells=10_000)

    assert growth(step, make, SIZES[:2]) < LARGE


def test_nor_does_it_where_each_cut_leaves_nearly_all() -> None:
    """Of the runs that cut two texts only one is unique, and the next one behind its place."""

    def make(size: int) -> bytes:
        names = (f"r{n}" for i in range(1, size // 40) for n in (i + 1, i))
        return " ".join(f"z z z {name} z z z p" for name in names).encode()

    def step(value: bytes) -> None:
        text = value.decode()
        compare_texts(text, text.replace("p", "q"), cells=10_000)

    assert growth(step, make, SIZES) < LARGE


@pytest.mark.parametrize("unit", ["a b ", "a b a c a d a ", "a\u0301\u0316 "])
def test_nor_does_an_explanation(unit: str) -> None:
    """Two thousand words of each are aligned; the last of these sizes has more."""
    stages = Stages(Settings())

    def step(value: bytes) -> None:
        text = value.decode()
        compare(stages, Document("a", text), Document("b", f"b {text[::-1]}"))

    assert growth(step, lambda size: (unit * (size // len(unit))).encode(), SIZES[:2]) < LARGE


def test_nor_does_the_name_of_a_labeller() -> None:
    def step(value: bytes) -> None:
        with suppress(InputError):
            checked_name(text_of(value))

    assert growth(step, CHARACTERS["combining marks of two classes"], SIZES) < LARGE
