"""Brokers, a Redis Cluster with replicas, workers, and the proxies that stand between them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple, Self

import redis

from stream_dedup.settings import ENV_PREFIX, Settings
from tests.campaign.clocks import Clock
from tests.services.errors import ServiceError
from tests.services.http import get
from tests.services.kafka_cluster import KafkaCluster
from tests.services.process import Process, compile_library, free_ports
from tests.services.redis import RedisCluster, RedisServer
from tests.services.toxiproxy import Toxiproxy

PROGRAM = Path(sys.executable).with_name("stream-dedup")
#: Seconds after which the nodes of Redis take one of them for dead.
NODE_TIMEOUT = 3.0
#: Loaded into every worker (``sitecustomize``), and, compiled, into every node of Redis.
_PRELOADED = Path(__file__).parent / "preloaded"
TRANSPORTS = ("kafka-python", "confluent")
#: Seconds between two looks at a worker that is not ready, and before it is started again.
_LOOK = 1.0
_READY_SECONDS = 240.0
_STOP_SECONDS = 60.0

#: What docs/redis.md names for losing nothing, whoever dies: writes that nobody else has are not
#: answered, and a node that comes back has all that it has answered.
_REDIS = {
    "appendonly": "yes",
    "appendfsync": "always",
    "min-replicas-to-write": "1",
    "min-replicas-max-lag": "3",
    "cluster-node-timeout": str(int(NODE_TIMEOUT * 1000)),
}


class Size(NamedTuple):
    """How large a fleet is.

    Attributes:
        brokers: of Kafka.
        primaries: of Redis; each has a replica.
        workers: supervisors, each with one process.
        partitions: of the topics.
    """

    brokers: int = 3
    primaries: int = 3
    workers: int = 4
    partitions: int = 12


class WorkerProgram:
    """A supervisor with one process.

    Attributes:
        name: what it is called.
        process: the program; it and its process are one process group.
        clock: its clock, if that can be set.
        away: whether it was broken on purpose.
        ready: whether it has joined in this life.
        fell: how often it ended by itself after it had joined.
        early: how often it ended by itself before, because something it needs was broken.
    """

    def __init__(self, number: int, settings: Settings, folder: Path, clock: Clock | None) -> None:
        self.name = f"worker {number + 1} ({settings.transport})"
        self.log = folder / f"worker-{number + 1}.log"
        self.clock = clock
        self.away = False
        self.ready = False
        self.fell = self.early = 0
        self._looked = 0.0
        self._port = free_ports(1)[0]
        plain = settings.model_dump(mode="json", exclude_defaults=True) | {"http_port": self._port}
        variables = [f"{ENV_PREFIX}{name.upper()}={value}" for name, value in plain.items()]
        paths = [str(_PRELOADED), *filter(None, [os.environ.get("PYTHONPATH")])]
        variables.append(f"PYTHONPATH={os.pathsep.join(paths)}")
        if clock is not None:
            variables.append(clock.variable)
        self.process = Process(["env", *variables, str(PROGRAM), "worker"], self.log)

    def start(self) -> None:
        """Begin a life."""
        self.away = self.ready = False
        self.process.start()

    def tend(self) -> None:
        """See whether it is ready; start it again when it has ended, as an orchestrator would."""
        if self.away or time.monotonic() < self._looked + _LOOK:
            return
        self._looked = time.monotonic()
        if not self.process.is_alive:
            self.fell += self.ready
            self.early += not self.ready
            self.start()
        elif not self.ready:
            self.ready = get(self._port, "/readyz")[0] == 200


class Fleet:
    """All of it, running while it is entered.

    Attributes:
        size: how large it is.
        proxy: what stands between.
        kafka: the brokers.
        redis: the Cluster.
        clocks: of its nodes.
        settings: of all workers, but for transport and port.
        workers: the workers.
    """

    proxy: Toxiproxy
    kafka: KafkaCluster
    redis: RedisCluster
    clocks: list[Clock]
    settings: Settings

    def __init__(self, size: Size, folder: Path, expected: int) -> None:
        """Describe it.

        Args:
            size: how large it is.
            folder: where workers write their logs.
            expected: originals that the index is laid out for.
        """
        self.size = size
        self._folder = folder
        self._expected = expected
        self._stack = ExitStack()
        self.workers: list[WorkerProgram] = []

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.proxy = stack.enter_context(Toxiproxy())
            self.kafka = stack.enter_context(KafkaCluster(self.size.brokers, self.proxy))
            self._told = free_ports(2 * self.size.primaries)
            self.clocks = [Clock(self._folder / f"clock-redis-{told}") for told in self._told]
            self._library = compile_library(_PRELOADED / "clock.c", self._folder)
            numbers = iter(range(len(self._told)))
            made = RedisCluster(
                self.size.primaries,
                replicas=1,
                make=lambda **options: self._node(next(numbers), **options),
            )
            self.redis = stack.enter_context(made)
            self.settings = self._settings()
            topics = (self.settings.input_topic, self.settings.output_topic)
            self.kafka.create([*topics, self.settings.dead_letter_topic], self.size.partitions)
            for number in range(self.size.workers):
                worker = self._worker(number)
                stack.callback(worker.process.close)
                self.workers.append(worker)
                worker.start()
            self._wait_for_workers()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def tend(self) -> None:
        """Start workers that have ended by themselves; called often."""
        for worker in self.workers:
            worker.tend()

    def stop_workers(self) -> list[str]:
        """Ask all workers to end; return the names of those that had to be killed."""
        for worker in self.workers:
            worker.away = True
            worker.process.terminate()
        return [one.name for one in self.workers if one.process.wait(_STOP_SECONDS) != 0]

    def lines(self, lane: str) -> list[str]:
        """Return the names of the proxies of brokers, or of what are primaries of Redis now."""
        if lane == "kafka":
            return self.kafka.proxies
        return [f"redis-{self.redis.nodes.index(node) + 1}" for node in self.redis.primaries()]

    def is_whole(self, lane: str) -> bool:
        """Whether what a lane of faults hits is as it was."""
        if lane == "kafka":
            return self.kafka.is_whole()
        if lane == "redis":
            return self.redis.is_whole()
        return all(worker.ready and not worker.away for worker in self.workers)

    def replica_of(self, primary: RedisServer) -> RedisServer | None:
        """Return a replica that is in sync with a primary."""
        told = self._told[self.redis.nodes.index(primary)]
        for node in self.redis.nodes:
            with suppress(redis.RedisError), node.client() as client:
                info = client.info("replication")
                if info.get("master_port") == told and info["master_link_status"] == "up":
                    return node
        return None

    def _node(self, number: int, *, policy: str, extra: Sequence[str], local: bool) -> RedisServer:
        (port,), told = free_ports(1), self._told[number]
        more = [word for name, value in _REDIS.items() for word in (f"--{name}", value)]
        announced = ("--cluster-announce-port", str(told))
        self.proxy.add(f"redis-{number + 1}", told, port)
        every = (*extra, *more, *announced)
        environment = (self.clocks[number].variable, f"LD_PRELOAD={self._library}")
        return RedisServer(
            policy=policy, extra=every, local=local, port=port, environment=environment
        )

    def _settings(self) -> Settings:
        return Settings(
            kafka_bootstrap=self.kafka.bootstrap,
            redis_url=",".join(f"redis://127.0.0.1:{port}" for port in self._told),
            input_topic="campaign",
            output_topic="campaign.annotated",
            dead_letter_topic="campaign.dead-letter",
            group="campaign",
            partitions=48,
            expected_originals=max(self._expected, 1000),
            wait_replicas=1,
            batch_documents=250,
            transaction_timeout=10,
            sweep_interval=30,
        )

    def _worker(self, number: int) -> WorkerProgram:
        transport = TRANSPORTS[number % len(TRANSPORTS)]
        settings = self.settings.model_copy(update={"transport": transport})
        has_clock = number >= self.size.workers - len(TRANSPORTS)
        clock = Clock(self._folder / f"clock-{number + 1}") if has_clock else None
        return WorkerProgram(number, settings, self._folder, clock)

    def _wait_for_workers(self) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while not self.is_whole("workers"):
            if time.monotonic() > deadline:
                logs = "\n".join(worker.process.log() for worker in self.workers)
                msg = f"The workers were not ready after {_READY_SECONDS:.0f} s. {logs}"
                raise ServiceError(msg)
            self.tend()
            time.sleep(0.1)
