"""The overview goes on while documents come, and stops when it is asked to."""

from __future__ import annotations

import os
from pathlib import Path

from playwright.sync_api import expect

from stream_dedup.generate import StreamShape, generate
from stream_dedup.stream.files import CHUNK_LINES
from tests.browser.corpus import annotated
from tests.services.browser import Browser
from tests.services.review import Review

#: Longer than the page waits between two looks.
_SOON_MS = 30_000


def test_new_documents_are_shown_until_the_page_is_paused(browser: Browser, folder: Path) -> None:
    shape = StreamShape(documents=3 * CHUNK_LINES, duplicate_share=0, words=12)
    rows = [{"id": made.id, "text": made.text} for made in generate(shape)]
    lines = annotated(rows, folder).read_bytes().splitlines(keepends=True)
    parts = [b"".join(lines[begin : begin + CHUNK_LINES]) for begin in (0, CHUNK_LINES)]
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    # Not unbuffered: a signal would cut what is written short.
    with Review(pipe, folder, reads_on=True) as review, pipe.open("wb") as stream:
        page = browser.open(review.origin)
        shown = page.page.locator(".tiles dd").first
        page.go("/")
        expect(page.page.locator("#figures")).to_contain_text("No documents yet")

        stream.write(parts[0])
        stream.flush()
        expect(shown).to_have_text(f"{CHUNK_LINES:,}", timeout=_SOON_MS)
        page.page.get_by_role("button", name="Pause").press("Enter")
        stream.write(parts[1])
        stream.flush()

        page.page.wait_for_timeout(6_000)
        expect(shown).to_have_text(f"{CHUNK_LINES:,}")
        page.page.get_by_role("button", name="Paused").press("Enter")
        expect(shown).to_have_text(f"{2 * CHUNK_LINES:,}", timeout=_SOON_MS)
        assert page.wrong() == []
        page.close()
