"""What goes wrong with Redis, in a few kinds, and how often."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable
from enum import StrEnum
from typing import Any, TypeVar

import redis.exceptions as client
from redis.retry import Retry

from stream_dedup import metrics

_Result = TypeVar("_Result")


class Kind(StrEnum):
    """What went wrong."""

    TIMEOUT = "timeout"
    CONNECTION = "connection"
    OUT_OF_MEMORY = "out_of_memory"
    #: A refused login too.
    PERMISSION = "permission"
    #: Too few replicas have a write.
    REPLICAS = "replicas"
    #: Redis lacks writes that it had carried out: an old snapshot, or a replica that was behind.
    LOST_WRITES = "lost_writes"
    #: The Cluster is down, or a slot moved for too long.
    CLUSTER = "cluster"
    OTHER = "other"


#: The first that fits is taken: a refused login is a ConnectionError too, a timeout an OSError.
_KINDS: tuple[tuple[Kind, tuple[type[Exception], ...]], ...] = (
    (Kind.OUT_OF_MEMORY, (client.OutOfMemoryError,)),
    (
        Kind.PERMISSION,
        (client.NoPermissionError, client.AuthenticationError, client.AuthorizationError),
    ),
    (
        Kind.CLUSTER,
        (
            client.RedisClusterException,
            client.ClusterError,
            client.AskError,
            client.TryAgainError,
        ),
    ),
    (Kind.TIMEOUT, (client.TimeoutError, builtins.TimeoutError)),
    (Kind.CONNECTION, (client.ConnectionError, OSError)),
)

#: How the Functions say so (claims.lua).
LOST = re.compile(r"(?:^|caused error: )LOST ")

_COUNTERS = {kind: metrics.redis_errors_total.labels(str(kind)) for kind in Kind}


#: What the client puts before an error in a pipeline: the bytes of the call, which hold documents'
#: ids and sketches.
_COMMAND = re.compile(r"Command # \d+ \(.*\) of pipeline caused error: ", re.DOTALL)
#: A state of the server has a code (BUSY, MISCONF, NOREPLICAS, ...), of which the client strips the
#: common ones; or it is one of these, which pass as well.
_STATE = re.compile(
    r"(?!WRONGTYPE)[A-Z]{3,} |.*(Function not found|Script killed|access a non local key)",
    re.DOTALL,
)


def text_of(error: Exception) -> str:
    """Return what an error says, without the call."""
    return _COMMAND.sub("", str(error)) or type(error).__name__


def is_of_the_call(error: Exception) -> bool:
    """Return whether a server that works has answered this very call with an error."""
    plain = type(error) in {client.ResponseError, client.DataError}
    return plain and kind_of(error) is Kind.OTHER and not _STATE.match(text_of(error))


def kind_of(error: Exception) -> Kind:
    """Say what kind of error the client has raised."""
    if LOST.search(str(error)):
        return Kind.LOST_WRITES
    # What a Function says of a command inside it.
    if "The user executing the script" in str(error):
        return Kind.PERMISSION
    return next((kind for kind, errors in _KINDS if isinstance(error, errors)), Kind.OTHER)


def count(kind: Kind) -> None:
    """Count an error that the client did not get over by itself."""
    _COUNTERS[kind].inc()


class CountedRetry(Retry):
    """Tries again what failed, and counts that."""

    def call_with_retry(
        self,
        do: Callable[[], _Result],
        fail: Callable[..., Any],
        *arguments: Any,
        **options: Any,
    ) -> _Result:
        """Call ``do`` until it works, or has failed too often (see its parent)."""
        calls = 0

        def counted() -> _Result:
            nonlocal calls
            calls += 1
            if calls > 1:
                metrics.redis_retries_total.inc()
            return do()

        return super().call_with_retry(counted, fail, *arguments, **options)
