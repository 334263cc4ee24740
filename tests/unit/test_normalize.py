"""What normalisation takes for equal, and what it keeps apart."""

from __future__ import annotations

import unicodedata

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


class TestMarks:
    """What lets runs of marks be sorted before ``unicodedata`` sorts them."""

    def test_each_is_slow_and_no_character_has_more_than_three(self) -> None:
        tables = characters()
        known = np.flatnonzero(tables.assigned).tolist()
        marks = [code for code in known if unicodedata.combining(chr(code))]
        parts = (unicodedata.normalize("NFKD", chr(code)) for code in known)

        assert tables.slow[marks].all()
        assert max(sum(map(bool, map(unicodedata.combining, part))) for part in parts) == 3

    def test_no_composition_begins_with_one(self) -> None:
        """Else composing would look through a run again for each mark in it."""
        for code in np.flatnonzero(characters().assigned).tolist():
            parts = unicodedata.normalize("NFD", chr(code))
            if unicodedata.combining(parts[0]):
                assert unicodedata.normalize("NFC", parts) == parts

    @pytest.mark.parametrize("count", [63, 64, 65, 1000])
    def test_they_are_sorted_by_class_and_else_stay(self, count: int) -> None:
        text = "q" + "\u0301\u0316\u0300\u0317" * count

        expected = "q" + "\u0316\u0317" * count + "\u0301\u0300" * count
        assert nfkc_casefold(text) == expected
        assert nfkc_casefold(f"{text}\U0001fae8{text}") == f"{expected}\U0001fae8{expected}"
