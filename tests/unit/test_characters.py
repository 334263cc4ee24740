"""The frozen Unicode tables."""

from __future__ import annotations

import unicodedata
from functools import cache

import numpy as np
import pytest

from stream_dedup.text.characters import (
    CODE_POINTS,
    DIGIT_ZEROS,
    SEPARATOR,
    SINGLE,
    SPACE,
    WORD,
    Characters,
    ascii_classes,
    ascii_fold,
    build,
    characters,
)


@cache
def rebuilt() -> Characters:
    return build()


def assigned() -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return where this interpreter may be compared with the tables.

    A later Unicode only adds characters; what 14.0 left open is not compared.
    """
    if unicodedata.unidata_version == "14.0.0":
        return np.ones(CODE_POINTS, np.bool_)
    return characters().assigned


@pytest.mark.parametrize("table", Characters._fields)
def test_the_shipped_tables_are_those_of_unicode_14(table: str) -> None:
    compared = assigned()

    shipped, fresh = (getattr(tables, table)[compared] for tables in (characters(), rebuilt()))

    differing = np.flatnonzero(compared)[shipped != fresh]
    assert [f"U+{code:04X}" for code in differing[:10]] == []


def test_the_digits_are_those_of_unicode_14() -> None:
    digits = {chr(ord(zero) + value): value for zero in DIGIT_ZEROS for value in range(10)}

    assert digits == {
        chr(code): unicodedata.decimal(chr(code))
        for code in np.flatnonzero(characters().assigned).tolist()
        if unicodedata.category(chr(code)) == "Nd"
    }


def test_the_tables_are_read_only_once() -> None:
    assert characters() is characters()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("aZéßœĐ", WORD),  # Latin
        ("жЯ", WORD),  # Cyrillic
        ("λΩ", WORD),  # Greek
        ("שלום", WORD),  # Hebrew
        ("سلام", WORD),  # Arabic
        ("हिन्दी", WORD),  # Devanagari, with its vowel signs and virama
        ("தமிழ்", WORD),  # Tamil
        ("አማርኛ", WORD),  # Ethiopic
        ("한국어", WORD),  # Hangul is written with spaces
        ("0９٣½Ⅷ²", WORD),  # digits and numbers
        ("_", WORD),
        ("\u0301", WORD),  # a combining accent
        ("中文漢字", SINGLE),
        ("ひらがなカタカナー々〇", SINGLE),
        ("ภาษาไทย", SINGLE),
        ("ລາວ", SINGLE),
        ("ខ្មែរ", SINGLE),
        ("မြန်မာ", SINGLE),
        ("ㄅㄆ", SINGLE),  # Bopomofo
        ("ꀀꀁ", SINGLE),  # Yi
        ("𠀀𪜀", SINGLE),  # beyond the basic plane
        (" \t\n\u00a0\u3000\u2028", SEPARATOR),
        (".,-'\"!?@#/\\", SEPARATOR),
        ("。、「」・؟।", SEPARATOR),
        ("€+=^~😀👍🏽", SEPARATOR),
        ("\u200b\u200d\ufeff\x00\ud800\ue000", SEPARATOR),
    ],
)
def test_every_script_has_its_class(text: str, expected: int) -> None:
    assert {char: int(characters().classes[ord(char)]) for char in text} == dict.fromkeys(
        text, expected
    )


@pytest.mark.parametrize(
    ("char", "folded"), [("A", "a"), ("Ａ", "a"), ("É", "é"), ("Σ", "σ"), ("ς", "σ"), ("Ж", "ж")]
)
def test_a_letter_folds_to_its_lower_case(char: str, folded: str) -> None:
    assert chr(characters().fold[ord(char)]) == folded


@pytest.mark.parametrize("char", "\t\n\r\x0b\x0c\x1c\x1e\x85\xa0\u1680\u2003\u2028\u202f\u3000")
def test_every_white_space_folds_to_a_plain_space(char: str) -> None:
    assert characters().fold[ord(char)] == SPACE
    assert not characters().slow[ord(char)]


@pytest.mark.parametrize("char", "ßﬁİ\u00ad\u0301\u0e33\u1161\u11a8\u200d\ud800\ufe0f")
def test_what_a_table_cannot_fold_takes_the_slow_route(char: str) -> None:
    assert characters().slow[ord(char)]


def test_ascii_has_the_same_tables() -> None:
    text = bytes(range(128))

    folded = text.translate(ascii_fold())

    assert list(folded) == characters().fold[:128].tolist()
    assert ascii_classes().tolist() == characters().classes[:256].tolist()
    assert not characters().slow[:128].any()
