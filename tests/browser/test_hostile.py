"""Documents, ids, sources and links that would run scripts, mislead, or leave their boxes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.browser.corpus import HEBREW, MARKUP, annotated, hostile
from tests.services.browser import DESKTOP, NARROW, Browser, Watched
from tests.services.review import Review

#: Where the pages take texts, ids and sources from; each group has three documents.
_KINDS = ("markup", "override", "hebrew", "arabic", "long", "nul", "template")


@pytest.fixture(scope="module")
def site(folder: Path) -> Iterator[Review]:
    """The page of the hostile documents."""
    large = str(4 << 20)  # one document is larger than the default allows
    made = annotated(hostile(), folder)
    with Review(made, folder, time_field="time", max_document_bytes=large) as started:
        yield started


@pytest.fixture
def page(browser: Browser, site: Review) -> Iterator[Watched]:
    opened = browser.open(site.origin)
    yield opened
    opened.close()


def _harmless(page: Watched) -> None:
    assert page.page.evaluate("window.executed") is None
    assert page.page.locator("main img, main script, main svg[onload]").count() == 0
    assert "\u202e" not in page.page.locator("body").inner_text()
    links = page.page.locator("a[href]").evaluate_all("(all) => all.map((one) => one.href)")
    assert all(re.match(r"https?://", link) for link in links)
    for size in (NARROW, DESKTOP):
        page.looks(size, "light")
        assert page.sideways() == []
    assert page.wrong() == []


def _open_group(page: Watched, name: str) -> None:
    page.go(f"/search?q={quote(name)}")
    page.page.locator("main a[href^='/groups/']").first.click()
    page.page.locator("#comparison .text").first.wait_for()


def test_the_overview_shows_hostile_sources_as_they_are(page: Watched) -> None:
    page.go("/")

    assert "<script>" in page.page.locator("#figures").inner_text()
    _harmless(page)


@pytest.mark.parametrize("kind", _KINDS)
def test_a_group_shows_hostile_documents_as_they_are(page: Watched, kind: str) -> None:
    _open_group(page, f"{MARKUP if kind == 'markup' else kind}-2")

    _harmless(page)


@pytest.mark.parametrize("copy", [1, 2, 3])
def test_search_shows_hostile_ids_as_they_are(page: Watched, copy: int) -> None:
    page.go(f"/search?q={quote(f'{MARKUP}-{copy}')}")

    assert "<script>" in page.page.locator("#results").inner_text()
    _harmless(page)


def test_a_megabyte_in_one_word_is_shown_in_full_when_asked_for(page: Watched) -> None:
    _open_group(page, "long-2")

    page.page.get_by_role("link", name="Show all").click()
    page.page.locator("#comparison", has_text="Only the first").wait_for()

    _harmless(page)


def test_links_that_are_no_pages_are_not_links(page: Watched) -> None:
    page.go("/search?q=hebrew-1")

    assert page.page.locator("main a[target=_blank]").count() == 0


@pytest.mark.parametrize("kind", ["hebrew", "arabic"])
def test_text_that_runs_from_right_to_left_is_shown_so(page: Watched, kind: str) -> None:
    _open_group(page, f"{kind}-2")

    directions = page.page.locator("#comparison .text").evaluate_all(
        "(all) => all.map((one) => getComputedStyle(one).direction)"
    )

    assert set(directions) == {"rtl"}


def test_a_pasted_script_is_only_text(page: Watched) -> None:
    for text in (MARKUP, HEBREW, "w" * 300_000):
        page.go("/search")
        page.page.locator("#text").fill(text)
        page.page.get_by_role("button", name="Ask").click()
        page.page.locator("#answer").wait_for()
        _harmless(page)


def test_hostile_words_in_addresses_are_shown_as_they_are(page: Watched) -> None:
    for word in (MARKUP, '"><script>window.executed = 1</script>', "\u202e" + "x" * 900):
        page.go(f"/search?q={quote(word)}")
        _harmless(page)
