"""What peers are given, and what is said about them: only figures that a command writes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks import summary
from benchmarks.peer_program import Attached, Laps, Peer, decide_batch, shingler

ROOT = Path(__file__).parents[2]
WITHOUT_TOKEN = ["", " \n", "...", "👍👍👍", "!?! --"]
PAGES = ("README.md", "benchmarks/README.md", "docs/*.md", "docs/adr/*.md", "ops/*.md")
#: A figure beside a peer: "5.6 times rensa", "twice as fast as gaoya", "rensa 14,591".
COMPARED = re.compile(
    r"(\d[\d.,]*|twice|half) (times|as)\b[^|.]{0,40}\b(rensa|gaoya|datasketch|simhash)\b"
    r"|\b(rensa|gaoya|datasketch)\b,? [^|:;]{0,40}(\d,\d{3}|\s\d?\.\d)",
)


class BySet(Peer):
    """Takes documents with the same set of shingles for copies."""

    def __init__(self, shingle: str) -> None:
        super().__init__(shingle)
        self._first: dict[frozenset[str], int] = {}

    def fingerprint(self, cuts: Sequence[list[str]]) -> list[frozenset[str]]:
        return [frozenset(cut) for cut in cuts]

    def decide(self, numbers: Sequence[int], prints: Sequence[frozenset[str]]) -> Attached:
        firsts = [self._first.setdefault(one, at) for at, one in zip(numbers, prints, strict=True)]
        return [None if first == at else first for at, first in zip(numbers, firsts, strict=True)]


@pytest.mark.parametrize("shingle", ["word:3", "space:3", "char:5"])
@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_text_has_no_shingle(shingle: str, text: str) -> None:
    assert shingler(shingle)(text) == []


@pytest.mark.parametrize("shingle", ["word:3", "char:5"])
def test_peers_are_not_given_one_shingle_for_all_texts_without_a_token(shingle: str) -> None:
    texts = [*WITHOUT_TOKEN, "one two three four"]

    attached = decide_batch(BySet(shingle), 0, texts + texts, Laps())

    # Equal ones match, as in the reference, and empty ones nothing.
    assert attached == [None] * 8 + [2, 3, 4, 5]


def test_shingles_are_cut_as_ours_are() -> None:
    assert shingler("word:3")("Two words") == ["two words"]
    assert shingler("word:2")("One, two; three!") == ["one two", "two three"]
    assert shingler("space:2")("One, two; three!") == ["one, two;", "two; three!"]
    assert shingler("char:3")("A  bcd") == ["a b", " bc", "bcd"]


@pytest.mark.parametrize("path", summary.PAGES)
def test_figures_on_a_page_are_those_of_the_results(path: str) -> None:
    page = ROOT / path

    assert summary.filled(page.read_text(), page) == page.read_text()


def test_figures_beside_peers_stand_only_where_a_command_writes_them() -> None:
    pages = [page for pattern in PAGES for page in ROOT.glob(pattern)]

    found = [
        f"{page.name}: {match[0]}"
        for page in pages
        # What was said once, and was wrong, is quoted below that heading.
        for match in COMPARED.finditer(
            summary.without_figures(page.read_text()).partition("## What was wrong")[0]
        )
    ]

    assert found == []
