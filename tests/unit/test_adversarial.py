"""Who does not know the seed cannot bring unrelated documents under one key."""

from __future__ import annotations

from functools import cache

import pytest

from benchmarks.adversarial import Spread, aim, honest, keys_of, settings_of, spread, texts
from stream_dedup.fingerprint.fingerprinter import Fingerprinter

DOCUMENTS = 2_000
METHODS = ("minhash", "simhash")


@cache
def found(method: str, seed: str, *, aimed: bool) -> Spread:
    make = aim(Fingerprinter(settings_of(method))) if aimed else honest
    return spread(keys_of(Fingerprinter(settings_of(method, seed)), texts(make, DOCUMENTS)))


@pytest.mark.parametrize("method", METHODS)
def test_with_the_seed_most_documents_can_be_aimed(method: str) -> None:
    assert found(method, "", aimed=True).largest > DOCUMENTS / 2


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", ["a secret", "another one"])
def test_without_it_the_same_documents_lie_as_honest_ones_do(method: str, seed: str) -> None:
    aimed, ordinary = found(method, seed, aimed=True), found(method, seed, aimed=False)

    assert aimed.largest <= ordinary.largest + 2
    assert aimed.keys >= 0.99 * ordinary.keys
    # Chi-square by its degrees of freedom has a standard deviation of .044 here.
    assert aimed.deviation < ordinary.deviation + 0.4
