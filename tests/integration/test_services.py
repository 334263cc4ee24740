"""The services that other tests rest on do start, answer and come back."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from kafka import KafkaConsumer, KafkaProducer  # type: ignore[import-untyped]

from tests.services.errors import ServiceError
from tests.services.kafka import KafkaBroker, Topics
from tests.services.process import find_program
from tests.services.prometheus import Prometheus
from tests.services.redis import RedisCluster, RedisServer

SCRAPE_NOTHING = "global: {scrape_interval: 1s}\nscrape_configs: []\n"


def produce(bootstrap: str, topic: str, value: bytes, *, commit: bool) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"{topic}-{commit}")
    try:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, value).get(timeout=30)
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    finally:
        producer.close()


def consume_one(bootstrap: str, topic: str) -> bytes:
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=f"{topic}-readers",
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    try:
        for message in consumer:
            value: bytes = message.value
            return value
    finally:
        consumer.close()
    raise AssertionError


class TestKafka:
    def test_a_committed_message_is_read_and_an_aborted_one_is_not(
        self, kafka: KafkaBroker, topics: Callable[..., Topics]
    ) -> None:
        made = topics(partitions=1)

        produce(kafka.bootstrap, made.input, b"aborted", commit=False)
        produce(kafka.bootstrap, made.input, b"committed", commit=True)

        assert consume_one(kafka.bootstrap, made.input) == b"committed"

    def test_a_killed_broker_comes_back_with_its_data(self) -> None:
        with KafkaBroker() as broker:
            made = broker.create_topics(partitions=1)
            produce(broker.bootstrap, made.input, b"kept", commit=True)

            broker.kill()
            assert not broker.is_ready()
            broker.start()

            assert consume_one(broker.bootstrap, made.input) == b"kept"


class TestRedis:
    def test_it_answers_and_has_no_functions(self, redis_url: str) -> None:
        with redis.Redis.from_url(redis_url) as client:
            assert client.ping()
            assert client.function_list() == []
            assert client.dbsize() == 0

    def test_it_never_evicts(self, redis_url: str) -> None:
        with redis.Redis.from_url(redis_url, decode_responses=True) as client:
            assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}

    def test_another_policy_and_more_arguments_can_be_asked_for(self) -> None:
        server = RedisServer(policy="allkeys-lru", extra=("--maxmemory", "10mb"))
        with server, server.client() as client:
            assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "allkeys-lru"}
            assert client.config_get("maxmemory") == {"maxmemory": str(10 * 2**20)}

    def test_a_paused_server_answers_again_once_resumed(self) -> None:
        with RedisServer() as server:
            server.pause()
            impatient = redis.Redis.from_url(server.url, socket_timeout=0.2, retry=None)
            with impatient, pytest.raises(redis.TimeoutError):
                impatient.ping()
            server.resume()

            assert server.is_ready()

    def test_a_cluster_spreads_keys_over_its_masters(self) -> None:
        with (
            RedisCluster(masters=3) as cluster,
            redis.RedisCluster.from_url(cluster.url) as client,
        ):
            for number in range(100):
                client.set(f"key-{number}", number)

            sizes = [client.dbsize(target_nodes=node) for node in client.get_primaries()]
            assert len(sizes) == 3
            assert sum(sizes) == 100
            assert all(sizes)

    def test_a_server_that_was_there_before_is_not_stopped(self, redis_url: str) -> None:
        server = RedisServer(redis_url)

        with server, pytest.raises(ServiceError, match="ran before the tests"):
            server.kill()

        assert server.is_ready()


class TestPrometheus:
    def test_it_answers_a_query(self) -> None:
        with Prometheus(SCRAPE_NOTHING) as server:
            assert server.query("vector(1)")[0]["value"][1] == "1"


class TestFailures:
    def test_a_server_that_does_not_start_shows_its_log(self) -> None:
        server = RedisServer(extra=("--no-such-option", "1"))

        with pytest.raises(ServiceError, match="no-such-option"), server:
            pass

    def test_a_missing_program_says_what_to_install(self) -> None:
        with pytest.raises(ServiceError, match="make services"):
            find_program("no-such-server")

    @pytest.mark.skipif(sys.platform != "linux", reason="uses /proc")
    def test_services_die_with_killed_tests(self, tmp_path: Path) -> None:
        script = (
            "import time; from pathlib import Path; from tests.services.process import Process\n"
            f"p = Process(['sleep', '600'], Path({str(tmp_path / 'log')!r})); p.start()\n"
            "print(p._popen.pid, flush=True); time.sleep(600)"
        )
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as tests:
            assert tests.stdout is not None
            service = Path("/proc") / tests.stdout.readline().decode().strip()
            wait_until(lambda: program(service) == "sleep")
            tests.kill()

        wait_until(lambda: program(service) == "")


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def program(process: Path) -> str:
    """Name of the program that ``process`` (a directory of /proc) runs; empty once it has ended."""
    try:
        return Path((process / "cmdline").read_bytes().split(b"\0")[0].decode()).name
    except (FileNotFoundError, ProcessLookupError):
        return ""
