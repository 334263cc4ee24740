"""Cleaning does what its definition says, written out here character by character."""

from __future__ import annotations

import html
import string
from collections import Counter
from html.parser import HTMLParser
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dedup.settings import Settings
from stream_dedup.text.boilerplate import Boilerplate
from stream_dedup.text.clean import Cleaner, drop_numbers, drop_urls
from stream_dedup.text.counting import KeyCounter
from stream_dedup.text.learn import BoilerplateLearner
from stream_dedup.text.markup import strip_markup
from stream_dedup.text.normalize import nfkc_casefold
from stream_dedup.text.outline import LETTER, LONE, MULTIPLIER, OTHER, outline
from stream_dedup.types import Document

WORD = string.ascii_letters + string.digits + "_" + LETTER
STRANGE = (
    "é中文ไท한국어हि万천٣９２①½’–．／：＠ｗ\u00ad\u200b\u0301\ud83d\U0001f600\u3000\xa0\x1e\u2028"
)


def texts_of(*pieces: str) -> st.SearchStrategy[str]:
    """Return texts made of these pieces, of letters and of anything else."""
    piece = st.one_of(
        st.sampled_from(pieces), st.sampled_from(STRANGE), st.sampled_from(" \nab"), st.characters()
    )
    return st.lists(piece, max_size=30).map("".join)


MARKUP = texts_of(
    *("<", ">", "/", "=", '"', "'", "!", "?", "-", "--", "!>", "&", ";", "&lt;", "&#65", "&#x41;"),
    *("<p", "<b>", "</p>", "</b", "<a href=", '="', "='", "<!--", "-->", "--!>", "<!-->", "<br/>"),
    *("<script>", "<script ", "</script", "</script>", "<STYLE>", "</style >", "&amp;lt;", "&copy"),
    *("<![CDATA[", "]]>", "<?xml", "<!DOCTYPE html>", "\t", "\r"),
)
ADDRESSES = texts_of(
    *(
        "http://",
        "https://",
        "HTTP://",
        "ftp://",
        "www.",
        "wWw.",
        "x.org",
        "/a?b=1&c",
        ".",
        ",",
        ")",
    ),
    *("(", "@", "a@b.c", ":", "//", "-", "+", "%", "h", "ht", "w"),
)
NUMBERS = texts_of(
    *"0123456789+-.,:/'_TkKmMbBZ",
    *("st", "nd", "rd", "th", " pm", "a.m.", "AM", "p", "1,234", "12:30", "2024-05-01T09:30Z"),
)
LINES = st.lists(
    st.sampled_from(["Menu", "MENU ", "ｍｅｎｕ", "Sign in", "", "  ", "one", "two", "\u200b"]),
    max_size=8,
).map("\n".join)
DOCUMENTS = st.lists(st.tuples(LINES, st.sampled_from(["", "a", "b", "\ud800"])), max_size=12)


def naive_tag_end(text: str, place: int) -> int | None:
    while place < len(text):
        char = text[place]
        place += 1
        if char == ">":
            return place
        if char == "=":
            quote = place
            while text[quote : quote + 1] in set("\t\n\f\r "):
                quote += 1
            if text[quote : quote + 1] in {'"', "'"}:
                closing = text.find(text[quote], quote + 1)
                place = quote + 1 if closing < 0 else closing + 1
    return None


def naive_raw_end(text: str, name: str, place: int) -> int:
    """Return the end of the end tag of a script or style."""
    while place < len(text):
        found = text[place : place + len(name) + 2]
        behind = text[place + len(name) + 2 : place + len(name) + 3]
        if found.isascii() and found.lower() == f"</{name}" and behind in set("\t\n\f\r />"):
            return naive_tag_end(text, place + len(found)) or len(text)
        place += 1
    return len(text)


def naive_comment_end(text: str, place: int) -> int:
    for end in (">", "->"):
        if text.startswith(end, place):
            return place + len(end)
    while place < len(text):
        for end in ("-->", "--!>"):
            if text.startswith(end, place):
                return place + len(end)
        place += 1
    return len(text)


INLINE = (
    " a abbr acronym b bdi bdo big cite code data del dfn em font i ins kbd label mark nobr q rb rp"
    " rt ruby s samp small span strike strong sub sup time tt u var wbr "
)


