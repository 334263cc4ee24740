"""Redis or Valkey: one server, or a cluster of masters."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Self

import redis

from tests.services.container import Container, docker_answers
from tests.services.errors import ServiceError
from tests.services.process import Process, find_program, free_ports
from tests.services.service import Runner, Service, scratch_directory

IMAGE = "redis:7"
_SLOTS = 16384
_CLUSTER_SECONDS = 20.0


class RedisServer(Service):
    """A server without persistence; ``address`` (a redis:// URL) names one that runs already."""

    name = "Redis"

    def __init__(
        self,
        address: str | None = None,
        *,
        policy: str = "noeviction",
        extra: Sequence[str] = (),
        local: bool = False,
    ) -> None:
        """Describe the server.

        Args:
            address: redis:// URL of a server that runs already.
            policy: what it does when memory is full (``maxmemory-policy``).
            extra: more arguments, such as ``("--maxmemory", "10mb")``.
            local: never in Docker.
        """
        if address is not None:
            self._url = address
            return
        self.port = free_ports(1)[0]
        self._url = f"redis://127.0.0.1:{self.port}/0"
        self._runner = _runner(self.port, ("--maxmemory-policy", policy, *extra), local=local)

    @property
    def url(self) -> str:
        """Address for clients, a redis:// URL."""
        return self._url

    def is_ready(self) -> bool:
        """Whether the server answers a ping."""
        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.ConnectionError:  # also while it loads its data
            return False

    @contextmanager
    def client(self) -> Iterator[redis.Redis]:
        """Return a client that is closed at the end of the block."""
        with redis.Redis.from_url(self._url, decode_responses=True) as client:
            yield client

    def flush(self) -> None:
        """Remove all keys of the database and all Functions of the server."""
        with self.client() as client:
            client.flushdb()
            client.function_flush()


class RedisCluster:
    """Masters without replicas as local processes, each with its share of the slots."""

    def __init__(self, masters: int = 3, *, policy: str = "noeviction") -> None:
        self._bus_ports = free_ports(masters)
        self.masters = [
            RedisServer(policy=policy, extra=_cluster_arguments(bus_port), local=True)
            for bus_port in self._bus_ports
        ]
        self._stack = ExitStack()

    @property
    def url(self) -> str:
        """Address of the first master; a client learns the others from it."""
        return self.masters[0].url

    def start(self) -> Self:
        """Start the masters, let them meet, and wait until they serve all slots."""
        for master in self.masters:
            self._stack.enter_context(master)
        for number, master in enumerate(self.masters):
            self._join(number, master)
        deadline = time.monotonic() + _CLUSTER_SECONDS
        while not all(self._is_complete(master) for master in self.masters):
            if time.monotonic() > deadline:
                msg = f"The Redis Cluster was not complete after {_CLUSTER_SECONDS:.0f} s."
                raise ServiceError(msg)
            time.sleep(0.05)
        return self

    def close(self) -> None:
        """Stop all masters for good."""
        self._stack.close()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def _join(self, number: int, master: RedisServer) -> None:
        count = len(self.masters)
        first, end = (_SLOTS * share // count for share in (number, number + 1))
        with master.client() as client:
            client.cluster("SET-CONFIG-EPOCH", number + 1)
            client.cluster("ADDSLOTSRANGE", first, end - 1)
            if number:
                client.cluster("MEET", "127.0.0.1", self.masters[0].port, self._bus_ports[0])

    def _is_complete(self, master: RedisServer) -> bool:
        with master.client() as client:
            info = client.cluster("INFO")
        known = int(info["cluster_known_nodes"])
        return bool(info["cluster_state"] == "ok" and known == len(self.masters))


def _cluster_arguments(bus_port: int) -> tuple[str, ...]:
    port = ("--cluster-port", str(bus_port))
    return ("--cluster-enabled", "yes", *port, "--cluster-node-timeout", "5000")


def _runner(port: int, arguments: Sequence[str], *, local: bool) -> Runner:
    common = ["--port", str(port), "--save", "", "--appendonly", "no", *arguments]
    if docker_answers() and not local:
        return Container(IMAGE, port, {}, ["redis-server", *common])
    program = find_program("redis-server", "valkey-server")
    directory = scratch_directory("redis")
    place = ["--bind", "127.0.0.1", "--dir", str(directory)]
    return Process([program, *common, *place], directory / "log")
