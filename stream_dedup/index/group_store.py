"""The states of duplicate groups in Redis, as bytes: read some, swap some, know when they are lost.

A partition of states has a *word*, which no other life of it had, and which tells whether its
states are complete or being put back. Every call names the words that this process knows, so that a
partition that came back empty is found out before anything is counted from zero there.
"""

from __future__ import annotations

import secrets
import struct
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Self

from redis.exceptions import RedisError

from stream_dedup.errors import ConfigurationMismatch, ServiceError
from stream_dedup.index.connection import Client, connect, reporting_errors, target_of
from stream_dedup.index.failures import Kind, count
from stream_dedup.index.functions import GROUPS
from stream_dedup.settings import Settings

#: States in one function call, which blocks the server: about 1 ms.
_ROWS = 256

#: Stands before a word while the states are being put back.
_INCOMPLETE = b"?"

_SWAP = struct.Struct("<QQI")
_REFUSED = struct.Struct("<II")


_LOST = "Redis has lost the states of groups. They are restored from groups_topic."


class Held(NamedTuple):
    """A state as it stands.

    Attributes:
        revision: members folded into it; 0 when there is none.
        value: what is published of it; empty when there is none.
    """

    revision: int
    value: bytes


ABSENT = Held(0, b"")


class Swap(NamedTuple):
    """A state to be put in the place of another.

    Attributes:
        duplicate_id: name of the group, 24 hexadecimal digits.
        expected: revision that must stand; 0 when there must be none.
        held: what to put there.
        ttl: seconds after which it is dropped; None for never.
    """

    duplicate_id: str
    expected: int
    held: Held
    ttl: float | None = None


class GroupsLostError(ServiceError):
    """Some partition of states has lost its data, or another life than this process knows."""


