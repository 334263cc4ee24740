"""Records at which processes die, over a real broker and both transports.

A death is a transport that leaves the group and says nothing else. Processes that are really killed
are at the end, under a real supervisor.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import pytest
from kafka import KafkaProducer  # type: ignore[import-untyped]
from kafka.admin import KafkaAdminClient  # type: ignore[import-untyped]

from stream_dedup.settings import Settings
from stream_dedup.stream.attempts import LIVES, Marker
from stream_dedup.stream.clients import open_transport
from stream_dedup.stream.damaged import Damaged
from stream_dedup.stream.transport import Output, Record, Transport
from tests.services.kafka import KafkaBroker, Topics
from tests.services.worker import Sent, Worker, decisions, document, settings_for

Name = Literal["kafka-python", "confluent"]
both = pytest.mark.parametrize("name", ["kafka-python", "confluent"])


@pytest.fixture
def places(kafka: KafkaBroker, topics: Callable[..., Topics]) -> Topics:
    return topics(partitions=2)


def fill(kafka: KafkaBroker, topics: Topics, each: int) -> None:
    with closing(KafkaProducer(bootstrap_servers=kafka.bootstrap, linger_ms=50)) as producer:
        for partition in range(topics.partitions):
            for number in range(each):
                producer.send(topics.input, b"%d" % number, partition=partition)


def metadata(kafka: KafkaBroker, settings: Settings) -> dict[int, tuple[int, str]]:
    """Return what the group committed, as any tool for groups reads it."""
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap) as admin:
        found = admin.list_group_offsets({settings.group: None})[settings.group]
    return {place.partition: (one.offset, one.metadata) for place, one in found.items()}


class Stream:
    """Lives of one worker after the other, that die where they are to."""

    def __init__(self, settings: Settings, count: int) -> None:
        self.settings = settings
        self.left = count
        self.deaths = 0
        #: Partition and offset of what was answered, and of what was given up.
        self.answered: list[tuple[int, int]] = []
        self.given_up: list[tuple[int, int, str]] = []
        #: How many records came together, where it died.
        self.widths: list[int] = []

    def live(self, dies_at: Callable[[Record], bool], seconds: float = 40) -> bool:
        """Work until all is answered (true) or this life ends (false)."""
        deadline = time.monotonic() + seconds
        with closing(open_transport(self.settings, self.settings.group)) as transport:
            while self.left:
                assert time.monotonic() < deadline
                records = transport.poll()
                sound = [one for one in records if not isinstance(one.headers, Damaged)]
                if any(dies_at(one) for one in sound):
                    self.deaths += 1
                    self.widths.append(len(records))
                    return False
                if records:
                    self.answer(transport, records)
        return True

    def answer(self, transport: Transport, records: Sequence[Record]) -> None:
        topic = self.settings.output_topic
        transport.publish([Output(topic, r, r.value or b"", [], r.key, None) for r in records])
        self.left -= len(records)
        for one in records:
            if isinstance(one.headers, Damaged):
                said = str(one.headers.poison())
                self.given_up.append((one.partition, one.offset, said))
            else:
                self.answered.append((one.partition, one.offset))


@both
class TestDeaths:
    def test_the_record_that_processes_die_at_is_given_up_and_no_other(
        self, kafka: KafkaBroker, places: Topics, name: Name
    ) -> None:
        fill(kafka, places, 6)
        settings = settings_for(name, kafka, places)
        stream = Stream(settings, 12)

        def kills(one: Record) -> bool:
            return (one.partition, one.offset) == (1, 2)

        while not stream.live(kills):
            assert stream.deaths < 10

        # One with the batch; then each with the record alone.
        assert stream.widths[0] > 1
        assert stream.widths[1:] == [1] * LIVES
        ((partition, offset, said),) = stream.given_up
        assert (partition, offset) == (1, 2)
        assert said.startswith(f"fatal: {LIVES} processes died or stalled")
        everything = [(p, o) for p in (0, 1) for o in range(6)]
        assert sorted(stream.answered) == [one for one in everything if one != (1, 2)]
        assert metadata(kafka, settings) == {0: (6, ""), 1: (6, "")}

    def test_an_ordinary_batch_is_marked_once_and_leaves_nothing(
        self, kafka: KafkaBroker, places: Topics, name: Name
    ) -> None:
        settings = settings_for(name, kafka, places)
        with closing(open_transport(settings, settings.group)) as transport:
            inside: Any = transport
            transact, transactions = inside._transact, []

            def counted(outputs: Sequence[Output], some: Any) -> None:
                transactions.append(len(outputs))
                transact(outputs, some)

            inside._transact = counted
            stream = Stream(settings, 4)
            for again in range(3):
                fill(kafka, places, 2)
                seen = 0
                while seen < 4:
                    records = transport.poll()
                    if records and not again:
                        found = metadata(kafka, settings)
                        for partition in {one.partition for one in records}:
                            marker = Marker.read(found[partition][1])
                            assert marker is not None
                            assert (marker.tried, found[partition][0]) == ((), 0)
                    if records:
                        stream.answer(transport, records)
                    seen += len(records)
            found = metadata(kafka, settings)

        assert found == {0: (6, ""), 1: (6, "")}
        # One for each partition at most, or for both together, however long this goes on.
        assert transactions.count(0) <= 2

    def test_orderly_ends_are_not_counted(
        self, kafka: KafkaBroker, places: Topics, name: Name
    ) -> None:
        fill(kafka, places, 1)
        settings = settings_for(name, kafka, places, batch_documents=1)
        stream = Stream(settings, 2)
        assert not stream.live(lambda _: True)
        for _ in range(LIVES + 2):
            with closing(open_transport(settings, settings.group)) as transport:
                while not transport.poll():
                    pass
                marked = [Marker.read(text) for _, text in metadata(kafka, settings).values()]
                assert [len(one.tried) for one in marked if one is not None and one.tried] == [1]
                transport.unmark()

        assert stream.live(lambda _: False)
        assert stream.given_up == []

    def test_a_batch_that_fails_with_many_is_worked_off_one_by_one(
        self, kafka: KafkaBroker, places: Topics, name: Name
    ) -> None:
        """As when memory does not do for a batch: no single record is to blame."""
        fill(kafka, places, 4)
        settings = settings_for(name, kafka, places)
        stream = Stream(settings, 8)
        with closing(open_transport(settings, settings.group)) as transport:
            while len(transport.poll()) < 2:
                pass

        assert stream.live(lambda _: False)

        assert stream.given_up == []
        assert len(stream.answered) == 8


#: Read by every Python that is started: the program is the real one, but for some words that do to
#: its processes what a defect of a library would: end it, hang it, have Redis answer this call
#: with an error, or raise an error that nobody expects. The group and the supervisor wait less.
_DEFECTS = """
import os, signal, time
from stream_dedup.stream import kafka_limits
kafka_limits.SESSION_TIMEOUT_MS = 1500
from stream_dedup_workers import supervisor
supervisor.RESTART_PAUSE = (0.1, 0.2)
from stream_dedup.stream import patience
patience.REFUSED_SECONDS = 0.3
from stream_dedup.index.rounds import Round
from stream_dedup.stream import transactional
from stream_dedup.fingerprint.fingerprinter import Fingerprinter
from stream_dedup.stream.decoding import Decoder

