"""How far the rebuild of an index in Redis has come, kept in the index itself.

Fields of the hash NS:{index}, beside its description:
    rebuild       ``running SOURCE`` while a rebuild or an import goes on, ``done SOURCE`` after it,
                  nothing once a worker has begun (or where there never was a rebuild)
    rebuilt       how many originals there were when it was done
    position P    for partition P of the source: the next offset, and the tick of the last claim id
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from stream_dedup.errors import ServiceError
from stream_dedup.index.connection import Client, reporting_errors
from stream_dedup.index.keys import Layout
from stream_dedup.index.store import RedisStore

_POSITION = "position "


class State(StrEnum):
    """What the index says of its rebuild."""

    NONE = ""
    RUNNING = "running"
    DONE = "done"


class Position(NamedTuple):
    """How far one partition of the source has been taken in.

    Attributes:
        offset: the next offset.
        tick: tick of the last claim id that was given to an original of the partition.
    """

    offset: int = 0
    tick: int = 0


class Progress:
    """Reads and writes how far the rebuild of an index has come.

    All methods raise ``ServiceError`` where Redis is out of reach.
    """

    def __init__(self, store: RedisStore) -> None:
        self._client = store.client
        self._layout = store.layout
        self._key = store.layout.index_key

    def read(self) -> tuple[State, str]:
        """Return the state, and the source that the index was rebuilt from."""
        with reporting_errors():
            value: Any = self._client.hget(self._key, "rebuild")
        state, _, source = (value or b"").decode().partition(" ")
        return State(state), source

    def start(self, source: str) -> dict[int, Position]:
        """Begin, or go on with what was begun; return how far it has come.

        Raises:
            ServiceError: the index holds originals of another origin.
        """
        state, before = self.read()
        name = self._layout.namespace
        if state is not State.NONE and before != source:
            msg = (
                f"The index {name!r} was rebuilt from {before}, not {source}. Name the same "
                "source, or another redis_namespace."
            )
            raise ServiceError(msg)
        if state is not State.RUNNING and self._count() != self._rebuilt(state):
            msg = (
                f"The index {name!r} holds originals already. Name another redis_namespace for the "
                "new index, and give it to the workers afterwards."
            )
            raise ServiceError(msg)
        self._mark(State.RUNNING, source)
        return self.positions()

    def positions(self) -> dict[int, Position]:
        """Return how far each partition of the source has been taken in."""
        with reporting_errors():
            fields: Any = self._client.hgetall(self._key)
        positions = {}
        for name, value in fields.items():
            if name.startswith(_POSITION.encode()):
                offset, tick = map(int, value.split())
                positions[int(name[len(_POSITION) :])] = Position(offset, tick)
        return positions

    def save(self, positions: Mapping[int, Position]) -> None:
        """Keep how far some partitions have been taken in."""
        fields: Any = {
            f"{_POSITION}{number}": f"{one.offset} {one.tick}" for number, one in positions.items()
        }
        if fields:
            with reporting_errors():
                self._client.hset(self._key, mapping=fields)

    def finish(self) -> None:
        """Let workers begin."""
        with reporting_errors():
            self._client.hset(self._key, "rebuilt", str(self._count()))
        self._mark(State.DONE, self.read()[1])

    def clear(self) -> None:
        """Note that a worker has begun: from now on the source alone does not make this index."""
        with reporting_errors():
            self._client.hdel(self._key, "rebuild")

    def refuse_unfinished(self) -> None:
        """Refuse an index that is being rebuilt.

        Raises:
            ServiceError: it is.
        """
        state, source = self.read()
        if state is State.RUNNING:
            msg = (
                f"The index {self._layout.namespace!r} is being rebuilt from {source}. Wait for "
                "that to end, or make it again if it was interrupted: it goes on where it was."
            )
            raise ServiceError(msg)

    def _count(self) -> int:
        return count_originals(self._client, self._layout)

    def _rebuilt(self, state: State) -> int:
        """Return how many originals an index has that nobody used since its rebuild, if any."""
        if state is State.NONE:
            return 0
        with reporting_errors():
            value: Any = self._client.hget(self._key, "rebuilt")
        return int(value or 0)

    def _mark(self, state: State, source: str) -> None:
        with reporting_errors():
            self._client.hset(self._key, "rebuild", f"{state} {source}")


def count_originals(client: Client, layout: Layout) -> int:
    """Return how many originals an index holds.

    Raises:
        ServiceError: Redis is out of reach.
    """
    with reporting_errors():
        pipeline = client.pipeline(transaction=False)
        for partition in range(layout.partitions):
            pipeline.get(f"{layout.partition_key(partition)}n")
        return sum(int(count or 0) for count in pipeline.execute())
