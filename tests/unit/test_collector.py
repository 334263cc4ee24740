"""The garbage collector of a worker stays out of its batches."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from unittest import mock

import pytest

from stream_dedup.stream import collector
from stream_dedup.stream.collector import Circles, calm


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def runs() -> int:
    return sum(generation["collections"] for generation in gc.get_stats())


def test_no_batch_is_looked_through() -> None:
    calm(1000)
    before = runs()

    batch: list[list[list[object]]] = []
    for _ in range(5):
        batch = [[[] for _ in range(20)] for _ in range(1000)]
    assert batch

    assert runs() == before


def test_circles_are_still_found() -> None:
    calm(1)
    before = runs()

    for _ in range(20_000):
        circle: list[object] = []
        circle.append(circle)

    assert runs() > before


class Batch(list[object]):
    """Can be waited for."""


def circle() -> weakref.ref[Batch]:
    batch = Batch()
    batch.append(batch)
    return weakref.ref(batch)


def test_circles_go_after_so_many_bytes_or_seconds() -> None:
    gc.disable()
    try:
        circles = Circles(100)
        left = circle()
        circles.note(60)
        circles.note(60)
        assert left() is not None
        circles.note(1)
        assert left() is None

        left = circle()
        circles.note(100)
        assert left() is not None
        circles.soon()
        circles.note(1)
        assert left() is None

        left = circle()
        circles.note(0)
        assert left() is not None
        with mock.patch.object(collector, "CIRCLE_SECONDS", 0.0):
            circles.note(0)
        assert left() is None
    finally:
        gc.enable()


def test_free_memory_goes_back() -> None:
    with mock.patch.object(collector, "_trim") as trim:
        circles = Circles(100)
        circles.note(1000)
        circles.note(1000)
        assert trim.call_count == 0
        with mock.patch.object(collector, "CIRCLE_SECONDS", 0.0):
            circles.note(0)
        assert trim.call_args_list == [mock.call(0)]

    collector.give_back()
    with mock.patch.object(collector, "_trim", None):
        collector.give_back()
