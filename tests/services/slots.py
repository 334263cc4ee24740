"""Moves slots of a Redis Cluster between its primaries, a few keys at a time, as tools do."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

import redis
from redis.crc import key_slot

from tests.services.redis import RedisServer

#: Keys moved at a time, and the pause between.
_KEYS, _PAUSE = 50, 0.001
_TIMEOUT_MS = 5000


def slot_of_partition(namespace: str, partition: int) -> int:
    """Return the slot that a partition of an index is in."""
    return int(key_slot(f"{namespace}:{{{partition}}}:".encode()))


def owner_of(slot: int, primaries: list[RedisServer]) -> RedisServer | None:
    """Return the primary that says that a slot is its own."""
    for node in primaries:
        with node.client() as client:
            if any(low <= slot <= high for low, high in _own_slots(client)):
                return node
    return None


def move_slot(slot: int, source: RedisServer, target: RedisServer) -> None:
    """Move a slot with its keys; clients are told to try again meanwhile.

    Called again after it broke off, it goes on.

    Raises:
        redis.RedisError: a node is away or refuses.
    """
    with ExitStack() as stack:
        giving, taking = (
            stack.enter_context(redis.Redis.from_url(node.url, socket_timeout=_TIMEOUT_MS / 1000))
            for node in (source, target)
        )
        ids: dict[Any, Any] = {one: _run(one, "CLUSTER", "MYID") for one in (giving, taking)}
        _run(taking, "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[giving])
        _run(giving, "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[taking])
        while keys := _run(giving, "CLUSTER", "GETKEYSINSLOT", slot, _KEYS):
            _run(giving, "MIGRATE", "127.0.0.1", target.port, "", 0, _TIMEOUT_MS, "KEYS", *keys)
            time.sleep(_PAUSE)
        for one in (taking, giving):
            _run(one, "CLUSTER", "SETSLOT", slot, "NODE", ids[taking])


def _own_slots(client: Any) -> list[tuple[int, int]]:
    for place in client.cluster("NODES").values():
        if "myself" in place["flags"]:
            # A slot on its way stands as [slot->-node].
            whole = [part for part in place["slots"] if not part[0].startswith("[")]
            return [(int(part[0]), int(part[-1])) for part in whole]
    return []


def _run(client: Any, *command: Any) -> Any:
    return client.execute_command(*command)
