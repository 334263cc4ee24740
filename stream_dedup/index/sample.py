"""Samples of an index in Redis: how much it holds, how evenly, and what memory that takes.

One client at a time takes a sample and leaves it in the index, for all the others to read:

    NS:{index}:sampler    there while it is too early for the next sample; it expires
    NS:{index}:sample     the latest sample, JSON; it expires too

Which sorted sets there may be follows from the layout, so a sample picks some of each table at
random and asks for their lengths, a few hundred in a call. The longest are asked again in each
sample to come: a set that draws ever more entries is followed once it was found.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import numpy as np
from redis.exceptions import NoPermissionError, OutOfMemoryError

from stream_dedup.index.connection import Client, nodes_of, reporting_errors
from stream_dedup.index.keys import IDS, Layout
from stream_dedup.index.progress import count_originals

#: Sorted sets of each table that a sample asks for; all of them where there are no more.
SETS = 256
#: The longest of them, to be asked again.
_FOLLOWED = 16
#: Lengths in one round of calls: less than a millisecond of the server.
_CALLS = 256
#: Intervals after which a sample is not to be read any more, and seconds that it is kept at least.
_KEPT, _LEAST_KEPT = 10, 60.0

#: Called after each round of calls with the seconds that it took; what it raises ends the sample.
Pause = Callable[[float], None]


class Node(msgspec.Struct, frozen=True):
    """Memory of a node in bytes: what it uses, and its limit, 0 without one."""

    used: int
    limit: int


class Sample(msgspec.Struct, frozen=True):
    """What a sample found.

    Attributes:
        time: when it was taken, Unix time.
        originals: number of originals.
        entries: entries of each table, estimated; by its number, ``ids`` for that of document ids.
        mean: mean length of the sampled sorted sets that are not empty, 0 where all are.
        longest: the longest sorted sets, by key.
        nodes: those that take writes; None where the user may not ask.
    """

    time: float
    originals: int
    entries: dict[str, float]
    mean: float
    longest: dict[str, int]
    nodes: list[Node] | None


class Sampler:
    """Takes samples of one index, or reads those of others.

    All methods raise ``ServiceError`` where Redis is out of reach or refuses.

    Args:
        client: connection, which is not closed.
        layout: of the index.
        interval: seconds from one sample to the next.
        seed: of the choice of sorted sets.
    """

    def __init__(
        self, client: Client, layout: Layout, interval: float, seed: int | None = None
    ) -> None:
        self._client = client
        self._layout = layout
        self._interval = interval
        self._random = np.random.default_rng(seed)
        self._key = f"{layout.index_key}:sample"
        self._turn_key = f"{layout.index_key}:sampler"

    def turn(self) -> bool:
        """Tell whether it is time for a sample, which the caller is then to take."""
        with reporting_errors():
            try:
                return bool(self._client.set(self._turn_key, 1, nx=True, px=_ms(self._interval)))
            except OutOfMemoryError:
                # Nobody can leave a sample for the others, and now more than ever all want one.
                return True

    def latest(self) -> Sample | None:
        """Return the latest sample, if there is one."""
        with reporting_errors():
            value: Any = self._client.get(self._key)
        try:
            return msgspec.json.decode(value, type=Sample) if value else None
        except msgspec.DecodeError:  # that of another version
            return None

    def take(self, pause: Pause = lambda _seconds: None) -> Sample:
        """Take a sample and leave it for the others."""
        known = self.latest()
        lengths = self._lengths(list(known.longest) if known else [], pause)
        sampled: list[int] = []
        entries: dict[str, float] = {}
        for table, count in self._layout.tables().items():
            found = self._lengths(self._some_keys(table, count), pause)
            entries["ids" if table == IDS else str(table)] = _mean(found.values()) * count
            sampled += found.values()
            lengths |= found
        longest = sorted(lengths.items(), key=lambda one: -one[1])[:_FOLLOWED]
        sample = Sample(
            time=time.time(),
            originals=count_originals(self._client, self._layout),
            entries=entries,
            mean=_mean([length for length in sampled if length]),
            longest={key: length for key, length in longest if length},
            nodes=self._nodes(),
        )
        self._leave(sample)
        return sample

    def _some_keys(self, table: int, count: int) -> list[str]:
        """Return keys of some sorted sets of a table that may have so many."""
        if count <= SETS:
            names = np.arange(count, dtype=np.uint64)
        else:
            names = np.unique(self._random.integers(count, size=SETS, dtype=np.uint64))
        suffixes, partitions = self._layout.some_sets(table, names)
        return [
            self._layout.partition_key(partition) + suffix.decode()
            for suffix, partition in zip(suffixes.tolist(), partitions.tolist(), strict=True)
        ]

    def _lengths(self, keys: Sequence[str], pause: Pause) -> dict[str, int]:
        """Return the length of each sorted set, 0 where there is none."""
        lengths: dict[str, int] = {}
        for start in range(0, len(keys), _CALLS):
            some = keys[start : start + _CALLS]
            began = time.monotonic()
            with reporting_errors():
                pipeline = self._client.pipeline(transaction=False)
                for key in some:
                    # What ZCARD says as well, but a worker has the right to this one anyway.
                    pipeline.zcount(key, "-inf", "+inf")
                lengths |= zip(some, pipeline.execute(), strict=True)
            pause(time.monotonic() - began)
        return lengths

    def _nodes(self) -> list[Node] | None:
        """Ask for the memory of each node that takes writes."""
        nodes = []
        with reporting_errors():
            for node in nodes_of(self._client):
                try:
                    facts: Any = node.info("memory")
                except NoPermissionError:
                    return None
                nodes.append(Node(int(facts["used_memory"]), int(facts.get("maxmemory", 0))))
        return nodes

    def _leave(self, sample: Sample) -> None:
        """Keep a sample for the others; a full Redis keeps none."""
        kept = max(_KEPT * self._interval, _LEAST_KEPT)
        with reporting_errors(), suppress(OutOfMemoryError):
            self._client.set(self._key, msgspec.json.encode(sample), px=_ms(kept))


def _ms(seconds: float) -> int:
    return max(1, int(seconds * 1000))


def _mean(numbers: Collection[int]) -> float:
    return sum(numbers) / len(numbers) if numbers else 0.0
