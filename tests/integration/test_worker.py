"""``stream-dedup worker`` as a process, over a real Kafka and a real Redis."""

from __future__ import annotations

import random
import subprocess
import time
from pathlib import Path

import pytest
from kafka.admin import ConfigResource, KafkaAdminClient  # type: ignore[import-untyped]

from stream_dedup.settings import Settings
from stream_dedup.stream.poison import Reason
from tests.services.process import free_ports
from tests.services.redis import RedisServer
from tests.services.worker import Sent, Worker, decisions, document

TEXT = "The ferry to the island leaves at nine in the morning, and again at noon if it is full."
OTHER = "Boil the potatoes for twenty minutes, drain them, and let them steam until they are dry."

on_both_transports = pytest.mark.parametrize("worker", ["kafka-python", "confluent"], indirect=True)


@on_both_transports
class TestAnnotations:
    def test_originals_and_duplicates(self, worker: Worker) -> None:
        worker.send(
            [
                Sent(document(id="a", text=TEXT)),
                Sent(document(id="b", text=OTHER)),
                Sent(document(id=3, text=TEXT.upper())),
            ]
        )
        worker.start()

        found = decisions(worker.receive(worker.topics.output, 3))

        assert found["a"]["status"] == found["b"]["status"] == "original"
        assert found["a"]["duplicate_id"] != found["b"]["duplicate_id"]
        assert found[3]["status"] == "exact_duplicate"
        assert found[3]["original_id"] == "a"
        assert found[3]["duplicate_id"] == found["a"]["duplicate_id"]

    def test_what_a_message_came_with_is_kept(self, worker: Worker) -> None:
        now = int(time.time() * 1000) - 5000
        value = '{"n": 1.10, "text": "日本語 text", "id": "ä", "o": {"dedup": [ 1 ]}} '.encode()
        worker.send([Sent(value, b"\x00key", [("trace", b"\xff"), ("trace", b"2")], now)], 1)
        worker.start()

        (record,) = worker.receive(worker.topics.output, 1)

        assert (record.partition, record.key, record.timestamp) == (1, b"\x00key", now)
        assert record.headers[:2] == [("trace", b"\xff"), ("trace", b"2")]
        assert [name for name, _ in record.headers[2:]] == [
            "dedup-status",
            "dedup-duplicate-id",
            "dedup-original-id",
            "dedup-source",
        ]
        assert dict(record.headers)["dedup-original-id"] == "ä".encode()
        assert dict(record.headers)["dedup-source"] == f"{worker.topics.input}/1/0".encode()
        assert record.value.startswith(value[:-2] + b',"dedup":{"status":"original"')
        assert record.value.endswith(b"}} ")

    def test_a_tombstone_has_its_document_forgotten(self, worker: Worker) -> None:
        copies = [Sent(document(id=name, text=TEXT), name.encode()) for name in "abc"]
        tombstone = Sent(None, b"a", [("trace", b"1")])
        worker.send([*copies[:2], tombstone, copies[2]])

        worker.start()

        records = worker.receive(worker.topics.output, 4)
        assert [record.key for record in records] == [b"a", b"b", b"a", b"c"]
        assert records[2].value is None
        assert records[2].headers == [("trace", b"1")]
        found = decisions([record for record in records if record.value is not None])
        assert [found[name]["original_id"] for name in "abc"] == ["a", "a", "c"]

    def test_a_restarted_worker_goes_on_where_it_stopped(self, worker: Worker) -> None:
        worker.send([Sent(document(id="a", text=TEXT))])
        worker.start()
        worker.receive(worker.topics.output, 1)
        worker.stop()
        worker.send([Sent(document(id="b", text=TEXT))])

        worker.start(processes="2")

        found = decisions(worker.receive(worker.topics.output, 2))
        assert found["b"]["original_id"] == "a"
        assert len(worker.receive(worker.topics.output, 2)) == 2


