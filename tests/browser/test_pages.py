"""Each page, at every width and in light and dark: nothing fails, and everyone can read it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.services.browser import DESKTOP, NARROW, PHONE, Browser, Scheme, Size, Watched
from tests.services.review import Review

Open = Callable[[Watched], None]


def _at(path: str) -> Open:
    return lambda page: page.go(path)


def _largest_group(page: Watched) -> None:
    page.go("/")
    page.page.locator("#figures a[href^='/groups/']").first.click()
    page.page.locator("h1", has_text="Group").wait_for()


def _known_text(page: Watched) -> None:
    page.go("/search")
    page.page.locator("#text").fill("Sold out")
    page.page.get_by_role("button", name="Ask").click()
    page.page.locator("#answer").wait_for()


def _pair(page: Watched) -> None:
    page.go("/label")
    page.page.get_by_label("Name").fill("Ada")
    page.page.get_by_role("button", name="Begin").click()
    page.page.locator("[data-pair]").wait_for(timeout=60_000)
    page.page.keyboard.press("d")
    page.page.get_by_text("What the labels say").wait_for()


#: Colours do not depend on the width, so each of both is looked at with one of the other.
_LOOKS: tuple[tuple[Size, Scheme], ...] = ((DESKTOP, "light"), (PHONE, "dark"))

PAGES = {
    "overview": _at("/"),
    "group": _largest_group,
    "search": _at("/search"),
    "found": _at("/search?q=en-01"),
    "not found": _at("/search?q=nothing-has-this-id"),
    "known": _known_text,
    "name": _at("/label"),
    "pair": _pair,
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_works_reads_well_and_fits(browser: Browser, site: Review, name: str) -> None:
    page = browser.open(site.origin)

    PAGES[name](page)

    assert page.wrong() == []
    for size, scheme in _LOOKS:
        page.looks(size, scheme)
        assert page.violations() == ""
    page.looks(NARROW, "light")
    assert page.sideways() == []
    page.close()


def test_a_page_that_does_not_exist_says_so_and_leads_back(browser: Browser, site: Review) -> None:
    page = browser.open(site.origin)

    page.go("/nowhere")

    assert page.violations() == ""
    assert page.page.get_by_role("link", name="Overview", exact=True).is_visible()
    assert any("answer 404" in one for one in page.wrong())
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_chosen_colours_stay(browser: Browser, site: Review, scheme: str) -> None:
    page = browser.open(site.origin)
    page.go("/")
    for _ in range(1 if scheme == "light" else 2):
        page.page.locator("#theme").click()

    page.go("/search")

    assert page.page.locator("html").get_attribute("data-theme") == scheme
    assert page.wrong() == []
    page.close()
