"""Batches of text give what each text alone gives, by definition."""

from __future__ import annotations

import re
import unicodedata
from itertools import groupby

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dedup.fingerprint.hashing import shingle_keys
from stream_dedup.text.characters import IGNORABLE, SEPARATOR, SINGLE, characters
from stream_dedup.text.normalize import drop_punctuation, nfkc_casefold, normalize
from stream_dedup.text.shingles import Shingles, char_shingles, word_shingles

SPECIAL = (
    "aB1_ .,-\t\n\x00\x1c\x1e\x1f\x85\xa0\u3000\u2028"  # white space of every kind
    "ßﬁİΣς½¨ſ"  # characters that grow or depend on others
    "\u0301\u0308\u0327\u0345\u093c\u3099"  # marks that combine and change places
    "\u0e33\u0eb3\u0e49"  # Thai and Lao SARA AM, and a tone mark it must pass
    "\u1100\u1161\u11a8가각"  # Hangul, in parts and whole
    "ＡｶﾞﾞÅ㌔"  # compatibility forms
    "\u00ad\u200b\u200c\u200d\u2060\ufe0f\ufeff\u3164"  # invisible
    "\ud83d\ude00\U0001f600\U0001f469"  # lone surrogates, emoji
    "中文漢字ひらカナไทยສະမြန်ខ្មែ한국어العربيةहिन्दी"
    "\u0378\U000e0080\U0010ffff"  # not assigned
)
CHARACTERS = st.one_of(st.sampled_from(SPECIAL), st.characters(), st.sampled_from("ab "))
TEXTS = st.text(CHARACTERS, max_size=40)
BATCHES = st.lists(TEXTS, max_size=8)
#: Every mark, by its combining class, and what falls apart into marks or a letter and marks.
MARKS = [
    chr(code)
    for code in np.flatnonzero(characters().assigned).tolist()
    if unicodedata.combining(chr(code))
]
FALLING_APART = "\u0344\u0345\u0f73\u0f81\u0390\u1e69\u1f82\u0958\uff9e\ufdfa\U0001d160"
STARTERS = "aqΣα가\u1100\u1161\u11a8\u09c7\u09be ﬁ…\u200b"
RUNS = st.builds(
    lambda chars, times: "".join(chars) * times,
    st.lists(
        st.one_of(st.sampled_from(MARKS), st.sampled_from(FALLING_APART + STARTERS)),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from([1, 2, 20, 100]),
)
KEYS = shingle_keys("a seed")
MASK = (1 << 64) - 1


def normal(text: str) -> str:
    return " ".join(nfkc_casefold(text).split())


def by_unicodedata(text: str) -> str:
    """Return the NFKC_Casefold of a text of known characters as the interpreter has it."""
    visible = re.sub(f"[{IGNORABLE}]", "", text)
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", visible).casefold())


def tokens(text: str, *, punctuation: bool = False) -> list[str]:
    """Join neighbouring characters of one class; every single is a token of its own.

    With punctuation, so is every separator but white space.
    """
    found = []
    classed = [(int(characters().classes[ord(char)]), char) for char in normal(text)]
    for kind, run in groupby(classed, key=lambda pair: pair[0]):
        chars = [char for _, char in run]
        if kind == SINGLE:
            found += chars
        elif kind != SEPARATOR:
            found.append("".join(chars))
        elif punctuation:
            found += [char for char in chars if char != " "]
    return found


def without_punctuation(text: str) -> str:
    classes = characters().classes
    return " ".join(
        "".join(" " if classes[ord(char)] == SEPARATOR else char for char in normal(text)).split()
    )


def windows(items: list[str], size: int) -> list[tuple[str, ...]]:
    if len(items) < size:
        return [tuple(items)] if items else []
    return [tuple(items[start : start + size]) for start in range(len(items) - size + 1)]


def reference(text: str, unit: str, size: int, *, inverted: bool = False) -> list[tuple[str, ...]]:
    """Return the shingles of one text as tuples of tokens, or of characters.

    Inverted are words with punctuation, and characters without.
    """
    if unit == "word":
        return windows(tokens(text, punctuation=inverted), size)
    shown = without_punctuation(text) if inverted else normal(text)
    return windows(list(shown), size) if tokens(text) else []


def finalize(value: int) -> int:
    value ^= int(KEYS.finish)
    for _ in range(2):
        value = ((value ^ value >> 32) * 0xD6E8FEB86659FD93) & MASK
    return value ^ value >> 32


def run_hash(text: str) -> int:
    return sum((ord(char) + 1) * pow(KEYS.base, i, 1 << 64) for i, char in enumerate(text)) & MASK


def reference_hash(shingle: tuple[str, ...], unit: str) -> int:
    """Hash one shingle with Python's own integers, as the docstrings define it."""
    if unit == "char":
        return finalize(run_hash("".join(shingle)))
    pairs = zip(shingle, KEYS.places.tolist(), strict=False)
    return finalize(sum(finalize(run_hash(token)) * place for token, place in pairs) & MASK)


def shingle(texts: list[str], unit: str, size: int, *, inverted: bool = False) -> Shingles:
    batch = normalize(texts)
    if unit == "word":
        return word_shingles(batch, size, KEYS, punctuation=inverted)
    return char_shingles(drop_punctuation(batch) if inverted else batch, size, KEYS)


def of_each(shingles: Shingles) -> list[list[int]]:
    return [part.tolist() for part in np.split(shingles.hashes, shingles.starts[1:-1])]


UNITS = st.one_of(
    st.tuples(st.just("word"), st.integers(1, 8)), st.tuples(st.just("char"), st.integers(2, 16))
)


@settings(deadline=None, max_examples=400)
@given(BATCHES)
def test_a_batch_is_normalised_as_each_text_alone(texts: list[str]) -> None:
    assert normalize(texts).encoded() == [normal(text).encode() for text in texts]


@settings(deadline=None, max_examples=400)
@given(st.lists(RUNS, max_size=6).map("".join))
def test_many_marks_are_normalised_as_unicodedata_does(text: str) -> None:
    assert nfkc_casefold(text) == by_unicodedata(text)


@settings(deadline=None, max_examples=200)
@given(BATCHES)
def test_normalising_again_changes_nothing(texts: list[str]) -> None:
    once = normalize(texts).encoded()

    assert normalize([text.decode() for text in once]).encoded() == once


@settings(deadline=None, max_examples=200)
@given(BATCHES)
def test_something_stands_between_a_text_and_the_next(texts: list[str]) -> None:
    batch = normalize(texts)

    assert (batch.starts[1:] > batch.ends[:-1]).all()


@settings(deadline=None, max_examples=400)
@given(BATCHES)
def test_punctuation_becomes_gaps_that_collapse(texts: list[str]) -> None:
    dropped = drop_punctuation(normalize(texts))

    assert dropped.encoded() == [without_punctuation(text).encode() for text in texts]
    assert (dropped.starts[1:] > dropped.ends[:-1]).all()
    assert drop_punctuation(dropped).encoded() == dropped.encoded()


@settings(deadline=None, max_examples=600)
@given(st.lists(TEXTS, min_size=1, max_size=8), UNITS, st.booleans())
def test_shingles_are_those_of_the_definition(
    texts: list[str], unit: tuple[str, int], inverted: bool
) -> None:
    expected = [reference(text, *unit, inverted=inverted) for text in texts]

    shingles = shingle(texts, *unit, inverted=inverted)

    assert of_each(shingles) == [[reference_hash(one, unit[0]) for one in own] for own in expected]


@settings(deadline=None, max_examples=200)
@given(st.lists(TEXTS, min_size=1, max_size=8), UNITS)
def test_different_shingles_have_different_hashes(texts: list[str], unit: tuple[str, int]) -> None:
    expected = {one for text in texts for one in reference(text, *unit)}

    shingles = shingle(texts, *unit)

    assert len(set(shingles.hashes.tolist())) == len(expected)


@settings(deadline=None, max_examples=200)
@given(st.lists(TEXTS, min_size=1, max_size=8), UNITS, st.booleans())
def test_shingles_do_not_depend_on_the_batch(
    texts: list[str], unit: tuple[str, int], inverted: bool
) -> None:
    together = of_each(shingle(texts, *unit, inverted=inverted))

    alone = [of_each(shingle([text], *unit, inverted=inverted))[0] for text in texts]
    assert together == alone


@pytest.mark.parametrize("unit", ["word", "char"])
@pytest.mark.parametrize("text", ["", " ", "...", "😀 👍", "\u200d"])
def test_a_text_without_a_token_has_no_shingle(text: str, unit: str) -> None:
    assert of_each(shingle(["before", text, "after"], unit, 3))[1] == []


@pytest.mark.parametrize(("unit", "size"), [("word", 8), ("char", 16)])
@pytest.mark.parametrize("text", ["one", "one two", "한국어", "中文"])
def test_a_text_shorter_than_a_shingle_has_one_made_of_all_it_has(
    text: str, unit: str, size: int
) -> None:
    whole, longer = of_each(shingle([text, f"{text} more"], unit, size))

    assert len(whole) == len(longer) == 1
    assert whole != longer


def test_no_texts_have_no_shingles() -> None:
    assert shingle([], "word", 3).starts.tolist() == [0]
    assert shingle([], "char", 5).starts.tolist() == [0]


def test_a_long_batch_is_hashed_as_a_short_one() -> None:
    """Prefix sums run over the whole batch, and powers of the base with them."""
    filler = "many words of no interest " * 10_000

    assert of_each(shingle([filler, "the last text"], "word", 3))[1] == [
        reference_hash(("the", "last", "text"), "word")
    ]
