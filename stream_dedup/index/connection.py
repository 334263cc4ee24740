"""Connecting to Redis: one node or a Cluster, told apart by asking; and what its errors mean."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

import redis
from redis.backoff import ExponentialBackoff
from redis.cluster import ClusterNode
from redis.credentials import CredentialProvider
from redis.exceptions import (
    AuthenticationError,
    NoPermissionError,
    RedisClusterException,
    RedisError,
)

from stream_dedup.errors import RefusedCallError, ServiceError, SettingsError
from stream_dedup.index.failures import CountedRetry, Kind, count, is_of_the_call, kind_of, text_of
from stream_dedup.secrets import secret_of
from stream_dedup.settings import Settings
from stream_dedup.tls import tls_context
from stream_dedup.tls_trouble import tls_trouble

Client = redis.Redis | redis.RedisCluster


class LostWritesError(ServiceError):
    """Redis lacks writes that it had carried out for this worker."""


_RETRIES = 3
_PORT = 6379
_LOST = (
    "Redis has lost writes: it was restarted from an older snapshot, emptied, or a replica took "
    "over that was behind. Copies of the originals that are gone become originals again. To bring "
    "these back, make the index again with stream-dedup rebuild (see docs/redis.md)"
)


def connect(settings: Settings) -> Client:
    """Connect to the node at ``redis_url``, or to the Cluster that it is a part of.

    Files for TLS and with a password are read again at each connection.

    Raises:
        ServiceError: none of the addresses answers, or one is no address.
        SettingsError: a file cannot be read, or user or password are given twice.
    """
    urls = settings.redis_urls
    try:
        node = _first_that_answers(urls, settings)
        if not _in_cluster(node):
            return node
        with closing(node):
            return _connect_cluster(urls, node)
    except AuthenticationError as error:
        count(kind_of(error))
        msg = (
            f"Redis at {shown(urls)} refuses the login. Correct redis_username and "
            "redis_password_file (or redis_password), or those in redis_url."
        )
        raise ServiceError(msg) from error
    except (RedisError, RedisClusterException, OSError) as error:
        count(kind_of(error))
        msg = _tls_trouble(urls, settings) or (
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
    """Turn an error of the client into a sentence that says what to do, and count it."""
    try:
        yield
    except (RedisError, RedisClusterException, OSError) as error:
        kind = kind_of(error)
        count(kind)
        if kind is Kind.LOST_WRITES:
            raise LostWritesError(_LOST) from error
        text = text_of(error)
        msg = f"Redis did not carry out a call ({text[:200]}). {_advice(kind, text)}."
        failure = RefusedCallError if is_of_the_call(error) else ServiceError
        raise failure(msg) from error


def _advice(kind: Kind, text: str) -> str:
    if kind is Kind.OUT_OF_MEMORY:
        return "It is out of memory: raise maxmemory or add shards"
    if kind is Kind.PERMISSION:
        return "Its user lacks a permission: see docs/redis.md"
    if "Function not found" in text:
        return (
            "It lacks the Functions of this version. Load them as a user that may: stream-dedup "
            "functions load. If it has restarted without its data, restore them, or stop the "
            "workers and make the index again with stream-dedup rebuild"
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
        place, login = _login(url, settings)
        # Every call may be repeated or come late, so the client's own retries are safe.
        return redis.Redis.from_url(
            place,
            credential_provider=login,
            **_tls_options(url, settings),
            socket_timeout=settings.redis_timeout,
            socket_connect_timeout=settings.redis_timeout,
            retry=CountedRetry(ExponentialBackoff(cap=1.0, base=0.05), _RETRIES),
        )
    except ValueError:
        # What the error quotes may be a part of a password.
        msg = (
            "redis_url is not a Redis address. Write redis://host:port/database, and what is not "
            "a letter or digit of a password as %XX."
        )
        raise ServiceError(msg) from None


class _Login(CredentialProvider):
    """Gives user and password at each connection, so that a new password counts from then on."""

    def __init__(self, settings: Settings, user: str) -> None:
        self._settings = settings
        self._user = user

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        """Return the password, with the user before it if there is one."""
        password = secret_of(self._settings, "redis_password")
        return (self._user, password) if self._user else (password,)


def _login(url: str, settings: Settings) -> tuple[str, _Login | None]:
    """Return an address without its user, and what gives user and password.

    Raises:
        SettingsError: the address and the settings name different users.
    """
    parts = urlsplit(url)
    user = unquote(parts.username or "")
    if user and settings.redis_username and user != settings.redis_username:
        msg = "redis_url and redis_username name different users. Take it out of redis_url."
        raise SettingsError(msg)
    place = url.replace(parts.netloc, parts.netloc.rpartition("@")[2], 1) if user else url
    if not secret_of(settings, "redis_password"):
        return place, None
    return place, _Login(settings, settings.redis_username or user)


def _tls_options(url: str, settings: Settings) -> dict[str, Any]:
    if not url.startswith("rediss://"):
        return {}
    tls_context(settings, "redis")
    return {
        "ssl_cert_reqs": "required",
        "ssl_check_hostname": True,
        "ssl_ca_certs": settings.redis_ca_file,
        "ssl_certfile": settings.redis_certificate_file,
        "ssl_keyfile": settings.redis_key_file,
    }


def _tls_trouble(urls: list[str], settings: Settings) -> str:
    for url in urls:
        parts = urlsplit(url)
        place = (parts.hostname or "localhost", parts.port or _PORT)
        if found := tls_trouble(settings, "redis", place, tls=parts.scheme == "rediss"):
            return found
    return ""


def _connect_cluster(urls: list[str], node: redis.Redis) -> redis.RedisCluster:
    """Connect to a Cluster with the options that a node's address gave."""
    options = dict(node.get_connection_kwargs())
    options["ssl"] = urls[0].startswith("rediss://")
    for own in ("host", "port", "db", "retry"):
        options.pop(own, None)
    places = [urlsplit(url) for url in urls]
    nodes = [
        ClusterNode(place.hostname or "localhost", place.port or _PORT)  # type: ignore[no-untyped-call]
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
