"""Connecting to Redis: one node or a Cluster, told apart by asking; and what its errors mean."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

import redis
from redis.backoff import ExponentialBackoff
from redis.cluster import ClusterNode
from redis.exceptions import (
    AuthenticationError,
    NoPermissionError,
    OutOfMemoryError,
    RedisClusterException,
    RedisError,
)
from redis.retry import Retry

from stream_dedup.errors import ServiceError
from stream_dedup.settings import Settings

Client = redis.Redis | redis.RedisCluster

_RETRIES = 3


def connect(settings: Settings) -> Client:
    """Connect to the node at ``redis_url``, or to the Cluster that it is a part of.

    Raises:
        ServiceError: none of the addresses answers, or one is no address.
    """
    urls = [url.strip() for url in settings.redis_url.split(",")]
    try:
        node = _first_that_answers(urls, settings)
        if not _in_cluster(node):
            return node
        with closing(node):
            return _connect_cluster(urls, node)
    except AuthenticationError as error:
        msg = f"Redis at {shown(urls)} refuses the login. Correct user and password in redis_url."
        raise ServiceError(msg) from error
    except (RedisError, RedisClusterException, OSError) as error:
        msg = (
            f"Redis does not answer at {shown(urls)} ({type(error).__name__}). "
            "Start it, or give its address with --redis-url."
        )
        raise ServiceError(msg) from error


def shown(urls: Iterable[str]) -> str:
    """Return addresses fit for a log, without passwords."""
    parts = (url.partition("://") for url in urls)
    return ", ".join(f"{scheme}://{rest.rpartition('@')[2]}" for scheme, _, rest in parts)


def nodes_of(client: Client) -> list[redis.Redis]:
    """Return a client of each node that takes writes."""
    if isinstance(client, redis.RedisCluster):
        primaries = client.get_primaries()  # type: ignore[no-untyped-call]
        return [client.get_redis_connection(node) for node in primaries]
    return [client]


def target_of(client: Client, key: str) -> dict[str, Any]:
    """Return the option that sends a pipelined call to the node which has a key.

    Given, because the client would otherwise ask the server for the keys of each FCALL.
    """
    if isinstance(client, redis.RedisCluster):
        return {"target_nodes": client.get_node_from_key(key)}  # type: ignore[no-untyped-call]
    return {}


@contextmanager
def reporting_errors() -> Iterator[None]:
    """Turn an error of the client into a sentence that says what to do."""
    try:
        yield
    except (RedisError, RedisClusterException, OSError) as error:
        text = str(error) or type(error).__name__
        msg = f"Redis did not carry out a call ({text[:200]}). {_advice(error, text)}."
        raise ServiceError(msg) from error


def _advice(error: Exception, text: str) -> str:
    if isinstance(error, OutOfMemoryError):
        return "It is out of memory: raise maxmemory or add shards"
    # The second is what a Function says of a command inside it.
    if isinstance(error, NoPermissionError) or "The user executing the script" in text:
        return "Its user lacks a permission: see docs/redis.md"
    if "Function not found" in text:
        return (
            "Its Functions are gone, so it has probably restarted without its data: restore them, "
            "or stop the workers and make the index again with stream-dedup rebuild"
        )
    return "Check that it runs and that redis_url is right"


def _first_that_answers(urls: list[str], settings: Settings) -> redis.Redis:
    for number, url in enumerate(urls, 1):
        node = _node(url, settings)
        try:
            node.ping()
        except NoPermissionError:
            return node
        except RedisError:
            node.close()
            if number == len(urls):
                raise
        else:
            return node
    msg = "redis_url is empty. Write redis://host:port/database."
    raise ServiceError(msg)


def _node(url: str, settings: Settings) -> redis.Redis:
    try:
        # Every call may be repeated or come late, so the client's own retries are safe.
        return redis.Redis.from_url(
            url,
            socket_timeout=settings.redis_timeout,
            socket_connect_timeout=settings.redis_timeout,
            retry=Retry(ExponentialBackoff(cap=1.0, base=0.05), _RETRIES),
        )
    except ValueError as error:
        msg = f"redis_url is not a Redis address: {error}. Write redis://host:port/database."
        raise ServiceError(msg) from error


def _connect_cluster(urls: list[str], node: redis.Redis) -> redis.RedisCluster:
    """Connect to a Cluster with the options that a node's address gave."""
    options = dict(node.get_connection_kwargs())
    for own in ("host", "port", "db", "retry"):
        options.pop(own, None)
    places = [urlsplit(url) for url in urls]
    nodes = [
        ClusterNode(place.hostname or "localhost", place.port or 6379)  # type: ignore[no-untyped-call]
        for place in places
    ]
    return redis.RedisCluster(startup_nodes=nodes, **options)


def _in_cluster(node: redis.Redis) -> bool:
    """Ask a node for its mode; HELLO is open to every user."""
    answer = node.execute_command("HELLO")  # type: ignore[no-untyped-call]
    if isinstance(answer, dict):
        facts = answer
    else:
        facts = dict(zip(answer[::2], answer[1::2], strict=False))
    mode = facts.get(b"mode", facts.get("mode"))
    return mode in {b"cluster", "cluster"}
