"""Overview, Group and Search: what they show, of hostile documents too."""

from __future__ import annotations

import csv
import io
import json
import re
import time
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from stream_dedup import Deduplicator, Document
from stream_dedup.query import Query
from stream_dedup.review import display
from stream_dedup.review.diff import compare_texts
from stream_dedup.review.guard import Guard
from stream_dedup.review.known import KnownOriginals
from stream_dedup.review.reading.annotated import Shown, seen
from stream_dedup.review.seen import Seen
from stream_dedup.review.site import Site, make_site
from stream_dedup.review.window import Window
from stream_dedup.settings import Settings
from stream_dedup.types import Status

HOSTILE = (
    "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{ 1234 * 5678 }}\0\u202eevil\u202c"
)
BODY = " ".join(f"word{number}" for number in range(60))
GROUP = "ab" * 12


def _decided(documents: list[Document]) -> list[Seen]:
    with Deduplicator(Settings()) as deduplicator:
        decisions = deduplicator.decide(documents)
    pairs = zip(documents, decisions, strict=True)
    return [
        seen(document, decision, Shown("site.example", f"https://site.example/{number}"))
        for number, (document, decision) in enumerate(pairs)
    ]


def _client(window: Window, **more: object) -> TestClient:
    site = Site(Settings(), window, Guard("", ""), **more)  # type: ignore[arg-type]
    return TestClient(make_site(site, window), "http://127.0.0.1:9466")


@pytest.fixture
def window(tmp_path: Path) -> Window:
    return Window.open(tmp_path / "window.db", 1000)


@pytest.fixture
def documents() -> list[Seen]:
    """Return an original, duplicates of it, and a document of its own."""
    texts = [BODY, BODY.replace("word30", "other"), BODY.upper(), "Nothing like these at all."]
    return _decided(
        [Document(f"d{number}", text, time=1.7e9 + number) for number, text in enumerate(texts)]
    )


@pytest.fixture
def pages(window: Window, documents: list[Seen]) -> Iterator[TestClient]:
    window.add(documents)
    with _client(window) as client:
        yield client


