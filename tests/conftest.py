"""Services for tests, and marks by folder."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stream_dedup.settings import ENV_PREFIX
from tests.services.certificates import Certificates
from tests.services.redis import RedisCluster, RedisServer

#: kafka-python reads its message schemas with functions that Python 3.11 and 3.12 deprecate
#: and 3.13 does not.
_KAFKA_WARNING = "(open|read)_text is deprecated"

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", _KAFKA_WARNING, DeprecationWarning)
    from tests.services.kafka import KafkaBroker, Topics
    from tests.services.kafka_sockets import close_quietly
    from tests.services.secure import SecureKafka, SecureRedis
    from tests.services.worker import Worker

_TESTS = Path(__file__).parent
_MARKED_FOLDERS = ("integration", "fault", "browser")


def pytest_configure(config: pytest.Config) -> None:
    """Go on without warnings about what kafka-python does.

    And let programs that tests start end with SIGINT, which is ignored, by them too, where the
    tests run in the background.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("filterwarnings", f"ignore:{_KAFKA_WARNING}:DeprecationWarning")
    close_quietly()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark a test by the folder it is in."""
    for item in items:
        if item.path.is_relative_to(_TESTS):
            folder = item.path.relative_to(_TESTS).parts[0]
            if folder in _MARKED_FOLDERS:
                item.add_marker(folder)


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the developer's own settings out, and files together."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(ENV_PREFIX)]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaBroker]:
    """A broker for the whole session; a test that breaks one starts its own ``KafkaBroker()``."""
    with KafkaBroker(os.environ.get("STREAM_DEDUP_TEST_KAFKA")) as broker:
        yield broker


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """A Redis for the whole session; a test that breaks one starts its own ``RedisServer()``."""
    with RedisServer(os.environ.get("STREAM_DEDUP_TEST_REDIS")) as server:
        yield server


@pytest.fixture(scope="session")
def redis_cluster() -> Iterator[RedisCluster]:
    """A Redis Cluster for the whole session; a test that breaks one starts its own."""
    with RedisCluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def certificates() -> Certificates:
    """An authority and what it issued."""
    return Certificates()


@pytest.fixture(scope="session")
def secure_kafka(certificates: Certificates) -> Iterator[SecureKafka]:
    """A broker with TLS and logins for the whole session."""
    with SecureKafka(certificates) as broker:
        yield broker


@pytest.fixture(scope="session")
def secure_redis(certificates: Certificates) -> Iterator[SecureRedis]:
    """A Redis with TLS and users for the whole session."""
    with SecureRedis(certificates) as server:
        yield server


@pytest.fixture
def redis_cluster_url(redis_cluster: RedisCluster) -> str:
    """Addresses of an empty Cluster without Functions."""
    for master in redis_cluster.masters:
        master.flush()
    return redis_cluster.url


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    """Address of an empty database without Functions."""
    redis_server.flush()
    return redis_server.url


@pytest.fixture
def topics(kafka: KafkaBroker) -> Callable[..., Topics]:
    """Call it, with ``partitions=`` if need be, for three new topics; they are never deleted."""
    return kafka.create_topics


@pytest.fixture
def worker(
    request: pytest.FixtureRequest,
    kafka: KafkaBroker,
    topics: Callable[..., Topics],
    redis_url: str,
    tmp_path: Path,
) -> Iterator[Worker]:
    """A worker program that is not started yet; a parameter names its transport."""
    transport = getattr(request, "param", "kafka-python")
    found = Worker(kafka, topics(partitions=2), redis_url, tmp_path / "worker.log", transport)
    yield found
    if found.process is not None:
        found.stop()
