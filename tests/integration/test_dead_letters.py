"""``stream-dedup dead-letters`` over a real Kafka, with a real worker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from kafka import KafkaProducer  # type: ignore[import-untyped]

from stream_dedup.cli.main import cli
from stream_dedup.errors import ServiceError
from stream_dedup.settings import Settings
from stream_dedup.stream import kafka_clients
from stream_dedup.stream.headers import dead_letter_headers
from stream_dedup.stream.poison import Poison, Reason
from stream_dedup.stream.replay import Replay
from stream_dedup.stream.topic import TopicReader
from tests.services.kafka import KafkaBroker, Topics
from tests.services.process import free_ports
from tests.services.worker import PROGRAM, Sent, Worker, decisions, document

TEXT = "The ferry to the island leaves at nine in the morning, and again at noon if it is full."
OTHER = "Boil the potatoes for twenty minutes, drain them, and let them steam until they are dry."


class Letters:
    """The commands on one dead-letter topic, and letters that are written to it directly."""

    def __init__(self, kafka: KafkaBroker, topics: Topics) -> None:
        self.kafka = kafka
        self.topics = topics
        self.settings = Settings(
            kafka_bootstrap=kafka.bootstrap,
            input_topic=topics.input,
            output_topic=topics.output,
            dead_letter_topic=topics.dead_letter,
            members_topic=f"{topics.input}.members",
            group=topics.input,
        )

    def arguments(self, name: str, *others: str) -> list[str]:
        names = ["kafka_bootstrap", "input_topic", "output_topic", "dead_letter_topic", "group"]
        names.append("members_topic")
        flags = [f"--{name.replace('_', '-')}={getattr(self.settings, name)}" for name in names]
        return ["dead-letters", name, *flags, *others]

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(cli, self.arguments(*arguments))

    def ok(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert done.exit_code == 0, done.output
        return done.stdout

    def summary(self, *arguments: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.ok("list", "--json", *arguments))
        return found

    def write(
        self,
        numbers: range,
        reason: Reason = Reason.NOT_JSON,
        *,
        age_days: float = 0,
        truncated: tuple[str, ...] = (),
        partition: int = 0,
        topic: str | None = None,
        padding: int = 0,
    ) -> None:
        moment = int((time.time() - age_days * 86_400) * 1000)
        producer = KafkaProducer(bootstrap_servers=self.kafka.bootstrap)
        try:
            for n in numbers:
                place = (topic or self.topics.input, n % self.topics.partitions, n)
                headers = dead_letter_headers(Poison(reason, "Bad."), *place, truncated)
                value = f"v{n}".encode() + os.urandom(padding)
                producer.send(self.topics.dead_letter, value, None, headers, partition, moment)
        finally:
            producer.close()

    def written(self) -> int:
        """Count what stands on the input topic, marks and open transactions included."""
        with TopicReader(self.settings, self.topics.input, {}) as reader:
            return sum(reader.ends(committed=False).values())


def replayed(reader: Worker, letters: Letters, count: int) -> Counter[bytes]:
    return Counter(record.value for record in reader.receive(letters.topics.input, count))


@pytest.fixture
def letters(kafka: KafkaBroker, topics: Callable[..., Topics]) -> Letters:
    return Letters(kafka, topics(partitions=2))


@pytest.fixture
def reader(kafka: KafkaBroker, letters: Letters, tmp_path: Path) -> Worker:
    """Reads topics; it is never started."""
    return Worker(kafka, letters.topics, "redis://127.0.0.1:1", tmp_path / "log", "kafka-python")


def test_from_poison_to_an_answer(worker: Worker) -> None:
    letters = Letters(worker.kafka, worker.topics)
    worker.send([Sent(document(id="ok", text=TEXT))])
    moment = int(time.time() * 1000) - 60_000
    bad = Sent(document(id="late", body=OTHER), b"key", [("trace", b"1")], moment)
    worker.send([bad, Sent(b"no\x1b[2J \xe2\x80\xae json")], partition=1)
    worker.start()
    worker.receive(worker.topics.dead_letter, 2)

    found = letters.summary()
    assert found["reasons"] == {"missing_text": 1, "not_json": 1}
    assert found["source_topics"] == {worker.topics.input: 2}
    (wanted,) = letters.summary("--reason", "missing_text")["latest"]
    assert wanted["source"] == f"{worker.topics.input}/1/0"
    (hostile,) = letters.summary("--reason", "not_json")["latest"]
    table = letters.ok("list")
    assert "2 dead letters" in table
    assert "missing_text" in table
    shown = letters.ok("show", wanted["letter"], hostile["letter"])
    assert "header    trace = 1" in shown
    assert "key       key" in shown
    assert bad.value is not None
    assert bad.value.decode() in shown
    assert "no\\x1b[2J \\u202e json" in shown
    assert letters.ok("show", "--raw", wanted["letter"]) == bad.value.decode()

    worker.stop()
    assert "1 dead letters would be" in letters.ok("replay", "--reason=missing_text", "--dry-run")
    assert "1 dead letters replayed" in letters.ok("replay", "--reason", "missing_text")
    worker.start(text_field="body")
    answered = worker.receive(worker.topics.output, 2)

    assert decisions(answered)["late"]["status"] == "original"
    (answer,) = (record for record in answered if record.key == b"key")
    headers = dict(answer.headers)
    assert (headers["trace"], headers["dead-letter-replays"]) == (b"1", b"1")
    assert not headers.keys() & {"dead-letter-reason", "source-topic"}
    assert answer.timestamp == moment
    # What is still bad comes back, and tells that it was replayed.
    assert "1 passed over" in letters.ok("replay", "--all")
    worker.receive(worker.topics.dead_letter, 3)
    assert letters.summary()["replayed_before"] == 1
    assert letters.summary("--limit=1", "--reason=not_json")["letters"] == 2


class TestOnce:
    def test_a_replay_that_is_killed_and_done_again(self, letters: Letters, reader: Worker) -> None:
        count = 10_000
        letters.write(range(count))
        for delay in (0.0, 0.05, 0.1):
            command = [str(PROGRAM), *letters.arguments("replay", "--all")]
            before = letters.written()
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            while letters.written() == before:
                assert process.poll() is None
            time.sleep(delay)
            process.kill()
            assert process.wait() == -signal.SIGKILL, "it ended before it could be killed"

        letters.ok("replay", "--all")

        expected = Counter({f"v{n}".encode(): 1 for n in range(count)})
        assert replayed(reader, letters, count) == expected
        assert "0 dead letters replayed" in letters.ok("replay", "--all")

    def test_reasons_and_all_meet_no_letter_twice(self, letters: Letters, reader: Worker) -> None:
        letters.write(range(3))
        letters.write(range(3, 6), Reason.BAD_ID, partition=1)
        letters.write(range(6, 9), Reason.BAD_ID)

        assert "3 dead letters replayed" in letters.ok("replay", "--reason=not_json")
        assert "1 dead letters replayed" in letters.ok("replay", "0/4")
        again = letters.ok("replay", "--all")
        assert "5 dead letters replayed" in again
        assert "4 passed over: replayed before" in again
        assert "0 dead letters replayed" in letters.ok("replay", "--all")

        assert replayed(reader, letters, 9) == Counter({f"v{n}".encode(): 1 for n in range(9)})

    def test_letters_by_name_are_replayed_again_when_asked(
        self, letters: Letters, reader: Worker
    ) -> None:
        letters.write(range(2))

        assert "1 dead letters replayed" in letters.ok("replay", "0/1", "0/1")
        twice = letters.run("replay", "0/1")
        assert "0 dead letters replayed" in twice.stdout
        assert "--again" in twice.stderr
        letters.ok("replay", "0/1", "--again")

        assert replayed(reader, letters, 2) == {b"v1": 2}

    def test_since_leaves_the_older_ones_for_later(self, letters: Letters) -> None:
        letters.write(range(2), age_days=2)
        letters.write(range(2, 5))

        assert letters.summary("--since", "1d")["letters"] == 3
        assert "3 dead letters replayed" in letters.ok("replay", "--since", "1d")
        assert "2 dead letters replayed" in letters.ok("replay", "--all")

    def test_a_dry_run_writes_nothing(self, letters: Letters) -> None:
        letters.write(range(2))

        assert "2 dead letters would be replayed" in letters.ok("replay", "--all", "--dry-run")
        assert letters.written() == 0
        assert "2 dead letters replayed" in letters.ok("replay", "--all")

    def test_one_replay_ends_another(self, letters: Letters) -> None:
        letters.write(range(2))
        with Replay(letters.settings) as first:
            assert "1 dead letters replayed" in letters.ok("replay", "0/0")

            with pytest.raises(ServiceError, match="Another replay is under way"):
                first.following()

        assert "1 dead letters replayed" in letters.ok("replay", "--all")

    def test_a_record_that_brokers_may_have_forgotten(self, letters: Letters) -> None:
        letters.write(range(2), age_days=8)

        done = letters.run("replay", "--all")

        assert done.exit_code == 69
        assert "--since" in done.stderr
        assert "2 dead letters replayed" in letters.ok("replay", "--since", "2020-01-01")


class TestPlaces:
    def test_a_message_goes_back_to_its_partition(self, letters: Letters, reader: Worker) -> None:
        letters.write(range(4))

        letters.ok("replay", "--all")

        records = reader.receive(letters.topics.input, 4)
        assert {record.value: record.partition for record in records} == {
            f"v{n}".encode(): n % 2 for n in range(4)
        }

    def test_letters_of_groups_go_back_to_the_members_topic(
        self, letters: Letters, reader: Worker
    ) -> None:
        members = letters.settings.members_topic
        letters.kafka.create([members], 2)
        letters.write(range(2), topic=members)
        letters.write(range(2, 3))

        letters.ok("replay", "--all")

        assert len(reader.receive(members, 2)) == 2
        assert replayed(reader, letters, 1) == {b"v2": 1}

    def test_another_topic(self, letters: Letters, reader: Worker) -> None:
        letters.write(range(1))

        assert f"to {letters.topics.output}" in letters.ok(
            "replay", "--all", "--to", letters.topics.output
        )

        (record,) = reader.receive(letters.topics.output, 1)
        assert (record.value, record.headers) == (b"v0", [("dead-letter-replays", b"1")])

    def test_what_cannot_be_replayed_is_left_out_and_told(
        self, letters: Letters, reader: Worker
    ) -> None:
        letters.write(range(1), Reason.TOO_LARGE, truncated=("value",))
        letters.write(range(1, 2), topic="somebody.else")
        letters.write(range(2, 3))
        letters.kafka.produce(letters.topics.dead_letter, b"no letter")

        done = letters.run("replay", "--all")

        assert done.exit_code == 1
        assert "1 dead letters replayed" in done.stdout
        assert "3 left out" in done.stdout
        assert (
            "0/0 is left out: it lost bytes (value: too large, or could not be read)."
            in done.stderr
        )
        assert "somebody.else, which is neither" in done.stderr
        assert "no letter of this program" in done.stderr
        assert replayed(reader, letters, 1) == {b"v2": 1}

    def test_what_the_topic_refuses_is_left_out(self, letters: Letters, reader: Worker) -> None:
        letters.write(range(3))
        letters.write(range(3, 4), padding=5000)
        letters.write(range(4, 6))
        small = f"{letters.topics.input}.small"
        letters.kafka.create([small], 2, max_message_bytes="1000")

        done = letters.run("replay", "--all", "--to", small)

        assert done.exit_code == 1, done.output
        assert f"0/3 is left out: the topic {small} refuses it" in done.stderr
        assert "5 dead letters replayed" in done.stdout
        assert len(reader.receive(small, 5)) == 5


class TestTrouble:
    def test_an_empty_topic(self, letters: Letters) -> None:
        assert letters.ok("list") == f"No dead letters on {letters.topics.dead_letter}.\n"
        assert "0 dead letters replayed" in letters.ok("replay", "--all")

    @pytest.mark.parametrize("place", ["0/0", "7/0"])
    def test_no_such_letter(self, letters: Letters, place: str) -> None:
        for command in ("show", "replay"):
            done = letters.run(command, place)
            assert done.exit_code == 65
            assert f"There is no dead letter {place}." in done.stderr

    def test_a_place_between_letters(self, letters: Letters, reader: Worker) -> None:
        letters.write(range(1))
        letters.ok("replay", "--all")  # leaves the mark of a transaction behind the message
        letters.settings = letters.settings.model_copy(
            update={"dead_letter_topic": letters.topics.input, "input_topic": "other"}
        )

        assert letters.run("show", "0/0").exit_code == 0
        assert letters.run("show", "0/1").exit_code == 65

    def test_a_topic_that_is_not_there(self, letters: Letters) -> None:
        letters.write(range(1))
        done = letters.run("replay", "--all", "--to", "absent")
        assert done.exit_code == 69
        assert "The Kafka topic absent does not exist." in done.stderr

        letters.settings = letters.settings.model_copy(update={"dead_letter_topic": "nowhere"})
        for command in (["list"], ["show", "0/0"], ["replay", "--all"]):
            done = letters.run(*command)
            assert done.exit_code == 69
            assert "The Kafka topic nowhere does not exist." in done.stderr

    def test_no_broker(self, letters: Letters, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(kafka_clients, "OPEN_TIMEOUT_MS", 1000)
        (port,) = free_ports(1)
        there = f"127.0.0.1:{port}"
        letters.settings = letters.settings.model_copy(update={"kafka_bootstrap": there})

        done = letters.run("list")

        assert done.exit_code == 69
        assert there in done.stderr
