"""Two people label pairs with single keys, and the page says what follows from their labels."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import expect

from tests.services.browser import Browser, Watched
from tests.services.review import Review

_PROGRAM = Path(sys.executable).with_name("stream-dedup")


def _begin(page: Watched, name: str) -> None:
    page.go("/label")
    page.tab_to(page.page.get_by_label("Name"))
    page.page.keyboard.type(name)
    page.page.keyboard.press("Enter")
    page.page.locator("[data-pair]").wait_for(timeout=60_000)


def _shown(page: Watched) -> str:
    return page.page.locator("[data-pair]").get_attribute("data-pair") or ""


def _press(page: Watched, key: str) -> str:
    """Press a key that leads to another pair; return the one that it was pressed on."""
    pair = _shown(page)
    page.page.keyboard.press(key)
    expect(page.page.locator(f"[data-pair='{pair}']")).to_have_count(0)
    return pair


def test_two_people_label_with_single_keys_and_their_labels_can_be_used(
    browser: Browser, site: Review, tmp_path: Path
) -> None:
    ada, grace = browser.open(site.origin), browser.open(site.origin)

    _begin(ada, "Ada")
    labelled = [_press(ada, key) for key in "dnd"]
    undone = labelled.pop()
    ada.page.keyboard.press("z")
    expect(ada.page.locator(f"[data-pair='{undone}']")).to_have_count(1)
    labelled += [_press(ada, key) for key in "unddd"]
    _begin(grace, "Grace")
    seen = [_press(grace, key) for key in "dndnd"]

    assert set(seen) & set(labelled)  # people are shown pairs in common
    results = grace.page.locator(".results")
    expect(results).to_contain_text("Precision")
    expect(results).to_contain_text("Recall")
    expect(results).to_contain_text("95 % interval")
    expect(results.locator("section", has_text="Agreement")).to_contain_text("Ada and Grace")
    expect(results).to_contain_text("Cohen's kappa")
    for name in ("labels.jsonl", "documents.jsonl"):
        with grace.page.expect_download() as download:
            grace.tab_to(grace.page.locator(f".exports a[href$='/{name}']"))
            grace.page.keyboard.press("Enter")
        download.value.save_as(tmp_path / name)
    assert _evaluated(tmp_path)["pairs"]
    assert ada.wrong() == []
    assert grace.wrong() == []


def _evaluated(folder: Path) -> dict[str, object]:
    command = [str(_PROGRAM), "evaluate", "documents.jsonl", "--pairs", "labels.jsonl", "--json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return dict(json.loads(done.stdout))


def test_keys_can_be_turned_off(browser: Browser, site: Review) -> None:
    page = browser.open(site.origin)
    _begin(page, "Katherine")
    pair = _shown(page)

    page.page.locator("#keys").click()
    page.page.keyboard.press("d")
    page.go("/label")

    assert _shown(page) == pair
    assert page.wrong() == []
