"""Whole ways through the pages without a mouse."""

from __future__ import annotations

import json
from pathlib import Path

from playwright.sync_api import expect

from tests.browser.corpus import examples
from tests.services.browser import Watched

_RING = "() => getComputedStyle(document.activeElement).outlineStyle"


def _press_on(page: Watched, selector: str, key: str = "Enter") -> None:
    page.tab_to(page.page.locator(selector).first)
    page.page.keyboard.press(key)


def _follow(page: Watched, selector: str) -> None:
    with page.page.expect_navigation():
        _press_on(page, selector)


def test_the_first_key_leads_past_the_navigation(page: Watched) -> None:
    page.go("/")

    page.page.keyboard.press("Tab")
    expect(page.page.locator(":focus")).to_have_text("Skip to the content")
    assert page.page.locator(":focus").bounding_box() is not None
    page.page.keyboard.press("Enter")

    expect(page.page.locator("main")).to_be_focused()


def test_whatever_has_the_focus_shows_it(page: Watched) -> None:
    page.go("/")
    rings = []

    for _ in range(12):
        page.page.keyboard.press("Tab")
        rings.append(page.page.evaluate(_RING))

    assert "none" not in rings


def test_a_document_is_found_by_its_id_and_leads_to_its_group(page: Watched) -> None:
    page.go("/")

    _follow(page, "nav a[href='/search']")
    page.tab_to(page.page.locator("#q"))
    page.page.keyboard.type("en-06")
    with page.page.expect_navigation():
        page.page.keyboard.press("Enter")
    _follow(page, "main a[href^='/groups/']")

    expect(page.page.locator("#compared")).to_contain_text("en-01")
    expect(page.page.locator("#compared")).to_contain_text("en-06")


def test_pasted_text_is_said_to_be_known_or_new(page: Watched) -> None:
    known = next(row["text"] for row in examples() if row["id"] == "en-01")
    answers = []

    for text in (str(known), "Words that nobody has written in this order before, about zebras."):
        page.go("/search")
        page.tab_to(page.page.locator("#text"))
        page.page.keyboard.insert_text(text)
        page.page.keyboard.press("Tab")
        with page.page.expect_navigation():
            page.page.keyboard.press("Enter")
        answers.append(page.page.locator("#answer").inner_text())

    assert answers == ["This text is known", "This text is new"]


def _first_members(page: Watched) -> list[str]:
    return page.page.locator("#members .id").all_inner_texts()


def test_a_group_is_sorted_paged_and_compared(page: Watched) -> None:
    page.go("/")
    _follow(page, "#figures a[href^='/groups/']")
    seen = [_first_members(page)]

    for selector in ("#members a[href*='sort=newest']", "a[rel=next]", "a[rel=prev]"):
        _follow(page, selector)
        seen.append(_first_members(page))
    compared = page.page.locator("#members .id").nth(3).inner_text()
    _press_on(page, "#members tr:nth-child(4) a.button")

    expect(page.page.locator("#comparison")).to_contain_text(compared)
    first, newest, second, back = seen
    assert first != newest
    assert not set(newest) & set(second)
    assert back == newest


def test_differences_are_switched_from_side_by_side_to_inline(page: Watched) -> None:
    page.go("/search?q=en-06")
    _follow(page, "main a[href^='/groups/']")
    beside, inline = page.page.locator(".beside"), page.page.locator(".inline")
    expect(beside).to_be_visible()

    _press_on(page, "#view-side", "ArrowRight")

    expect(inline).to_be_visible()
    expect(beside).to_be_hidden()
    assert inline.locator("del").count() > 0
    assert inline.locator("ins").count() > 0


def test_a_group_is_downloaded(page: Watched, tmp_path: Path) -> None:
    page.go("/search?q=en-01")
    _follow(page, "main a[href^='/groups/']")

    with page.page.expect_download() as download:
        _press_on(page, "a[href$='.jsonl'][download]")
    download.value.save_as(tmp_path / "group.jsonl")

    lines = (tmp_path / "group.jsonl").read_text("utf-8").splitlines()
    assert {json.loads(line)["id"] for line in lines} == {"en-01", "en-03", "en-06", "en-28"}
