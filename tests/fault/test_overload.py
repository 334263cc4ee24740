"""More than a worker can take: no rebalance, bounded buffers, nothing left open."""

from __future__ import annotations

import json
import multiprocessing
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal

import psutil
import pytest
from confluent_kafka import Consumer
from kafka import KafkaConsumer, KafkaProducer, TopicPartition  # type: ignore[import-untyped]
from stream_dedup_workers import annotate, process
from stream_dedup_workers.pulse import Pulse, Stage

from stream_dedup import metrics
from stream_dedup.settings import Settings
from stream_dedup.stream import confluent_clients, kafka_clients, kafka_limits
from stream_dedup.stream.clients import open_transport
from tests.services.kafka import KafkaBroker, Topics
from tests.services.redis import RedisServer
from tests.services.worker import Sent, Worker, document

both = pytest.mark.parametrize("transport", ["kafka-python", "confluent"])

#: Time between two polls after which these workers are taken for stuck, and time for which Redis
#: is slow, s.
POLL_INTERVAL = 3.0
SLOW_SECONDS = 8.0
#: Time that each round of calls takes meanwhile, ms.
ROUND_MS = 400


@contextmanager
def working(settings: Settings) -> Iterator[None]:
    """Run a worker process's work in a thread of this process, until it is in the group."""
    ended = threading.Event()
    pulse = Pulse(multiprocessing.get_context("spawn"))
    thread = threading.Thread(
        target=annotate._work, args=(settings, settings.group, pulse, ended.is_set)
    )
    thread.start()
    try:
        while pulse.stage is not Stage.JOINED:
            assert thread.is_alive()
            time.sleep(0.05)
        yield
    finally:
        ended.set()
        thread.join()


def slow_down(server: RedisServer, seconds: float) -> None:
    """Let Redis keep each call waiting, again and again, but for a moment in between."""
    end = time.monotonic() + seconds
    with server.client() as client:
        while time.monotonic() < end:
            client.client_pause(ROUND_MS)
            time.sleep(ROUND_MS / 1000)


def values_of(counter: Any) -> float:
    (family,) = counter.collect()
    return float(sum(sample.value for sample in family.samples if sample.name.endswith("_total")))