class GroupStore:
    """The states of duplicate groups, in all partitions of a namespace.

    Args:
        client: connected to the node or the Cluster.
        settings: namespace, partitions, and how many replicas must have a write.
    """

    def __init__(self, client: Client, settings: Settings) -> None:
        self._client = client
        self._prefixes = [
            f"{settings.redis_namespace}:{{{number}}}:" for number in range(settings.partitions)
        ]
        self._words = [b""] * settings.partitions
        self._replicas = settings.wait_replicas
        self._wait_ms = int(settings.wait_timeout * 1000)

    @classmethod
    def connect(cls, settings: Settings) -> Self:
        """Connect to the Redis of the settings.

        Raises:
            ServiceError: it does not answer.
        """
        return cls(connect(settings), settings)

    def enter(self) -> bool:
        """Load the functions; return whether all states are there, as far as is known.

        Raises:
            ConfigurationMismatch: the states are spread over another number of partitions.
            ServiceError: Redis is out of reach or refuses.
        """
        with reporting_errors():
            GROUPS.load(self._client)
        self._words = self._named("enter", [""] * len(self._words))
        return all(map(_is_complete, self._words))

    def begin(self) -> None:
        """Begin to put states back, in the lives that the partitions have from now on.

        Raises:
            ConfigurationMismatch, ServiceError: as for ``enter``.
        """
        with reporting_errors():
            GROUPS.load(self._client)
        suffix = f"/{len(self._prefixes)}"
        self._words = self._named("enter", [secrets.token_hex(8) + suffix for _ in self._words])

    def complete(self) -> None:
        """Say that the states of every partition are there, which was begun.

        Raises:
            GroupsLostError: a partition has lost its data since then.
            ServiceError: Redis is out of reach or refuses.
        """
        lives = list(map(_life, self._words))
        self._words = self._named("complete", lives)
        if self._words != lives:
            raise GroupsLostError(_LOST)

    def read(self, ids: Sequence[str], *, complete: bool = True) -> list[Held]:
        """Return the states of some groups.

        Args:
            ids: their names.
            complete: whether the states must be complete; False while they are put back.

        Raises:
            GroupsLostError: some partition they are in has lost its data.
            ServiceError: Redis is out of reach or refuses.
        """
        found = [ABSENT] * len(ids)

        def take(rows: list[int], reply: bytes) -> None:
            at = 0
            for row in rows:
                end = at + 4 + int.from_bytes(reply[at : at + 4], "little")
                found[row] = _held(reply[at + 4 : end])
                at = end

        self._call("read", ids, [name.encode() for name in ids], take, complete=complete)
        return found

    def swap(self, swaps: Sequence[Swap], *, complete: bool = True) -> dict[int, Held]:
        """Put states in the place of those expected; return what stands where others were found.

        Raises:
            GroupsLostError: as for ``read``; states of other partitions may have been put.
            ServiceError: Redis is out of reach or refuses, or too few replicas have the states.
        """
        refused: dict[int, Held] = {}

        def take(rows: list[int], reply: bytes) -> None:
            at = 0
            while at < len(reply):
                row, length = _REFUSED.unpack_from(reply, at)
                at += _REFUSED.size + length
                refused[rows[row]] = _held(reply[at - length : at])

        names = [swap.duplicate_id for swap in swaps]
        self._call("swap", names, [_pack(swap) for swap in swaps], take, complete=complete)
        return refused

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _named(self, function: str, words: Sequence[str | bytes]) -> list[bytes]:
        """Call a function with a word for each partition; return those that stand."""
        pipeline = self._client.pipeline(transaction=False)
        for prefix, word in zip(self._prefixes, words, strict=True):
            self._add(pipeline, function, prefix, word)
        with reporting_errors():
            standing: list[bytes] = pipeline.execute()
        partitions = {word.partition(b"/")[2].decode() for word in standing if word}
        if partitions - {str(len(standing))}:
            msg = (
                f"The groups in Redis are spread over {partitions.pop()} partitions, not over "
                f"{len(standing)}. Set partitions as it was, or choose another redis_namespace."
            )
            raise ConfigurationMismatch(msg)
        return standing

    def _call(
        self,
        function: str,
        ids: Sequence[str],
        rows: Sequence[bytes],
        take: Callable[[list[int], bytes], None],
        *,
        complete: bool,
    ) -> None:
        """Call a function for rows, partition by partition, and hand over each reply."""
        pipeline = self._client.pipeline(transaction=False)
        parts = list(self._parts(ids))
        for partition, part in parts:
            word = self._words[partition]
            if complete and not _is_complete(word):
                raise GroupsLostError(_LOST)
            packed = b"".join(rows[row] for row in part)
            self._add(pipeline, function, self._prefixes[partition], packed, _life(word))
        nodes = self._wait(pipeline, parts) if function == "swap" and self._replicas else 0
        with reporting_errors():
            replies = pipeline.execute(raise_on_error=False)
            for reply in replies:
                if isinstance(reply, RedisError):
                    _check_lost(reply)
                    raise reply
        self._check_replicas(replies[len(replies) - nodes :])
        for (_, part), reply in zip(parts, replies, strict=False):
            take(part, reply)

    def _add(self, pipeline: Any, function: str, prefix: str, *arguments: str | bytes) -> None:
        # Two keys that never exist, for the reason given in ``store.Round``: while a slot moves
        # to another node of a Cluster, the call is told to try again.
        keys = (prefix, f"{prefix}-")
        target = target_of(self._client, prefix)
        name = f"{GROUPS.name}_{function}"
        pipeline.execute_command("FCALL", name, len(keys), *keys, *arguments, **target)

    def _wait(self, pipeline: Any, parts: Sequence[tuple[int, list[int]]]) -> int:
        """Let each node say last how many replicas have the states; return how many are asked."""
        targets = [target_of(self._client, self._prefixes[number]) for number, _ in parts]
        nodes = {str(target): target for target in targets}
        for target in nodes.values():
            pipeline.execute_command("WAIT", self._replicas, self._wait_ms, **target)
        return len(nodes)

    def _check_replicas(self, acknowledged: Sequence[int]) -> None:
        if acknowledged and min(acknowledged) < self._replicas:
            count(Kind.REPLICAS)
            msg = (
                f"Only {min(acknowledged)} of {self._replicas} replicas have a write after "
                f"{self._wait_ms} ms. Check the replicas, or lower wait_replicas."
            )
            raise ServiceError(msg)

    def _parts(self, ids: Sequence[str]) -> Iterator[tuple[int, list[int]]]:
        """Yield partitions and the numbers of their rows, at most ``_ROWS`` at a time."""
        rows = defaultdict(list)
        for number, name in enumerate(ids):
            rows[int(name[:8], 16) % len(self._prefixes)].append(number)
        for partition, part in rows.items():
            for start in range(0, len(part), _ROWS):
                yield partition, part[start : start + _ROWS]


def _is_complete(word: bytes) -> bool:
    return bool(word) and not word.startswith(_INCOMPLETE)


def _life(word: bytes) -> bytes:
    return word.removeprefix(_INCOMPLETE)


def _pack(swap: Swap) -> bytes:
    name, expected, held, ttl = swap
    milliseconds = 0 if ttl is None else max(1, int(ttl * 1000))
    value = held.revision.to_bytes(8, "little") + held.value
    return name.encode() + _SWAP.pack(expected, milliseconds, len(value)) + value


def _held(value: bytes) -> Held:
    return Held(int.from_bytes(value[:8], "little"), value[8:]) if value else ABSENT


def _check_lost(error: RedisError) -> None:
    if str(error).startswith("LOST"):
        raise GroupsLostError(_LOST) from error