fingerprint, decode = Fingerprinter.fingerprint, Decoder.decode

def killed(self, texts, *more):
    if any("kill-the-process" in text for text in texts):
        os.kill(os.getpid(), signal.SIGKILL)
    Round.spoiled = any("spoil-the-call" in text for text in texts)
    return fingerprint(self, texts, *more)

run = Round.run

def spoiled(self):
    if Round.spoiled:
        self._send("settle", 0, b"less than a row")
    run(self)

publish = transactional.Transactional.publish

def unpublished(self, outputs):
    transact = self._transact

    def some(outputs, places):
        values = [one.value for one in outputs if one.topic.endswith(".output")]
        if any(b"raise-at-publishing" in value for value in values):
            raise OverflowError("nobody expects this")
        transact(outputs, places)

    self._transact = some
    try:
        publish(self, outputs)
    finally:
        del self._transact

def stalled(self, content, **more):
    if b"stall-the-process" in content:
        time.sleep(3600)
    return decode(self, content, **more)

Fingerprinter.fingerprint, Decoder.decode = killed, stalled
Round.spoiled, Round.run = False, spoiled
transactional.Transactional.publish = unpublished
"""


@pytest.mark.parametrize(
    ("worker", "word"),
    [
        ("kafka-python", "kill-the-process"),
        ("confluent", "stall-the-process"),
        ("kafka-python", "spoil-the-call"),
        ("confluent", "raise-at-publishing"),
    ],
    indirect=["worker"],
)
@pytest.mark.timeout(240)
def test_a_real_worker_goes_on_without_it(
    worker: Worker, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(_DEFECTS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    texts = {"a": "good", "b": "better", "culprit": f"a {word} text", "c": "good", "d": "best"}
    worker.send([Sent(document(id=name, text=text), name.encode()) for name, text in texts.items()])

    worker.start(stall_timeout="6s")
    (letter,) = worker.receive(worker.topics.dead_letter, 1)
    annotated = worker.receive(worker.topics.output, 4)

    said = dict(letter.headers)
    assert (letter.key, said["dead-letter-reason"]) == (b"culprit", b"fatal")
    assert said["dead-letter-detail"].startswith(b"%d processes died or stalled" % LIVES)
    assert [one.key for one in annotated] == [b"a", b"b", b"c", b"d"]
    assert decisions(annotated)["c"]["original_id"] == "a"
    restarts = sum(v for name, v in worker.metrics().items() if "worker_restarts_total{" in name)
    assert restarts == LIVES + 1, worker.log.read_text()
