"""From bytes to a decision, nothing takes more than linear time, whatever a message repeats."""

from __future__ import annotations

import pytest

from tests.hostile.growth import WAYS, decide, growth, pairs

#: Bytes of the messages that are measured; each is four times the one before.
SIZES = (8_000, 32_000, 128_000, 512_000)


@pytest.mark.parametrize(("way", "name"), list(pairs()))
def test_four_times_the_bytes_do_not_take_ten_times_as_long(way: str, name: str) -> None:
    """Linear is 4, quadratic 16; n log n is below 5 here."""
    make = WAYS[way][1][name]

    assert growth(decide(way), make, SIZES) < 10
