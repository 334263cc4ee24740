"""The truth of the example corpus, checked by an independent brute-force implementation."""

from __future__ import annotations

import json
import re
import unicodedata
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import NamedTuple

EXAMPLES = Path(__file__).parents[2] / "examples"

#: Thai, Lao, Myanmar, Khmer, iteration marks, Hiragana, Katakana, Han: one token a character.
SINGLE = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f]"
)


class Entry(NamedTuple):
    id: str
    text: str
    tokens: tuple[str, ...]
    shingles: frozenset[tuple[str, ...]]


def normal(text: str) -> str:
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(folded.split())


def tokenise(text: str) -> tuple[str, ...]:
    """Runs of letters, digits and marks; each character of an unspaced script by itself."""
    pieces = []
    for character in normal(text):
        is_word = unicodedata.category(character)[0] in "LNM"
        pieces.append(
            f" {character} "
            if is_word and SINGLE.match(character)
            else character
            if is_word
            else " "
        )
    return tuple("".join(pieces).split())


def shingle(tokens: tuple[str, ...]) -> frozenset[tuple[str, ...]]:
    if len(tokens) < 3:
        return frozenset({tokens} if tokens else ())
    return frozenset(zip(tokens, tokens[1:], tokens[2:], strict=False))


def resemblance(one: Entry, other: Entry) -> float:
    either = one.shingles | other.shingles
    return len(one.shingles & other.shingles) / len(either) if either else 0.0


@cache
def documents() -> tuple[dict[str, str], ...]:
    lines = (EXAMPLES / "documents.jsonl").read_text(encoding="utf-8").splitlines()
    return tuple(json.loads(line) for line in lines)


@cache
def entries() -> tuple[Entry, ...]:
    return tuple(
        Entry(row["id"], normal(row["text"]), tokens, shingle(tokens))
        for row in documents()
        for tokens in [tokenise(row["text"])]
    )


@cache
def truth() -> dict[str, tuple[str, str]]:
    """Return status and original id by document id."""
    header, *lines = (EXAMPLES / "truth.tsv").read_text(encoding="utf-8").splitlines()
    assert header == "id\tstatus\toriginal_id"
    rows = [line.split("\t") for line in lines]
    return {name: (status, original) for name, status, original in rows}


def decide(entry: Entry, originals: list[Entry], threshold: float) -> tuple[str, str]:
    """Compare a document with every original before it; the first match wins."""
    for original in originals:
        if entry.text and entry.text == original.text:
            return "exact_duplicate", original.id
    for original in originals:
        if resemblance(entry, original) >= threshold:
            return "near_duplicate", original.id
    return "original", entry.id


def test_the_truth_is_what_brute_force_decides_at_any_threshold_from_60_to_85_percent() -> None:
    for threshold in (0.6, 0.8, 0.85):
        originals: list[Entry] = []
        decisions = {}
        for entry in entries():
            decisions[entry.id] = decide(entry, originals, threshold)
            if decisions[entry.id][0] == "original":
                originals.append(entry)

        assert decisions == truth()


def test_documents_and_truth_list_the_same_ids_in_the_same_order() -> None:
    assert [row["id"] for row in documents()] == list(truth())


def test_every_document_has_its_fields_and_times_increase() -> None:
    for row in documents():
        assert list(row) == ["id", "text", "source", "lang", "time"]
    times = [datetime.fromisoformat(row["time"]) for row in documents()]
    assert times == sorted(set(times))


def test_near_copies_are_well_inside_the_threshold_and_all_others_well_outside() -> None:
    by_id = {entry.id: entry for entry in entries()}
    for entry in entries():
        status, original_id = truth()[entry.id]
        for other in entries():
            if truth()[other.id][1] != original_id:
                assert resemblance(entry, other) < 0.6, (entry.id, other.id)
        if status == "near_duplicate":
            assert resemblance(entry, by_id[original_id]) >= 0.85, entry.id
            assert entry.text != by_id[original_id].text


def test_look_alikes_from_one_template_share_much_and_stay_originals() -> None:
    originals = [entry for entry in entries() if truth()[entry.id][0] == "original"]
    alike = [
        (one.id, other.id)
        for place, one in enumerate(originals)
        for other in originals[:place]
        if resemblance(one, other) >= 0.15
    ]

    assert len(alike) >= 5


def test_the_corpus_covers_what_its_readme_says() -> None:
    readme = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    statuses = [status for status, _ in truth().values()]

    for status in ("original", "exact_duplicate", "near_duplicate"):
        assert f"| {status} | {statuses.count(status)} |" in readme
    assert f"{len(statuses)} documents" in readme
    for language in {row["lang"] for row in documents()}:
        assert f"`{language}`" in readme
    assert sum(not entry.tokens for entry in entries()) == 4
    assert sum(0 < len(entry.tokens) < 3 for entry in entries()) == 4
