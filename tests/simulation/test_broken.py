"""Each of the broken workers is caught, by the right check, within its number of seeds."""

from __future__ import annotations

import pytest

from tests.simulation.broken import BROKEN
from tests.simulation.simulation import simulate_all


@pytest.mark.parametrize("name", BROKEN)
def test_is_caught(name: str) -> None:
    broken = BROKEN[name]
    for _, result in simulate_all(range(broken.seeds), broken.parts):
        wrong = [text for text in result.violations if text.startswith(broken.breaks)]
        if wrong:
            return
    pytest.fail(f"a worker that {name} goes unnoticed in {broken.seeds} seeds")