POISON = [
    (Reason.TOMBSTONE, Sent(None, b"\xff")),
    (Reason.TOO_LARGE, Sent(document(text="x" * 100_000), b"k")),
    (Reason.NOT_UTF8, Sent(b'{"text": "\xff"}')),
    (Reason.NOT_JSON, Sent(b"hello", b"k", [("trace", b"1")])),
    (Reason.NOT_AN_OBJECT, Sent(b"[1]")),
    (Reason.TOO_DEEP, Sent(b'{"text": "a", "x": ' + b"[" * 9999 + b"]" * 9999 + b"}")),
    (Reason.MISSING_TEXT, Sent(b"{}")),
    (Reason.WRONG_TYPE, Sent(b'{"text": 5}')),
    (Reason.BAD_ID, Sent(b'{"text": "a", "id": {}}')),
    (Reason.BAD_TIME, Sent(b'{"text": "a", "at": "noon"}')),
    (Reason.BAD_RANK, Sent(b'{"text": "a", "rank": "first"}')),
    # Too large for the output topic even when compressed.
    (Reason.REFUSED, Sent(document(text="a"), random.Random(7).randbytes(2_000_000))),
]


@on_both_transports
class TestDeadLetters:
    def test_poison_of_every_kind_goes_aside_and_the_stream_goes_on(self, worker: Worker) -> None:
        # Those that no client can send are in test_hostile_kafka and test_bombs, and what processes
        # die at is in test_attempts.
        unsendable = {Reason.BAD_HEADER, Reason.UNREADABLE, Reason.FATAL}
        assert {reason for reason, _ in POISON} == set(Reason) - unsendable
        self.allow_large_input(worker)
        worker.send([Sent(document(id="before", text=TEXT))])
        worker.send([message for _, message in POISON])
        worker.send([Sent(document(id="after", text=OTHER))])

        worker.start(time_field="at", rank_field="rank")

        letters = worker.receive(worker.topics.dead_letter, len(POISON))
        assert len(letters) == len(POISON)
        found = {dict(letter.headers)["dead-letter-reason"].decode(): letter for letter in letters}
        for offset, (reason, message) in enumerate(POISON, start=1):
            letter = found[reason]
            headers = dict(letter.headers)
            assert headers["source-topic"] == worker.topics.input.encode()
            assert headers["source-partition"] == b"0"
            assert headers["source-offset"] == str(offset).encode()
            assert 0 < len(headers["dead-letter-detail"]) <= 200
            assert letter.key == (message.key and message.key[:65_536])
            assert letter.value == (message.value and message.value[:65_536])
        assert dict(found["not_json"].headers)["trace"] == b"1"
        assert dict(found["too_large"].headers)["dead-letter-truncated"] == b"value"
        assert dict(found["refused"].headers)["dead-letter-truncated"] == b"key"
        answered = decisions(worker.receive(worker.topics.output, 2))
        assert sorted(answered) == ["after", "before"]

    def allow_large_input(self, worker: Worker) -> None:
        """Let the input topic take what the output topic does not."""
        with KafkaAdminClient(bootstrap_servers=worker.kafka.bootstrap) as admin:
            limit = {"max.message.bytes": "8000000"}
            admin.alter_configs([ConfigResource("TOPIC", worker.topics.input, limit)])


