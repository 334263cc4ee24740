"""Looks at Redis and at the index in it, and changes nothing."""

from __future__ import annotations

import re
import shlex
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import redis
from redis.exceptions import NoPermissionError, RedisClusterException, RedisError

from stream_dedup.doctor.findings import Fact, Unknown, may_not_look, not_checked
from stream_dedup.doctor.redis_facts import Node, RedisFacts
from stream_dedup.errors import ServiceError, SettingsError
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.index.connection import Client, connect, nodes_of, shown
from stream_dedup.index.description import Described, describe
from stream_dedup.index.functions import CLAIMS, LIBRARIES
from stream_dedup.index.keys import Layout
from stream_dedup.settings import Settings

_PINGS = 20
#: Keys of a node that are drawn; about half of them are sorted sets of the index.
_DRAWN = 200
_CONFIG = ("save", "appendonly", "appendfsync", "cluster-require-full-coverage")
#: Calls as a worker makes them, of K, a key of the index, and a command that each needs.
CALLS = (
    "FCALL name 1 K",
    "WAIT 0 0",
    "HELLO",
    "PING",
    "INFO",
    "ZCOUNT K 0 1",
    "ZSCORE K member",
    "ZRANGEBYSCORE K 0 1",
    "ZRANGE K 0 1",
    "ZRANK K member",
    "ZADD K 0 member",
    "ZREM K member",
    "HGET K field",
    "HGETALL K",
    "HSET K field value",
    "HSETNX K field value",
    "HDEL K field",
    "HMGET K field",
    "HINCRBY K field 1",
    "INCRBY K 1",
    "DECRBY K 1",
    "GET K",
    "SET K value",
    "TIME",
)


def look(settings: Settings, *, thoroughly: bool = True) -> RedisFacts:
    """Look at the nodes; ``thoroughly``, also at the index and at what takes more calls.

    Raises:
        ServiceError: Redis does not answer.
    """
    where = shown(settings.redis_urls)
    with closing(_connect(settings, where)) as client:
        if not thoroughly:
            return RedisFacts(where, tuple(_node(node, settings) for node in nodes_of(client)))
        nodes = tuple(_whole(node, settings) for node in nodes_of(client))
        index = _try(lambda: _index(client, settings), "the index", "+hmget on its keys")
        clustered = isinstance(client, redis.RedisCluster)
        return RedisFacts(
            where,
            nodes,
            cluster=_try(lambda: _cluster(client), "the Cluster's state", "+cluster|info")
            if clustered
            else None,
            wanted=_wanted(settings),
            index=index,
            originals=_try(
                lambda: _originals(client, settings, index), "the counts", "+get on its keys"
            ),
            denied=_try(
                lambda: _denied(client, settings), "permissions", "+acl|whoami +acl|dryrun"
            ),
            claims=(CLAIMS.name, CLAIMS.code),
            libraries=tuple(library.name for library in LIBRARIES),
        )


def _connect(settings: Settings, where: str) -> Client:
    try:
        return connect(settings)
    except ServiceError as error:
        if not isinstance(error.__cause__, RedisClusterException):
            raise
        place = urlsplit(settings.redis_urls[0])
        # The client does without no slot, so there is nothing else to look at.
        msg = (
            f"The Redis Cluster at {where} does not serve all slots. Bring back the nodes that are "
            "away, or give their slots to others: redis-cli --cluster fix "
            f"{place.hostname or 'localhost'}:{place.port or 6379}"
        )
        raise ServiceError(msg) from error


def _node(node: redis.Redis, settings: Settings) -> Node:
    place = node.get_connection_kwargs()
    info: Mapping[str, Any] | Unknown = _try(node.info, "INFO", "+info")
    return Node(_name(place), _cli(place, settings), info)


def _whole(node: redis.Redis, settings: Settings) -> Node:
    found = _node(node, settings)
    return Node(
        found.name,
        found.cli,
        found.info,
        config=_try(lambda: _texts(node.config_get(*_CONFIG)), "CONFIG", "+config|get"),
        libraries=_try(lambda: _libraries(node), "Functions", "+function|list"),
        latency=_try(lambda: _latency(node), "PING", "+ping"),
        ahead=_try(lambda: _ahead(node), "TIME", "+time"),
        lengths=_try(lambda: _lengths(node, settings.redis_namespace), "keys", "+randomkey +zcard"),
    )


def _name(place: Mapping[str, Any]) -> str:
    return str(place.get("path") or f"{place.get('host', 'localhost')}:{place.get('port', 6379)}")


