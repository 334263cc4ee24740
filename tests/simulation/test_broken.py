"""Each of the broken workers is caught, by the right check, within its number of seeds."""

from __future__ import annotations

import pytest

from tests.simulation.broken import BROKEN, SAME_IDS
from tests.simulation.simulation import Parts, simulate_all


@pytest.mark.parametrize("name", BROKEN)
def test_is_caught(name: str) -> None:
    broken = BROKEN[name]
    for _, result in simulate_all(range(broken.seeds), broken.parts):
        wrong = [text for text in result.violations if text.startswith(broken.breaks)]
        if wrong:
            return
    pytest.fail(f"a worker that {name} goes unnoticed in {broken.seeds} seeds")


def test_workers_that_mint_the_same_ids_make_no_second_originals() -> None:
    met = 0
    for seed, result in simulate_all(range(100), Parts(patched=SAME_IDS)):
        # Entries of a claim may stand under the keys of the other document, which harms nobody.
        wrong = [text for text in result.violations if not text.startswith(("I2", "I4"))]
        assert not wrong, seed
        met += result.events["id taken"]
    assert met > 20
