"""One browser and, where a module asks for it, one server for all its tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.corpus import annotated, ordinary
from tests.services.browser import Browser, Watched
from tests.services.review import Review


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as started:
        yield started


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("review")


@pytest.fixture(scope="module")
def site(folder: Path) -> Iterator[Review]:
    """The page of the ordinary documents."""
    with Review(annotated(ordinary(), folder), folder, time_field="time") as started:
        yield started


@pytest.fixture
def page(browser: Browser, site: Review) -> Iterator[Watched]:
    """A new page of the ordinary documents; nothing may have gone wrong in it at the end."""
    opened = browser.open(site.origin)
    yield opened
    assert opened.wrong() == []
    opened.close()
