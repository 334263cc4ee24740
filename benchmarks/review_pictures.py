"""Pictures of the review page: a generated day of documents, decided, looked at in Chromium.

Run: python -m benchmarks.review_pictures --plot docs/images
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from PIL import Image
from playwright.sync_api import expect
from rapidfuzz.distance import Indel

from benchmarks.report import progress
from benchmarks.review_stream import EDITED, documents, stories
from tests.services.browser import DESKTOP, PHONE, Browser, Scheme, Size, Watched
from tests.services.review import Review

_PROGRAM = Path(sys.executable).with_name("stream-dedup")
#: Who labels: how alike two texts must be to be called duplicates, and how many pairs are labelled.
_LABELLERS = {"Ada": (0.95, 60), "Grace": (0.955, 60)}
#: So near to that, one is unsure.
_UNSURE = 0.003
#: Most pairs passed over until one is of a story.
_PASSED_OVER = 60
_COLOURS = 256


class Shot(NamedTuple):
    """A picture: its file's name, how to get to what it shows, and the window."""

    name: str
    open: Callable[[Watched], None]
    size: Size
    scheme: Scheme
    height: int


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", type=Path, required=True, help="folder for the pictures")
    parser.add_argument("--only", default="", help="pictures whose name begins so")
    options = parser.parse_args()
    with _served() as review, Browser() as browser:
        shots = [shot for shot in _SHOTS if shot.name.startswith(options.only)]
        if any(shot.open is _pair for shot in shots):
            for name in _LABELLERS:
                _label(browser.open(review.origin), name)
        for shot in shots:
            path = options.plot / f"review-{shot.name}.png"
            _take(browser.open(review.origin, shot.size, shot.scheme), shot, path)
            progress(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


@contextmanager
def _served() -> Iterator[Review]:
    """Decide the documents of a day, and serve their review page."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        given, made, state = folder / "day.jsonl", folder / "annotated.jsonl", folder / "day.state"
        given.write_bytes(b"".join(line + b"\n" for line in documents()))
        options = ["--output", str(made), "--state", str(state), "--quiet"]
        subprocess.run([str(_PROGRAM), "run", str(given), *options], check=True)
        with Review(made, folder, "--state", str(state), time_field="time") as review:
            yield review


def _overview(page: Watched) -> None:
    page.go("/")


def _group(page: Watched) -> None:
    """Compare an original with the least similar of its duplicates."""
    page.go("/")
    page.page.locator("#figures a[href^='/groups/']").first.click()
    page.page.locator("#members").wait_for()


def _search(page: Watched) -> None:
    """Ask for a text that is nearly that of an original."""
    page.go("/search")
    page.page.locator("#text").fill(EDITED)
    page.page.get_by_role("button", name="Ask").click()
    page.page.locator("#answer").wait_for()


def _pair(page: Watched) -> None:
    """Go on until the pair shown is of a story and not of generated words."""
    _begin(page, "Ada")
    texts = [story.text[:20] for story in stories()]
    for _ in range(_PASSED_OVER):
        if page.page.locator(".words").first.inner_text()[:20] in texts:
            return
        _answer(page, "Ada")


def _begin(page: Watched, name: str) -> None:
    page.go("/label")
    page.page.get_by_label("Name").fill(name)
    page.page.get_by_role("button", name="Begin").click()
    page.page.locator("[data-pair]").wait_for(timeout=300_000)


def _label(page: Watched, name: str) -> None:
    """Label as many pairs as somebody does."""
    _begin(page, name)
    for _ in range(_LABELLERS[name][1]):
        _answer(page, name)
    page.close()


def _answer(page: Watched, name: str) -> None:
    """Label a pair as somebody does who calls duplicates what is alike enough."""
    alike = _LABELLERS[name][0]
    pair = page.page.locator("[data-pair]").get_attribute("data-pair")
    found = Indel.normalized_similarity(*page.page.locator(".words").all_inner_texts())
    page.page.keyboard.press("u" if abs(found - alike) < _UNSURE else "d" if found > alike else "n")
    expect(page.page.locator(f"[data-pair='{pair}']")).to_have_count(0, timeout=60_000)


def _take(page: Watched, shot: Shot, path: Path) -> None:
    """Write a picture of the beginning of a page."""
    shot.open(page)
    page.looks(Size(shot.size.width, shot.height), shot.scheme)
    page.page.evaluate("scrollTo(0, 0)")
    drawn = page.page.screenshot(animations="disabled")
    page.close()
    picture = Image.open(io.BytesIO(drawn)).convert("RGB")
    # A third of the size.
    picture = picture.quantize(_COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    picture.save(path, optimize=True)


_SHOTS = (
    Shot("overview-desktop", _overview, DESKTOP, "light", 1540),
    Shot("overview-dark", _overview, DESKTOP, "dark", 960),
    Shot("overview-phone", _overview, PHONE, "dark", 1480),
    Shot("group-desktop", _group, DESKTOP, "light", 1240),
    Shot("group-phone", _group, PHONE, "light", 1480),
    Shot("search-desktop", _search, DESKTOP, "light", 1000),
    Shot("search-phone", _search, PHONE, "light", 1480),
    Shot("label-desktop", _pair, DESKTOP, "light", 1700),
    Shot("label-phone", _pair, PHONE, "dark", 1480),
)


if __name__ == "__main__":
    main()