def read(broker: KafkaBroker, topic: str, count: int) -> list[Any]:
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        group_id=None,
    )
    consumer.assign([TopicPartition(topic, 0)])
    found: list[Any] = []
    deadline = time.monotonic() + 30
    while len(found) < count:
        assert time.monotonic() < deadline
        found += [one for records in consumer.poll(200).values() for one in records]
    consumer.close()
    return found


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers of this process be taken for stuck soon, and the process be as it was."""
    for module in (kafka_clients, confluent_clients):
        monkeypatch.setattr(module, "MAX_POLL_INTERVAL_MS", int(POLL_INTERVAL * 1000))
        monkeypatch.setattr(module, "SESSION_TIMEOUT_MS", int(POLL_INTERVAL * 1000))
    # This process is not the worker's to keep calm.
    monkeypatch.setattr(process, "calm", lambda _: None)


@pytest.mark.usefixtures("impatient")
@both
def test_a_batch_that_takes_longer_than_polls_may_be_apart_causes_no_rebalance(
    transport: Literal["kafka-python", "confluent"],
    kafka: KafkaBroker,
    redis_server: RedisServer,
    redis_url: str,
    tmp_path: Path,
) -> None:
    topics = kafka.create_topics(1)
    settings = Settings(
        transport=transport,
        kafka_bootstrap=kafka.bootstrap,
        redis_url=redis_url,
        input_topic=topics.input,
        output_topic=topics.output,
        dead_letter_topic=topics.dead_letter,
        group=topics.input,
        sweep_interval=0,
        sample_interval=0,
    )
    names = [f"document {number}" for number in range(30)]
    messages = [
        message
        for name in names
        for message in (
            Sent(document(id=name, text=f"the boat of {name} comes at {name}"), name.encode()),
            Sent(None, b"nobody"),
        )
    ]
    sender = Worker(kafka, topics, redis_url, tmp_path / "log", transport)

    with working(settings):
        rebalances, aborts = (
            values_of(one) for one in (metrics.rebalances_total, metrics.transaction_aborts_total)
        )
        began = time.monotonic()
        slowing = threading.Thread(target=slow_down, args=(redis_server, SLOW_SECONDS))
        slowing.start()
        sender.send(messages)
        found = read(kafka, topics.output, len(messages))
        took = time.monotonic() - began
        slowing.join()
        assert values_of(metrics.rebalances_total) == rebalances
        assert values_of(metrics.transaction_aborts_total) == aborts

    assert took > 2 * POLL_INTERVAL
    answered = [json.loads(one.value)["id"] for one in found if one.value is not None]
    assert sorted(answered) == sorted(names)


def taken_by(worker: Worker) -> Counter[tuple[str, str]]:
    """Return descriptors and threads of the supervisor and of its worker process."""
    assert worker.process is not None
    supervisor = psutil.Process(worker.process.pid)
    (child,) = (one for one in supervisor.children() if "--multiprocessing-fork" in one.cmdline())
    return Counter(
        {
            (name, what): count
            for name, one in (("supervisor", supervisor), ("worker", child))
            for what, count in (("descriptors", one.num_fds()), ("threads", one.num_threads()))
        }
    )


def total(worker: Worker, *metrics_of_it: str) -> float:
    return sum(
        value
        for name, value in worker.metrics().items()
        if name.partition("{")[0].removeprefix("stream_dedup_") in metrics_of_it
    )


@pytest.mark.parametrize("worker", ["kafka-python", "confluent"], indirect=True)
def test_a_burst_is_worked_off_and_leaves_nothing_open(worker: Worker) -> None:
    def send(name: str, sizes: Sequence[int]) -> None:
        ids = [f"{name}-{number}" for number in range(len(sizes))]
        messages = [
            Sent(document(id=one, text=" ".join([f"word {one}"] * (size // 20))))
            for one, size in zip(ids, sizes, strict=True)
        ]
        for partition in range(2):
            worker.send(messages[partition::2], partition)

    def answered(count: int) -> None:
        worker.until(lambda: total(worker, "documents_total") == count)
        worker.until(lambda: total(worker, "consumer_lag_records") == 0)

    worker.start(sweep_interval="0", sample_interval="0", batch_bytes="1000000")
    send("before", [100] * 100)
    answered(100)
    before, rebalances = taken_by(worker), total(worker, "rebalances_total")
    send("burst", [100] * 2000 + [90_000] * 100)
    answered(2200)
    # Calls that are bounded in time have a thread each, and may be under way.
    worker.until(lambda: not taken_by(worker) - before)

    assert total(worker, "rebalances_total") == rebalances
    assert total(worker, "worker_restarts_total", "transaction_aborts_total") == 0


@pytest.fixture(scope="module")
def full_topic(kafka: KafkaBroker) -> Topics:
    """A topic with 60 MB that do not compress, 15 MB in each partition."""
    topics = kafka.create_topics()
    values = random.Random(1).randbytes(60_000_000)
    with closing(KafkaProducer(bootstrap_servers=kafka.bootstrap)) as producer:
        for number in range(600):
            value = values[100_000 * number : 100_000 * (number + 1)]
            producer.send(topics.input, value, partition=number % topics.partitions)
    return topics


def opened(transport: Any, kafka: KafkaBroker, topics: Topics) -> Any:
    settings = Settings(
        transport=transport,
        kafka_bootstrap=kafka.bootstrap,
        input_topic=topics.input,
        group=f"{topics.input}.{transport}",
        batch_bytes=1_000_000,
        max_document_bytes=150_000,
    )
    return open_transport(settings, settings.group)


def poll_all(transport: Any) -> list[int]:
    """Return the bytes of each batch until 600 records were polled."""
    sizes, count = [], 0
    deadline = time.monotonic() + 60
    while count < 600:
        assert time.monotonic() < deadline
        records = transport.poll()
        count += len(records)
        sizes.append(sum(len(one.value) for one in records))
    return sizes


def test_what_is_fetched_ahead_is_bounded_with_kafka_python(
    kafka: KafkaBroker, full_topic: Topics
) -> None:
    fetched = []
    with closing(opened("kafka-python", kafka, full_topic)) as transport:
        fetcher = transport._consumer._fetcher
        while not transport.poll():
            pass
        for _ in range(5):
            time.sleep(0.2)
            fetched += [sum(len(one[3].records) for one in fetcher._completed_fetches)]
            transport.poll()
        transport._rewind()
        sizes = poll_all(transport)

    # The last record batch of a partition may be cut, but not begun, within its limit.
    assert 0 < max(fetched) <= 4 * kafka_limits.PARTITION_FETCH_MAX_BYTES + 1_000_000
    assert max(sizes) <= 1_000_000


def test_what_is_fetched_ahead_is_bounded_with_librdkafka(
    kafka: KafkaBroker, full_topic: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    queued: list[int] = []

    def note(statistics: str) -> None:
        topic = json.loads(statistics)["topics"].get(full_topic.input, {"partitions": {}})
        # All partitions share one queue, and each tells its size.
        queued.append(max((one["fetchq_size"] for one in topic["partitions"].values()), default=0))

    more = {"statistics.interval.ms": 100, "stats_cb": note}
    monkeypatch.setattr(confluent_clients, "Consumer", lambda config: Consumer(config | more))
    with closing(opened("confluent", kafka, full_topic)) as transport:
        while not transport.poll():
            pass
        # Nothing is taken meanwhile, so as much is fetched as ever is.
        time.sleep(3)
        transport._rewind()
        sizes = poll_all(transport)

    most = 1024 * confluent_clients.QUEUED_KILOBYTES + confluent_clients.FETCH_BYTES
    assert 10_000_000 < max(queued) <= most
    assert max(sizes) <= 1_000_000