def naive_markup(text: str) -> str:  # noqa: C901 - as one piece it reads like the standard
    shown, plain, place = "", "", 0
    while place < len(text):
        instead, end = "", None
        if text.startswith("<!--", place):
            end = naive_comment_end(text, place + 4)
        elif text.startswith("<![CDATA[", place):
            closing = text.find("]]>", place + 9)
            instead = text[place + 9 :] if closing < 0 else text[place + 9 : closing]
            end = len(text) if closing < 0 else closing + 3
        elif text[place : place + 2] in {"<!", "<?"}:
            end = text.find(">", place) + 1 or None
            if end is None:
                break
        elif text[place] == "<":
            closes = text.startswith("/", place + 1)
            start = stop = place + 1 + closes
            while stop < len(text) and text[stop] not in "\t\n\f\r />":
                stop += 1
            name = text[start:stop]
            if name and name[0] in string.ascii_letters:
                end = naive_tag_end(text, stop)
                if end is None:
                    break
                low = name.lower()
                instead = "" if f" {low} " in INLINE else "\n"
                if low in {"script", "style"} and not closes and text[end - 2] != "/":
                    end = naive_raw_end(text, low, end)
        if end is None:
            plain += text[place]
            place += 1
        else:
            shown += html.unescape(plain) + instead
            plain, place = "", end
    return shown + html.unescape(plain + text[place:])


def naive_urls(text: str) -> str:
    kept, shape, place = "", outline(text), 0
    address = set(WORD + "-~/#@$&*+=%")
    while place < len(text):
        begins = [
            start
            for start in ("http://", "https://", "ftp://", "www.")
            if shape[place : place + len(start)].lower() == start
            and shape[place : place + len(start)].isascii()
        ]
        if begins == ["www."] and place and shape[place - 1] in WORD:
            begins = []
        start = end = place + len(begins[0]) if begins else place
        while end < len(text) and shape[end] in address | set(".:?![]();,'"):
            end += 1
        while end > start and shape[end - 1] not in address:
            end -= 1
        if begins and end > start:
            kept += " "
            place = end
        else:
            kept += text[place]
            place += 1
    return naive_mails(kept)


def naive_mails(text: str) -> str:
    kept, shape, place = "", outline(text), 0
    local, label = set(WORD + ".+%-"), set(WORD + "-")
    while place < len(text):
        at = place
        if not place or shape[place - 1] not in local:
            while at < len(text) and shape[at] in local:
                at += 1
        end = at + 1
        while end < len(text) and shape[end] in label | {"."}:
            end += 1
        domain = shape[at + 1 : end].rstrip(".") if at > place and shape[at : at + 1] == "@" else ""
        if domain and domain[0] in label and "." in domain:
            kept += " "
            place = at + 1 + len(domain)
        else:
            kept += text[place]
            place += 1
    return kept


def naive_suffix(shape: str, place: int) -> int:
    """Return the length of what belongs to a number that ends here."""

    def ends_word(stop: int) -> bool:
        return stop >= len(shape) or shape[stop] not in WORD

    for suffix in (*"kKmMbBZ", "st", "nd", "rd", "th"):
        if shape.startswith(suffix, place) and ends_word(place + len(suffix)):
            return len(suffix)
    multipliers = len(shape[place:]) - len(shape[place:].lstrip(MULTIPLIER))
    if multipliers:
        return multipliers
    for gap in ("", " "):
        for half in "aApP":
            for suffix in (f"{gap}{half}m", f"{gap}{half}M", f"{gap}{half}.m.", f"{gap}{half}.M."):
                if shape.startswith(suffix, place) and ends_word(place + len(suffix)):
                    return len(suffix)
    return 0


def naive_numbers(text: str) -> str:
    kept, shape, place = "", outline(text), 0
    while place < len(text):
        first = place
        if shape[place] in "+-" and not (place and shape[place - 1] in WORD):
            first += 1
        end = first
        if shape[first : first + 1] in set(string.digits):
            while end < len(text) and shape[end] in string.digits + "-+.,:/'_T":
                end += 1
            while shape[end - 1] not in string.digits:
                end -= 1
            place = end + naive_suffix(shape, end)
        else:
            kept += text[place]
            place += 1
    return kept


@settings(deadline=None, max_examples=500)
@given(MARKUP)
def test_markup_is_stripped_by_definition(text: str) -> None:
    assert strip_markup(text) == naive_markup(text)


