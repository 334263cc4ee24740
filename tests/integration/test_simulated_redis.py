"""The Redis of the simulation answers every call as a real one does."""

from __future__ import annotations

from collections import Counter
from importlib.resources import files
from typing import Any

import redis

from tests.simulation.functions import Functions
from tests.simulation.simulation import Parts, simulate_all

SEEDS = 150
#: Functions that a worker calls on partitions.
_CALLED = {"probe", "register", "put", "read", "settle", "withdraw", "forget", "note", "retire"}


def test_replies_are_those_of_the_functions_in_redis(redis_url: str) -> None:
    real = redis.Redis.from_url(redis_url)
    real.function_load(files("stream_dedup.index").joinpath("lua/claims.lua").read_text(), True)
    simulated, called = Functions.call, Counter[str]()
    #: The simulated one of the current seed, as long as both hold the same.
    current: list[Functions | None] = [None]

    def call(self: Functions, function: str, key: bytes, *arguments: Any) -> Any:
        if function == "enter" and not self.index:  # a seed begins
            real.flushdb()
            current[0] = self
        reply = simulated(self, function, key, *arguments)
        if function in _CALLED and self is current[0]:
            called[function] += 1
            name, keys = f"stream_dedup_2_{function}", (key, key + b"-")
            assert reply == real.fcall(name, 2, *keys, *arguments), function
        return reply

    def lose(_self: Functions, _writes: int) -> None:
        current[0] = None

    name = "tests.simulation.functions.Functions"
    parts = Parts(patched=((f"{name}.call", call), (f"{name}.lose", lose)))
    for _, result in simulate_all(range(SEEDS), parts):
        assert not result.violations
        assert not result.events["died"]
    assert set(called) == _CALLED
    assert min(called.values()) >= 5, called