class _Page(HTMLParser):
    """What a browser would make of a page, as far as it matters here."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def _text(client: TestClient, path: str, status: int = 200) -> str:
    answer = client.get(path)
    assert answer.status_code == status, answer.text
    page = _Page(answer.text)
    headings = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert headings[0] == 1
    assert headings.count(1) == 1
    assert all(other <= one + 1 for one, other in pairwise(headings))
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    labelled = {attrs["for"] for tag, attrs in page.tags if tag == "label"}
    for tag, attrs in page.tags:
        assert not any(name.startswith("on") or name == "style" for name in attrs)
        if tag in {"input", "textarea", "select"} and attrs.get("type") != "hidden":
            assert attrs["id"] in labelled
        if tag == "th":
            assert attrs["scope"] in {"row", "col"}
    return answer.text


class TestOverview:
    def test_an_empty_window(self, window: Window) -> None:
        with _client(window) as client:
            assert "No documents yet" in _text(client, "/")

    def test_what_is_there(self, pages: TestClient, documents: list[Seen]) -> None:
        page = _text(pages, "/")
        assert f'href="/groups/{documents[0].duplicate_id}"' in page
        assert page.count("<figure") == 3
        assert page.count("<details") == 3
        assert "site.example" in page

    def test_the_part_that_changes(self, pages: TestClient) -> None:
        part = pages.get("/figures").text
        assert "<figure" in part
        assert "<html" not in part


class TestGroup:
    def test_an_original_and_a_duplicate(self, pages: TestClient, documents: list[Seen]) -> None:
        page = _text(pages, f"/groups/{documents[0].duplicate_id}")
        assert "<del>word30</del>" in page
        assert "<ins>other</ins>" in page
        assert "a near duplicate." in page
        assert 'href="https://site.example/1"' in page
        exact = _text(pages, f"/groups/{documents[0].duplicate_id}?with=3")
        assert "an exact duplicate." in exact
        assert "<ins>WORD0" in exact

    def test_the_part_that_compares(self, pages: TestClient, documents: list[Seen]) -> None:
        part = pages.get(f"/groups/{documents[0].duplicate_id}/compare?with=2").text
        assert "<del>word30</del>" in part
        assert "<html" not in part

    def test_a_document_alone(self, pages: TestClient, documents: list[Seen]) -> None:
        page = _text(pages, f"/groups/{documents[3].duplicate_id}")
        assert "Nothing like these at all." in page

    def test_other_settings_than_those_that_decided(self, window: Window) -> None:
        (one, two) = _decided([Document("a", BODY), Document("b", BODY + " more")])
        window.add([one, two._replace(configuration="0" * 16)])
        with _client(window) as client:
            page = _text(client, f"/groups/{one.duplicate_id}")
        assert "decided under configuration <code>0000000000000000</code>" in page

    def test_an_original_that_has_gone(self, tmp_path: Path, documents: list[Seen]) -> None:
        small = Window.open(tmp_path / "small.db", 2)
        small.add(documents[:3])
        with _client(small) as client:
            page = _text(client, f"/groups/{documents[0].duplicate_id}")
        assert "The original of this group is not in the window any more." in page
        assert "Oldest document in the window" in page

    def test_texts_that_are_not_kept(self, window: Window, documents: list[Seen]) -> None:
        window.add(
            [documents[0]._replace(text=None), documents[1], documents[2]._replace(text=None)]
        )
        with _client(window) as client:
            name = documents[0].duplicate_id
            one = _text(client, f"/groups/{name}?with=2")
            none = _text(client, f"/groups/{name}?with=3")
        assert "The text of the original is not kept here" in one
        assert "word30" not in one.split("<table")[0].replace("other", "")
        assert "The texts of these documents are not kept here" in none

    def test_long_texts_are_compared_later(self, window: Window) -> None:
        long = " ".join(f"w{number}" for number in range(20_000))
        held = _decided([Document("a", long), Document("b", long.replace("w5 ", "x "))])
        window.add(held)
        with _client(window) as client:
            page = _text(client, f"/groups/{held[0].duplicate_id}")
            address = unescape(re.findall(r'hx-get="([^"]*)" hx-trigger="load"', page)[0])
            part = client.get(address).text
            full = client.get(address + "&full=true").text
        assert "<del>" not in page
        assert "<del>w5</del>" in part
        assert "unchanged characters" in part
        assert "unchanged characters" not in full
        assert len(part) < 20_000 < len(full)

    def test_pages_of_members(self, window: Window) -> None:
        (original,) = _decided([Document("o", BODY)])
        copies = [
            original._replace(
                id=f"c{number:03}", status=Status.NEAR_DUPLICATE, similarity=0.8 + number / 1000
            )
            for number in range(60)
        ]
        window.add([original, *copies])
        found = []
        with _client(window) as client:
            address: str | None = f"/groups/{original.duplicate_id}?sort=nearest"
            while address:
                page = _text(client, address)
                found += re.findall(
                    r'<bdi dir="auto" class="id">(c\d+)', page.split('id="members"')[1]
                )
                after = re.search(r'rel="next" href="([^"#]*)', page)
                address = unescape(after[1]) if after else None
        assert found == [f"c{number:03}" for number in range(59, -1, -1)]

    @pytest.mark.parametrize(
        ("path", "status"),
        [
            (f"/groups/{GROUP}", 404),
            ("/groups/none", 422),
            (f"/groups/{GROUP}.csv", 404),
            (f"/groups/{GROUP}/compare?with=1", 404),
            ("/groups/{known}?with=4", 404),
            ("/groups/{known}?with=99", 404),
            ("/groups/{known}?with=x", 422),
            ("/groups/{known}?after=1;DROP", 422),
            ("/groups/{known}?after=1e1e1,1", 404),
            ("/groups/{known}?sort=worst", 422),
        ],
    )
    def test_what_is_not_there(
        self, pages: TestClient, documents: list[Seen], path: str, status: int
    ) -> None:
        assert pages.get(path.format(known=documents[0].duplicate_id)).status_code == status


class TestExport:
    def test_json_lines(self, pages: TestClient, documents: list[Seen]) -> None:
        answer = pages.get(f"/groups/{documents[0].duplicate_id}.jsonl")
        found = [json.loads(line) for line in answer.text.splitlines()]
        assert [one["id"] for one in found] == ["d0", "d1", "d2"]
        assert [one["text"] for one in found] == [one.text for one in documents[:3]]
        assert found[1]["status"] == "near_duplicate"
        assert found[1]["time"] == "2023-11-14T22:13:21.000Z"
        assert "attachment" in answer.headers["content-disposition"]

    def test_no_cell_is_a_formula(self, window: Window) -> None:
        texts = ["=1+1", "+1", "-1", "@A1", "\tx", 'plain "quoted", \nin lines']
        (one,) = _decided([Document(-5, "x")])
        window.add([one._replace(text=text, source=text) for text in texts])
        with _client(window) as client:
            answer = client.get(f"/groups/{one.duplicate_id}.csv")
        assert answer.text.startswith("\ufeff")
        found = list(csv.DictReader(io.StringIO(answer.text[1:], newline="")))
        assert [row["text"] for row in found] == [*("'" + text for text in texts[:5]), texts[5]]
        assert {row["id"] for row in found} == {"'-5"}
        assert not any(cell[:1] in "=+-@\t\r" for row in found for cell in row.values() if cell)

    def test_a_group_of_several_reads(self, window: Window) -> None:
        (one,) = _decided([Document("a", "x")])
        window.add([one._replace(id=number) for number in range(700)])
        with _client(window) as client:
            lines = client.get(f"/groups/{one.duplicate_id}.jsonl").text.splitlines()
        assert [json.loads(line)["id"] for line in lines] == list(range(700))


class TestSearch:
    def test_by_id(self, pages: TestClient, documents: list[Seen]) -> None:
        assert "Documents with this id" in _text(pages, "/search?q=d1")
        assert "whose id begins with it" in _text(pages, "/search?q=d")
        assert "No document and no group" in _text(pages, "/search?q=nothing")
        page = _text(pages, f"/search?q=%20{documents[0].duplicate_id.upper()}")
        assert "A duplicate group of 3 documents" in page

    def test_a_text_is_asked_of_the_window(self, pages: TestClient, documents: list[Seen]) -> None:
        page = _ask(pages, BODY.replace("word5 ", "word five "), "This text is known")
        assert f'href="/groups/{documents[0].duplicate_id}"' in page
        assert "This text is new" in _ask(pages, "Never seen before, not here.", "of the window.")

    def test_a_text_is_asked_of_an_index(self, window: Window) -> None:
        with Deduplicator(Settings()) as deduplicator:
            deduplicator.decide([Document(7, BODY)])
            query = Query(Settings(), deduplicator.index)
            with _client(window, ask=query.ask) as client:
                page = _ask(client, BODY, "This text is known")
        assert "is not in the window" in page
        assert "an exact duplicate." in page


def _ask(client: TestClient, text: str, expected: str) -> str:
    """Ask about a text until an answer has some words, as people do."""
    csrf = re.findall('name="csrf" value="([0-9a-f]{64})"', client.get("/search").text)[0]
    for _ in range(50):
        answer = client.post("/search/text", data={"csrf": csrf, "text": text})
        assert answer.status_code == 200
        if expected in answer.text and "still being read" not in answer.text:
            return answer.text
        time.sleep(0.1)
    raise AssertionError(answer.text)


class TestKnownOriginals:
    def test_step_by_step(self, window: Window) -> None:
        texts = [f"{number} " + BODY.replace("word", f"w{number}") for number in range(300)]
        window.add(_decided([Document(number, text) for number, text in enumerate(texts)]))
        known = KnownOriginals(Settings(), window, most=200)
        assert known.step()
        assert known.step()
        assert not known.step()
        known.close()


class TestHostileDocuments:
    def test_nothing_of_them_is_a_tag(self, window: Window) -> None:
        held = _decided(
            [Document(HOSTILE, f"{HOSTILE} {BODY}"), Document(HOSTILE + "2", f"{HOSTILE} {BODY} x")]
        )
        window.add([one._replace(source=HOSTILE, place=HOSTILE) for one in held])
        with _client(window) as client:
            name = held[0].duplicate_id
            for path in (
                "/",
                f"/groups/{name}",
                "/search?q=%3Cscript%3E",
                f"/groups/{name}?with=1",
            ):
                page = _text(client, path)
                assert "<script>" not in page
                assert "<img src=x" not in page
                assert "7006652" not in page
                assert "\u202e" not in page.replace("value=", "")
                assert "\0" not in page
            found = _text(client, f"/groups/{name}")
            assert 'title="U+202E right-to-left override">RLO</bdi>' in found
            asked = _ask(client, HOSTILE, "This text is")
            assert "<script>" not in asked

    def test_a_link_is_as_it_was_kept(self, window: Window) -> None:
        (one,) = _decided([Document("a", BODY)])
        window.add([one._replace(link='https://x.example/"><script>alert(1)</script>')])
        with _client(window) as client:
            assert "<script>alert" not in _text(client, f"/groups/{one.duplicate_id}")


class TestDisplay:
    def test_what_is_not_seen_is_shown(self) -> None:
        assert str(display.visible("a\tb\nc d é 中 \u200d")) == "a\tb\nc d é 中 \u200d"
        marked = str(display.visible("\0\u202e\u200b<\ud800"))
        assert re.findall(">([^<]+)</bdi>", marked) == ["NUL", "RLO", "ZWSP", "D800"]
        assert "&lt;" in marked
        assert "\u200f" in str(display.visible("א\u200f"))

    @pytest.mark.parametrize("text", ["", "a " * 150, "word " * 4000, "x" * 5000])
    def test_folded_texts_stand_for_all(self, text: str) -> None:
        for left, right in ((text, text), (text + "a", text + "b"), ("a " + text, "b " + text)):
            difference = compare_texts(left, right)
            parts, whole = display.folded(difference, 20_000)
            assert whole
            assert sum(part.characters for part in parts) == sum(
                len(part.text) for part in difference.parts
            )
            assert sum(len(part.text) for part in parts) < 11_000

    def test_what_is_shown_is_bounded(self) -> None:
        parts, whole = display.folded(compare_texts("a b " * 9, "c d " * 9), 20, fold=False)
        assert not whole
        assert sum(len(part.text) for part in parts) == 20

    def test_times_out_of_range(self) -> None:
        assert "1970-01-01 00:00:00" in display.when(0)
        assert str(display.when(10**18)) == "–"