@on_both_transports
class TestState:
    def test_metrics_health_and_readiness(self, worker: Worker) -> None:
        worker.send([Sent(document(id=n, text=TEXT)) for n in range(5)])
        worker.send([Sent(b"poison")])
        worker.start(processes="2")
        worker.receive(worker.topics.output, 5)

        def value(name: str) -> str:
            lines = worker.get("/metrics")[1].splitlines()
            return next((line.split()[-1] for line in lines if line.startswith(name)), "")

        worker.until(lambda: value('stream_dedup_documents_total{status="original"}') == "1.0")
        assert value('stream_dedup_documents_total{status="exact_duplicate"}') == "4.0"
        assert value('stream_dedup_dead_letters_total{reason="not_json"}') == "1.0"
        worker.until(lambda: value("stream_dedup_consumer_lag_records{") == "0.0")
        assert value("stream_dedup_end_to_end_seconds_count") == "6.0"
        assert value("stream_dedup_build_info") == "1.0"
        assert worker.get("/healthz") == (200, "ok\n")
        assert worker.get("/readyz") == (200, "ok\n")

    def test_sigterm_leaves_the_group_at_once(self, worker: Worker) -> None:
        worker.start(processes="2")
        worker.until(lambda: worker.members() == 2)

        assert worker.stop() == 0

        assert worker.members() == 0
        log = worker.log.read_text()
        assert "Traceback" not in log

    def test_a_killed_worker_is_started_again(self, worker: Worker) -> None:
        worker.start()
        before = worker.get("/metrics")[1].count("worker_restarts_total{")
        assert worker.process is not None
        children = Path(f"/proc/{worker.process.pid}/task/{worker.process.pid}/children")
        pids = [int(pid) for pid in children.read_text().split()]
        (child,) = (
            pid for pid in pids if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
        )
        subprocess.run(["kill", "-9", str(child)], check=True)

        worker.until(lambda: worker.get("/metrics")[1].count("worker_restarts_total{") > before)
        worker.until(lambda: worker.get("/readyz")[0] == 200)
        worker.send([Sent(document(id="a", text=TEXT))])
        assert len(worker.receive(worker.topics.output, 1)) == 1


class TestStart:
    """Each mistake is one sentence on what is wrong and one on what to do."""

    def check(self, failed: tuple[int, str], code: int, *parts: str) -> None:
        assert "Traceback" not in failed[1]
        for part in parts:
            assert part in failed[1]
        assert failed[0] == code

    def test_no_broker(self, worker: Worker) -> None:
        port = free_ports(1)[0]

        failed = worker.fail(kafka_bootstrap=f"127.0.0.1:{port}")

        self.check(failed, 69, f"No Kafka broker answers at 127.0.0.1:{port}", "--kafka-bootstrap")

    def test_no_topics(self, worker: Worker) -> None:
        failed = worker.fail(output_topic="absent", dead_letter_topic="nowhere")

        command = f"kafka-topics --bootstrap-server {worker.kafka.bootstrap} --create --topic"
        self.check(
            failed,
            69,
            f"topic absent does not exist. Create it: {command} absent --partitions 2",
            f"topic nowhere does not exist. Create it: {command} nowhere --partitions 2",
        )

    def test_no_redis(self, worker: Worker) -> None:
        port = free_ports(1)[0]

        failed = worker.fail(redis_url=f"redis://127.0.0.1:{port}/0")

        self.check(failed, 69, f"Redis does not answer at redis://127.0.0.1:{port}", "--redis-url")

    def test_a_password_among_the_flags(self, worker: Worker) -> None:
        failed = worker.fail(redis_url="redis://user:secret@127.0.0.1:6379/0")

        self.check(failed, 2, "--redis-url has a password", "redis_password_file")
        assert "secret@" not in failed[1]

    def test_a_redis_that_evicts(self, worker: Worker) -> None:
        with RedisServer(policy="allkeys-lru") as server:
            failed = worker.fail(redis_url=server.url)

        self.check(failed, 69, "eviction policy allkeys-lru", "maxmemory-policy noeviction")

    def test_an_index_of_another_configuration(self, worker: Worker) -> None:
        worker.start()
        worker.stop()

        failed = worker.fail(threshold="0.7")

        self.check(failed, 78, "was built with other settings", "redis_namespace")

    def test_a_port_in_use(self, worker: Worker) -> None:
        worker.start()

        failed = worker.fail()

        self.check(failed, 2, "cannot be bound", "--http-port")

    def test_a_wrong_setting(self, worker: Worker) -> None:
        failed = worker.fail(output_topic=Settings().input_topic, input_topic="documents")

        self.check(failed, 2, "three different topics")
