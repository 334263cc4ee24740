"""What a real worker serves at /metrics, under load."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import psutil
import pytest

from stream_dedup.cli.metrics import definitions
from tests.services.prometheus import promtool
from tests.services.redis import RedisServer
from tests.services.worker import Sent, Worker, document

PREFIX = "stream_dedup_"
on_both_transports = pytest.mark.parametrize("worker", ["kafka-python", "confluent"], indirect=True)

#: Nothing that this load does moves these: they are of other commands, of a SimHash, of sweeps that
#: are not due, or of what goes wrong.
UNMOVED = {
    *("groups_published_total", "groups_restored_total", "foreign_states_total", "members_total"),
    *("shadow_backlog_documents", "shadow_documents_total", "shadow_seconds_total"),
    *("shadow_skipped_documents_total", "shadow_skipped_ids_total"),
    "near_hamming_distance",
    *("sweeps_total", "sweep_seconds_total", "swept_claims_total", "swept_entries_total"),
    "swept_originals_total",
    *("late_documents_total", "future_documents_total", "capped_probes_total"),
    *("claims_voided_total", "claims_retried_total", "index_retries_total"),
    *("redis_errors_total", "redis_retries_total", "transaction_aborts_total"),
    *("redis_fullest_node_ratio", "worker_restarts_total"),
}
#: 0 when all went well.
AT_REST = {"consumer_lag_records"}


class Load:
    """Records of every outcome, and how many there are of each."""

    def __init__(self, size: int) -> None:
        draw = random.Random(7)
        texts = [" ".join(draw.choices(self.WORDS, k=40)) for _ in range(size)]
        self.originals = [document(id=f"o{n}", text=text) for n, text in enumerate(texts)]
        self.exact = [document(id=f"e{n}", text=text) for n, text in enumerate(texts)]
        self.near = [document(id=f"n{n}", text=f"{text} again") for n, text in enumerate(texts)]
        self.poison = [b"{", b"[]", b'{"text": 5}', b"\xff"]

    WORDS = tuple(f"word{number}" for number in range(500))

    @property
    def documents(self) -> list[Sent]:
        return [Sent(value) for value in (*self.originals, *self.exact, *self.near, *self.poison)]

    @property
    def tombstones(self) -> list[Sent]:
        return [Sent(None, f"o{n}".encode()) for n in range(3)]

    @property
    def records(self) -> list[Sent]:
        return [*self.documents, *self.tombstones]


def total(found: dict[str, float], name: str) -> float:
    """Sum a metric over its labels."""
    return sum(
        value for series, value in found.items() if series.partition("{")[0] == PREFIX + name
    )


def answered(found: dict[str, float]) -> float:
    names = ("documents_total", "dead_letters_total", "tombstones_total")
    return sum(total(found, name) for name in names)


def moved(found: dict[str, float]) -> set[str]:
    """Return the metrics that have a value that is not 0."""
    names = {series.partition("{")[0] for series, value in found.items() if value}
    ends = ("_bucket", "_sum", "_count")
    bare = {name.removeprefix(PREFIX) for name in names if not name.endswith("_created")}
    return {next((one.removesuffix(end) for end in ends if one.endswith(end)), one) for one in bare}


def every_metric() -> set[str]:
    return {
        one.name.removeprefix(PREFIX) for one in definitions() if one.served_by.startswith("worker")
    }


@on_both_transports
def test_all_that_should_have_moved_has_and_counts_agree(worker: Worker, tmp_path: Path) -> None:
    load = Load(100)
    worker.start(processes="2", sample_interval="200ms", expected_originals="1000")
    worker.until(lambda: total(worker.metrics(), "assigned_partitions") == 2)
    sent = 2 * len(load.records)
    for partition in range(2):
        worker.send(load.documents, partition)
    worker.until(lambda: answered(worker.metrics()) == 2 * len(load.documents))
    # After all copies: one that came after a tombstone would be the new original of its text.
    for partition in range(2):
        worker.send(load.tombstones, partition)

    worker.until(lambda: answered(worker.metrics()) == sent)
    worker.until(lambda: total(worker.metrics(), "consumer_lag_records") == 0)
    worker.until(lambda: total(worker.metrics(), "index_originals") == 97)
    found = worker.metrics()

    assert total(found, "batch_documents_sum") == sent
    assert total(found, "end_to_end_seconds_count") == sent
    assert total(found, "decision_seconds_count") == total(found, "documents_total")
    assert total(found, "dead_letters_total") == 2 * len(load.poison)
    assert total(found, "tombstones_total") == 6
    status = PREFIX + 'documents_total{{status="{}"}}'
    assert found[status.format("original")] >= 100
    assert total(found, "near_similarity_count") == found[status.format("near_duplicate")] > 150
    assert found[PREFIX + "ready"] == 1
    assert every_metric() - moved(found) == UNMOVED | AT_REST
    assert total(found, "index_planned_originals") == 1000
    verified = PREFIX + 'verifications_total{{result="{}"}}'
    assert found[verified.format("accepted")] > 150
    assert total(found, "verifications_total") <= total(found, "candidates_total")
    page = tmp_path / "page"
    page.write_text(worker.get("/metrics")[1])
    assert promtool("check", "metrics", stdin=page).stdout == ""


def test_counters_outlive_a_process_and_its_gauges_do_not(worker: Worker) -> None:
    worker.start(processes="2", sample_interval="200ms")
    worker.send(Load(20).records)
    worker.until(lambda: answered(worker.metrics()) == len(Load(20).records))
    worker.until(lambda: total(worker.metrics(), "index_originals") == 17)
    before = worker.metrics()
    assert worker.process is not None
    children = psutil.Process(worker.process.pid).children()
    victims = [child for child in children if "spawn_main" in " ".join(child.cmdline())]
    assert len(victims) == 2

    for victim in victims:
        os.kill(victim.pid, signal.SIGKILL)
    worker.until(lambda: total(worker.metrics(), "worker_restarts_total") == 2)
    between = worker.metrics()
    worker.until(lambda: total(worker.metrics(), "assigned_partitions") == 2)
    worker.until(lambda: total(worker.metrics(), "index_originals") == 17)
    after = worker.metrics()

    counters = [name for name in before if name.partition("{")[0].endswith(("_total", "_count"))]
    assert all(before[name] <= between[name] <= after[name] for name in counters)
    assert answered(after) == answered(before)
    assert total(between, "assigned_partitions") == 0
    assert PREFIX + "index_originals" not in between
    assert PREFIX + "last_publish_timestamp_seconds" in between


def test_no_document_makes_a_series(worker: Worker) -> None:
    hostile = [
        *('"} 1\nevil_total 1', "a\\b", "\x00", "{status=", "💥" * 200, "le", "9" * 400),
        *(f"id-{number}" for number in range(500)),
    ]
    load = Load(20).records
    worker.start(origin_field="site", rank_field="rank", sample_interval="200ms")
    for partition in range(2):
        worker.send(load, partition)
    worker.until(lambda: answered(worker.metrics()) == 2 * len(load))
    worker.until(lambda: total(worker.metrics(), "index_originals") > 0)
    worker.until(lambda: 'partition="1"' in worker.get("/metrics")[1])
    before = worker.metrics()

    records = [
        Sent(
            document(id=name, text=f"{name} text {number}", site=name, rank=number, status=name),
            name.encode(),
            [(name.replace("\x00", "0"), name.encode()), ("dead-letter-reason", name.encode())],
        )
        for number, name in enumerate(hostile)
    ]
    poison = [Sent(b'{"text": "a", "rank": "%d"}' % number) for number in range(50)]
    tombstones = [Sent(None, name.encode()) for name in hostile[:20]]
    worker.send([*records, *poison, *tombstones], 1)
    sent = 2 * len(load) + len(records) + len(poison) + len(tombstones)
    worker.until(lambda: answered(worker.metrics()) == sent)
    after = worker.metrics()

    assert after.keys() == before.keys()
    assert len(after) < 400


def test_what_goes_wrong_with_redis_is_counted(worker: Worker) -> None:
    with RedisServer() as server:
        worker.start(redis_url=server.url, redis_timeout="300ms", sample_interval="0")
        worker.send(Load(5).records)
        worker.until(lambda: answered(worker.metrics()) == len(Load(5).records))
        with server.client() as client:
            client.config_set("maxmemory", 1)
        worker.send(Load(6).records)
        full = PREFIX + 'redis_errors_total{kind="out_of_memory"}'
        worker.until(lambda: worker.metrics()[full] > 0)

        server.kill()

        gone = PREFIX + 'redis_errors_total{kind="connection"}'
        worker.until(lambda: worker.metrics()[gone] > 0)
        found = worker.metrics()
        assert total(found, "redis_retries_total") >= 3
        assert total(found, "index_retries_total") >= 2
        assert answered(found) == len(Load(5).records)
        # With sample_interval 0 nothing is told of the index.
        assert total(found, "index_planned_originals") == 0
        assert PREFIX + "index_originals" not in found
