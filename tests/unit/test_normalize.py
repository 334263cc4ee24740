"""What normalisation takes for equal, and what it keeps apart."""

from __future__ import annotations

import numpy as np
import pytest

from stream_dedup.text.characters import characters
from stream_dedup.text.normalize import nfkc_casefold, normalize


def normal(*texts: str) -> list[str]:
    return [encoded.decode() for encoded in normalize(texts).encoded()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        (" \t\r\n ", ""),
        ("  Two \t\n words ", "two words"),
        ("a\x1eb\x1cc", "a b c"),
        ("a\x00b", "a\x00b"),
        ("\u3000全角\u00a0ＡＢＣ　１２３", "全角 abc 123"),
        ("Straße STRASSE", "strasse strasse"),
        ("ﬁne oﬃce", "fine office"),
        ("Σίσυφος ΣΊΣΥΦΟΣ", "σίσυφοσ σίσυφοσ"),
        ("e\u0301 é", "é é"),
        ("한글", "한글"),
        ("ｶﾞ ㌔", "ガ キロ"),
        ("น้ำ", "น้\u0e4dา"),  # SARA AM falls apart
        ("so\u00adft ze\u200bro wo\u2060rd", "soft zero word"),
        ("👩\u200d👩\u200d👧 ❤\ufe0f", "👩👩👧 ❤"),
        ("İ", "i̇"),
        ("½ ² ①", "1⁄2 2 1"),
        ("\ufeffBOM", "bom"),
        ("lone \ud83d surrogate", "lone \ufffd surrogate"),
        ("¨", "\u0308"),  # NFKC makes it a space and an accent
    ],
)
def test_a_text_has_its_normal_form(text: str, expected: str) -> None:
    assert normal(text) == [expected]
    assert normal("before", text, "ß after") == ["before", expected, "ss after"]


@pytest.mark.parametrize(
    ("left", "right"), [("it's", "its"), ("a-b", "a b"), ("é", "e"), ("a  b", "ab"), ("か", "が")]
)
def test_punctuation_accents_and_word_breaks_tell_texts_apart(left: str, right: str) -> None:
    one, other = normal(left, right)

    assert one != other


def test_no_texts_have_no_forms() -> None:
    assert normal() == []


def test_an_ascii_batch_takes_a_byte_a_character() -> None:
    assert normalize(["ASCII", "only"]).codes.dtype == np.uint8
    assert normalize(["ASCII", "and é"]).codes.dtype == np.uint32


def test_a_code_point_unknown_to_unicode_14_stays_and_parts_its_neighbours() -> None:
    """So a later Python, which knows it, gives the same: here its neighbours could have joined."""
    unknown = chr(int(np.flatnonzero(~characters().assigned)[0]))

    assert nfkc_casefold(f"E{unknown}\u0301ﬁ{unknown}{unknown}É") == (
        f"e{unknown}\u0301fi{unknown}{unknown}é"
    )


def test_a_letter_of_a_later_unicode_is_left_alone() -> None:
    letter = "\U0001e030"  # new in 15.0, and a compatibility form of another letter

    assert nfkc_casefold(letter) == letter
