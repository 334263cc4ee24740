"""What differs between two texts: nothing is lost, nothing torn, and the cost is bounded."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dedup.review.diff import CELLS, LONGEST, Difference, Kind, compare_texts

_SIGNS = "ab .,\n\t\r\0東京สวัที่ۀأ\u0301\u200d\u202e👩👧é"
_texts = st.text(st.sampled_from(_SIGNS), max_size=60) | st.text(max_size=40)


def _side(found: Difference, other: Kind) -> str:
    return "".join(part.text for part in found.parts if part.kind is not other)


def _check(left: str, right: str, cells: int = CELLS) -> Difference:
    found = compare_texts(left, right, cells)
    assert _side(found, Kind.ADDED) == left
    assert _side(found, Kind.REMOVED) == right
    assert found.cells <= cells
    assert found.equal == (left == right)
    for one, other in zip(found.parts, found.parts[1:], strict=False):
        assert (one.kind, other.kind) != (Kind.ADDED, Kind.REMOVED)
        assert one.kind is not other.kind
    return found


@given(_texts, _texts, st.sampled_from([0, 1, 40, 1000, CELLS]))
def test_that_parts_make_both_texts(left: str, right: str, cells: int) -> None:
    _check(left, right, cells)


@given(st.lists(st.sampled_from("abcdefgh"), max_size=80), st.randoms(use_true_random=False))
def test_that_cutting_at_unique_runs_loses_nothing(words: list[str], choice: random.Random) -> None:
    changed = [word if choice.random() < 0.8 else "x" for word in words]
    for cells in (0, 100, 400):
        _check(" ".join(words), " ".join(changed), cells)


def _shown(left: str, right: str) -> list[tuple[str, str]]:
    return [(str(part.kind), part.text) for part in _check(left, right).parts]


@pytest.mark.parametrize(
    ("left", "right", "parts"),
    [
        ("nine weekends", "ten weekends", ["-nine", "+ten", "= weekends"]),
        ("a  b", "a b", ["=a", "-  ", "+ ", "=b"]),
        ("市は来月から", "市は今月から", ["=市は", "-来", "+今", "=月から"]),
        ("ภาษาที่ดี", "ภาษาที่ไม่ดี", ["=ภาษาที่", "+ไม่", "=ดี"]),
        ("می‌روم خانه", "می‌روم بازار", ["=می‌روم ", "-خانه", "+بازار"]),
        ("e\u0301t", "\u00e9t", ["-e\u0301t", "+\u00e9t"]),
        ("👩‍👧 x", "👩‍👦 x", ["-👩‍👧", "+👩‍👦", "= x"]),
        ("one, two", "three, four", ["-one, two", "+three, four"]),
        ("", "all new", ["+all new"]),
        ("all", "", ["-all"]),
    ],
)
def test_words_of_any_script(left: str, right: str, parts: list[str]) -> None:
    signs = {"equal": "=", "removed": "-", "added": "+"}
    assert [signs[kind] + text for kind, text in _shown(left, right)] == parts


def _words(seed: int, size: int, names: int) -> list[str]:
    choice = random.Random(seed)
    return [f"w{choice.randrange(names)}" for _ in range(size)]


def test_that_few_changes_in_a_megabyte_are_found() -> None:
    words = _words(1, 170_000, 4_000)
    changed = list(words)
    for place in range(500, 170_000, 5_000):
        changed[place] = "CHANGED"

    found = _check(" ".join(words), " ".join(changed))

    assert found.complete
    added = [part.text.strip() for part in found.parts if part.kind is Kind.ADDED]
    assert added == ["CHANGED"] * 34


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("ab " * 330_000, "ba " * 330_000),
        ("中" * 400_000, "文" * 200_000 + "中" * 200_000),
        (" ".join(_words(2, 150_000, 9)), " ".join(_words(3, 150_000, 9))),
    ],
)
def test_that_megabytes_without_anything_to_hold_on_to_are_not_aligned(
    left: str, right: str
) -> None:
    assert _check(left, right).cells <= CELLS


def test_that_what_is_too_much_is_said() -> None:
    one, other = " ".join(_words(4, 500, 9)), " ".join(_words(5, 500, 9))
    assert not _check(one, other, cells=1000).complete
    assert not _check("a" * (LONGEST + 1), "b").complete
    assert _check(one, other).complete