def _cli(place: Mapping[str, Any], settings: Settings) -> str:
    """Spell a call of redis-cli; a password goes in $REDISCLI_AUTH."""
    tls = settings.redis_urls[0].startswith("rediss://")
    files = {
        "--cacert": settings.redis_ca_file,
        "--cert": settings.redis_certificate_file,
        "--key": settings.redis_key_file,
    }
    user = settings.redis_username or urlsplit(settings.redis_urls[0]).username
    parts = ["redis-cli"]
    if place.get("path"):
        parts += ["-s", str(place["path"])]
    else:
        parts += ["-h", str(place.get("host", "localhost")), "-p", str(place.get("port", 6379))]
    if user:
        parts += ["--user", user]
    if tls:
        parts += [
            "--tls",
            *(part for flag, file in files.items() if file for part in (flag, str(file))),
        ]
    return shlex.join(parts)


def _libraries(node: redis.Redis) -> dict[str, str]:
    found: Any = node.function_list(library="stream_dedup*", withcode=True)
    described = (
        one if isinstance(one, dict) else dict(zip(one[::2], one[1::2], strict=True))
        for one in found
    )
    texts = (_texts(one) for one in described)
    return {one["library_name"]: one["library_code"] for one in texts}


def _latency(node: redis.Redis) -> float:
    seconds = []
    for _ in range(_PINGS):
        started = time.perf_counter()
        node.ping()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def _ahead(node: redis.Redis) -> float:
    before = time.time()
    answer: Any = node.time()
    after = time.time()
    return float(answer[0] + answer[1] / 1e6 - (before + after) / 2)


def _lengths(node: redis.Redis, namespace: str) -> tuple[int, ...]:
    ours = re.compile(rb"%s:\{\d+\}:t" % re.escape(namespace).encode())
    pipeline = node.pipeline(transaction=False)
    for _ in range(_DRAWN):
        pipeline.randomkey()
    keys = {key for key in pipeline.execute() if key is not None and ours.match(key)}
    for key in sorted(keys):
        pipeline.zcard(key)
    return tuple(pipeline.execute())


def _cluster(client: Any) -> dict[str, str]:
    return {str(name): str(value) for name, value in client.cluster_info().items()}


def _wanted(settings: Settings) -> Described | Unknown:
    try:
        fingerprinter = Fingerprinter(settings)
    except SettingsError as error:
        return not_checked(str(error).partition(". ")[0] + ".")
    layout = Layout.design(
        settings.redis_namespace,
        settings.partitions,
        fingerprinter.method.prefix_bits,
        settings.expected_originals,
        ids=settings.index_ids,
    )
    described = describe(fingerprinter.described, settings)
    return Described(fingerprinter.index_version, layout.describe(), described)


def _index(client: Client, settings: Settings) -> Described | None:
    key = f"{settings.redis_namespace}:{{index}}"
    stands: Any = client.hmget(key, ["configuration", "layout", "settings"])
    if stands[1] is None:
        return None
    configuration, layout, described = ((one or b"").decode() for one in stands)
    return Described(configuration, layout, described or None)


def _originals(client: Client, settings: Settings, index: Described | Unknown | None) -> int:
    found = None if isinstance(index, Unknown) or index is None else index.layout
    layout = Layout.parse(settings.redis_namespace, found or "")
    if layout is None:
        return 0
    pipeline = client.pipeline(transaction=False)
    for partition in range(layout.partitions):
        pipeline.get(f"{layout.partition_key(partition)}n")
    return sum(int(count or 0) for count in pipeline.execute())


def _denied(client: Client, settings: Settings) -> tuple[str, ...]:
    """Ask Redis which calls this user may not make; nothing is carried out."""
    node = nodes_of(client)[0]
    user = node.acl_whoami()
    key = f"{settings.redis_namespace}:{{0}}:f"
    denied = []
    for call in CALLS:
        name, *arguments = call.split()
        given = [key if one == "K" else one for one in arguments]
        answer: Any = node.execute_command("ACL DRYRUN", user, name, *given)  # type: ignore[no-untyped-call]
        if answer != b"OK":
            denied.append(name.lower())
    return tuple(denied)


def _texts(values: Any) -> dict[str, str]:
    return {_text(name): _text(value) for name, value in values.items()}


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _try(ask: Callable[[], Fact], what: str, permission: str) -> Fact | Unknown:
    """Ask for a fact; return what stands for it when that fails."""
    try:
        return ask()
    except NoPermissionError:
        return may_not_look(what, permission)
    except (RedisError, RedisClusterException, OSError) as error:
        return not_checked(f"Redis did not tell {what} ({type(error).__name__}).")
