"""The Redis of the simulation answers every call as a real one does."""

from __future__ import annotations

from collections import Counter
from importlib.resources import files
from typing import Any

import numpy as np
import redis

from tests.simulation.functions import Functions
from tests.simulation.simulation import Parts, simulate_all

SEEDS = 150
#: Buckets of a simulated index, at least.
BUCKETS = 20
#: Functions that a worker calls on partitions.
_CALLED = {"probe", "register", "put", "read", "settle", "withdraw", "forget", "note", "retire"}


def test_replies_are_those_of_the_functions_in_redis(redis_url: str) -> None:
    real = redis.Redis.from_url(redis_url)
    real.function_load(files("stream_dedup.index").joinpath("lua/claims.lua").read_text(), True)
    simulated, simulate_sweep, called = Functions.call, Functions.sweep, Counter[str]()
    #: The simulated one of the current seed, as long as both hold the same.
    current: list[Functions | None] = [None]

    def begin(self: Functions) -> None:
        if not self.index and not self.fences:  # a seed begins
            real.flushdb()
            current[0] = self

    def call(self: Functions, function: str, key: bytes, *arguments: Any) -> Any:
        begin(self)
        reply = simulated(self, function, key, *arguments)
        if function in _CALLED and self is current[0]:
            called[function] += 1
            name, keys = f"stream_dedup_2_{function}", (key, key + b"-")
            assert reply == real.fcall(name, 2, *keys, *arguments), function
        return reply

    def sweep(self: Functions, prefixes: list[bytes], time: float, attempt: float) -> None:
        begin(self)
        simulate_sweep(self, prefixes, time, attempt)
        for prefix in prefixes if self is current[0] else ():
            numbers = np.arange(BUCKETS, dtype="<u4").tobytes()
            clearing = (numbers, self.fences[prefix], np.array(-np.inf, "<f8").tobytes(), 10)
            real.fcall("stream_dedup_2_clear", 2, prefix, prefix + b"-", *clearing)

    def lose(_self: Functions, _what: object) -> None:
        current[0] = None

    name = "tests.simulation.functions.Functions"
    replaced = {"call": call, "sweep": sweep, "lose": lose, "restore": lose}
    parts = Parts(patched=tuple((f"{name}.{one}", by) for one, by in replaced.items()))
    for _, result in simulate_all(range(SEEDS), parts):
        assert not result.violations
        assert not result.events["died"]
    assert set(called) == _CALLED
    assert min(called.values()) >= 5, called