class Data(HTMLParser):
    """Collects the text of a document as the standard library reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""

    def handle_data(self, data: str) -> None:
        if self.cdata_elem is None:  # not in a script or style
            self.text += data


def document(children: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    value = st.text("abc<>'= é", max_size=8)
    element = st.tuples(st.sampled_from(["p", "b", "DIV", "a", "h1"]), value, children)
    return st.one_of(
        element.map(lambda made: f'<{made[0]} title="{made[1]}">{made[2]}</{made[0]}>'),
        st.lists(children, max_size=4).map("".join),
        value.map(lambda comment: f"<!-- {comment} -->"),
        st.text("abc ='&;", max_size=8).map(lambda code: f"<script>{code}</script>"),
        st.just("<br/>"),
    )


@settings(deadline=None, max_examples=200)
@given(
    st.recursive(st.text("abc <>&;'\"é中", max_size=8).map(html.escape), document, max_leaves=12)
)
def test_a_well_formed_document_reads_as_in_another_parser(page: str) -> None:
    other = Data()
    other.feed(page)
    other.close()

    assert strip_markup(page).replace("\n", "") == other.text


@settings(deadline=None, max_examples=500)
@given(ADDRESSES)
def test_addresses_become_spaces_by_definition(text: str) -> None:
    cleaned = drop_urls(text)

    assert cleaned == naive_urls(text)


@settings(deadline=None, max_examples=500)
@given(NUMBERS)
def test_numbers_are_dropped_by_definition(text: str) -> None:
    cleaned = drop_numbers(text)

    assert cleaned == naive_numbers(text)
    assert drop_numbers(cleaned) == cleaned
    assert not set(outline(cleaned)) & set(string.digits)


@settings(deadline=None, max_examples=200)
@given(NUMBERS, st.permutations(string.digits))
def test_texts_that_differ_in_digits_only_become_equal(text: str, digits: list[str]) -> None:
    other = text.translate(str.maketrans(string.digits, "".join(digits)))

    assert drop_numbers(other) == drop_numbers(text)


@settings(deadline=None, max_examples=300)
@given(st.text())
def test_an_outline_has_one_small_character_for_each_of_the_text(text: str) -> None:
    shape = outline(text)

    assert len(shape) == len(text)
    assert max(shape, default="") <= max(LETTER, LONE, MULTIPLIER, OTHER)
    assert all(was == now for was, now in zip(text, shape, strict=True) if was.isascii())


def normal(line: str) -> str:
    return " ".join(nfkc_casefold(line).split())


def learn(documents: list[tuple[str, str]], least: int, share: float) -> Boilerplate:
    with TemporaryDirectory() as folder:
        learner = BoilerplateLearner(Settings(), Path(folder), run_keys=7)
        for start in range(0, len(documents), 3):
            learner.add(
                [Document("", text, origin=origin) for text, origin in documents[start : start + 3]]
            )
        return learner.learn(least, share)


@settings(deadline=None, max_examples=150)
@given(DOCUMENTS, st.integers(2, 4), st.sampled_from([0.0, 0.3, 1.0]))
def test_boilerplate_is_what_enough_documents_of_an_origin_have(
    documents: list[tuple[str, str]], least: int, share: float
) -> None:
    of_origin = Counter(origin for _, origin in documents)
    having = Counter(
        (origin, line)
        for text, origin in documents
        for line in {normal(line) for line in text.splitlines()}
    )
    known = {
        (origin, line)
        for (origin, line), count in having.items()
        if line and count >= max(least, ceil(share * of_origin[origin]))
    }
    texts, origins = [text for text, _ in documents], [origin for _, origin in documents]

    learned = Boilerplate.decode(learn(documents, least, share).encode())
    dropped = learned.drop(texts, origins)

    lines = Counter(origin for origin, _ in known)
    assert {name: one.lines for name, one in learned.origins.items()} == {
        name.replace("\ud800", "\\ud800"): count for name, count in lines.items()
    }
    kept = [
        [line for line in text.splitlines() if (origin, normal(line)) not in known]
        for text, origin in documents
    ]
    assert dropped == [
        text if own == text.splitlines() else "\n".join(own)
        for text, own in zip(texts, kept, strict=True)
    ]
    assert learned.drop(dropped, origins) == dropped


@settings(deadline=None, max_examples=80)
@given(st.lists(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 9), max_size=9)))
def test_keys_are_counted_however_many_runs_they_take(batches: list[list[int]]) -> None:
    expected = Counter(key for batch in batches for key in batch)

    with TemporaryDirectory() as folder:
        counter = KeyCounter(Path(folder), run_keys=5)
        for batch in batches:
            keys = np.array(batch, np.uint64)
            counter.add(keys, (keys % np.uint64(7)).astype(np.uint32))
        parts = list(counter.counts())

    found = [
        pair for part in parts for pair in zip(*(column.tolist() for column in part), strict=True)
    ]
    assert found == [(key, key % 7, expected[key]) for key in sorted(expected)]


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.one_of(MARKUP, ADDRESSES, NUMBERS), max_size=4),
    st.lists(st.sampled_from(["markup", "urls", "numbers"]), max_size=3),
)
def test_steps_are_taken_in_their_order(texts: list[str], steps: list[str]) -> None:
    naive = {"markup": naive_markup, "urls": naive_urls, "numbers": naive_numbers}
    expected = list(texts)
    for step in steps:
        expected = [naive[step](text) for text in expected]

    assert list(Cleaner(Settings(clean=",".join(steps))).clean(texts)) == expected
