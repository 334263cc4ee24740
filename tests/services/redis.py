"""Redis or Valkey: one server, or a cluster of masters and their replicas."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
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
        tls: bool = False,
        port: int | None = None,
        environment: Sequence[str] = (),
    ) -> None:
        """Describe the server.

        Args:
            address: redis:// URL of a server that runs already.
            policy: what it does when memory is full (``maxmemory-policy``).
            extra: more arguments, such as ``("--maxmemory", "10mb")``.
            local: never in Docker.
            tls: its port is for TLS.
            port: its port; default: a free one.
            environment: more variables, as ``NAME=value``; not in Docker.
        """
        if address is not None:
            self._url = address
            return
        self.port = port or free_ports(1)[0]
        self._url = f"{'rediss' if tls else 'redis'}://127.0.0.1:{self.port}/0"
        option = ("--port", "0", "--tls-port") if tls else ("--port",)
        arguments = (*option, str(self.port), "--maxmemory-policy", policy, *extra)
        self._runner = _runner(self.port, arguments, local=local, environment=environment)

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
    """Local processes: masters, each with its share of the slots, and replicas of each."""

    def __init__(
        self,
        masters: int = 3,
        *,
        policy: str = "noeviction",
        replicas: int = 0,
        make: Callable[..., RedisServer] = RedisServer,
    ) -> None:
        """Describe the Cluster.

        Args:
            masters: how many there are.
            policy: what they do when memory is full (``maxmemory-policy``).
            replicas: how many each master has.
            make: called as ``RedisServer`` is, for each node.
        """
        self._bus_ports = free_ports(masters * (1 + replicas))
        self.nodes = [
            make(policy=policy, extra=_cluster_arguments(bus_port), local=True)
            for bus_port in self._bus_ports
        ]
        self.masters = self.nodes[:masters]
        #: Those of the first master, then those of the second, and so on.
        self.replicas = self.nodes[masters:]
        self._each = replicas
        self._stack = ExitStack()

    def is_whole(self) -> bool:
        """Whether all slots are served, by primaries whose replicas are all there and in sync."""
        try:
            return all(map(self._has_place, self.nodes))
        except redis.RedisError:
            return False

    def _has_place(self, node: RedisServer) -> bool:
        with node.client() as client:
            state, info = client.cluster("INFO"), client.info("replication")
        if state["cluster_state"] != "ok" or int(state["cluster_slots_assigned"]) != _SLOTS:
            return False
        if info["role"] == "slave":
            return bool(info["master_link_status"] == "up")
        return bool(info["connected_slaves"] == self._each)

    def primaries(self) -> list[RedisServer]:
        """Return the nodes that say that they take writes."""
        found = []
        for node in self.nodes:
            with suppress(redis.RedisError), node.client() as client:
                if client.info("replication")["role"] == "master":
                    found.append(node)
        return found

    @property
    def url(self) -> str:
        """Address of the first master; a client learns the others from it."""
        return self.masters[0].url

    def start(self) -> Self:
        """Start all nodes, let them meet, and wait until they serve all slots and are in sync."""
        for node in self.nodes:
            self._stack.enter_context(node)
        for number, master in enumerate(self.masters):
            self._take_slots(number, master)
        for node in self.nodes[1:]:
            with node.client() as client:
                client.cluster("MEET", "127.0.0.1", self.masters[0].port, self._bus_ports[0])
        self._wait(self._is_complete, self.masters)
        self._wait(self._knows_all, self.replicas)
        for number, replica in enumerate(self.replicas):
            self._follow(replica, self.masters[number // self._each])
        self._wait(self._is_in_sync, self.replicas)
        if self._each:
            self._wait(self._has_replicas, self.masters)
        return self

    def close(self) -> None:
        """Stop all nodes for good."""
        self._stack.close()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wait(self, ready: Callable[[RedisServer], bool], nodes: Sequence[RedisServer]) -> None:
        deadline = time.monotonic() + _CLUSTER_SECONDS
        while not all(ready(node) for node in nodes):
            if time.monotonic() > deadline:
                msg = f"The Redis Cluster was not complete after {_CLUSTER_SECONDS:.0f} s."
                raise ServiceError(msg)
            time.sleep(0.05)

    def _take_slots(self, number: int, master: RedisServer) -> None:
        count = len(self.masters)
        first, end = (_SLOTS * share // count for share in (number, number + 1))
        with master.client() as client:
            client.cluster("SET-CONFIG-EPOCH", number + 1)
            client.cluster("ADDSLOTSRANGE", first, end - 1)

    @staticmethod
    def _follow(replica: RedisServer, master: RedisServer) -> None:
        with master.client() as client:
            identity = client.cluster("MYID")
        with replica.client() as client:
            client.cluster("REPLICATE", identity)

    def _is_complete(self, node: RedisServer) -> bool:
        with node.client() as client:
            return self._knows_all(node) and client.cluster("INFO")["cluster_state"] == "ok"

    def _knows_all(self, node: RedisServer) -> bool:
        """Whether a node has met every other: those that it only heard of have no link yet."""
        with node.client() as client:
            others = client.cluster("NODES").values()
        known = [one for one in others if "handshake" not in one["flags"] and one["connected"]]
        return len(known) == len(self.nodes)

    @staticmethod
    def _is_in_sync(replica: RedisServer) -> bool:
        with replica.client() as client:
            return bool(client.info("replication").get("master_link_status") == "up")

    def _has_replicas(self, master: RedisServer) -> bool:
        """Whether clients learn of the replicas from this master, those of the others too."""
        with master.client() as client:
            flags = [one["flags"] for one in client.cluster("NODES").values()]
            online = client.info("replication")["connected_slaves"]
        return online == self._each and sum("slave" in f for f in flags) == len(self.replicas)


def _cluster_arguments(bus_port: int) -> tuple[str, ...]:
    port = ("--cluster-port", str(bus_port))
    timing = ("--cluster-node-timeout", "5000", "--repl-diskless-sync-delay", "0")
    return ("--cluster-enabled", "yes", *port, *timing)


def _runner(
    port: int, arguments: Sequence[str], *, local: bool, environment: Sequence[str]
) -> Runner:
    common = ["--save", "", "--appendonly", "no", *arguments]
    if docker_answers() and not local:
        return Container(IMAGE, [port], {}, ["redis-server", *common])
    program = find_program("redis-server", "valkey-server")
    directory = scratch_directory("redis")
    place = ["--bind", "127.0.0.1", "--dir", str(directory)]
    return Process(["env", *environment, program, *common, *place], directory / "log")
