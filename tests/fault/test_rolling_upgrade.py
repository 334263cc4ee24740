"""A release joins under load, the one before leaves worker by worker; then all the way back.

Both have Functions and records of their own (see ``services.releases``). Every document comes out
once, duplicate groups are the true ones, and no two originals are near, as without an upgrade.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import msgspec
import pytest
import redis
from kafka import KafkaProducer  # type: ignore[import-untyped]

from stream_dedup import Settings
from stream_dedup.generate import GeneratedDocument, generate
from stream_dedup.index.audit import audit
from stream_dedup.index.functions import CLAIMS
from tests.fault.test_kill import PARTITIONS, SHAPE, Annotated, check_groups, near_originals
from tests.services.http import get
from tests.services.kafka import KafkaBroker, Topics
from tests.services.process import free_ports
from tests.services.releases import LATER_CLAIMS, RECORD_TAIL, ROOT, make_later

#: Documents a second that arrive, as long as workers come and go; below what one worker decides, so
#: that copies of a document meet workers of both releases at nearly the same moment.
RATE = 200
#: Documents that a worker must publish to count as one that works.
SHARE = 100


class Program:
    """A worker of one release."""

    def __init__(self, home: Path, settings: Settings, log: Path) -> None:
        self.port = free_ports(1)[0]
        given = settings.model_copy(update={"http_port": self.port})
        plain = given.model_dump(mode="json", exclude_defaults=True)
        variables = {f"STREAM_DEDUP_{name.upper()}": str(value) for name, value in plain.items()}
        paths = os.pathsep.join(map(str, (home, home / "workers")))
        self.log = log
        with log.open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-c", "from stream_dedup.cli.main import main; main()", "worker"],
                # Python looks there first, whatever is installed.
                cwd=home,
                env=os.environ | variables | {"PYTHONPATH": paths},
                stderr=stderr,
                start_new_session=True,
            )

    def count(self, metric: str) -> float:
        """Return a counter, its labels summed; 0 while the program does not answer."""
        lines = get(self.port, "/metrics")[1].splitlines()
        counts = [line for line in lines if line.startswith((f"{metric}{{", f"{metric} "))]
        return sum(float(line.rpartition(" ")[2]) for line in counts)

    def end(self) -> None:
        """Leave nothing of it behind."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)


class Rollout:
    """Workers of two releases that come and go."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._settings = settings
        self._folder = folder
        self._programs: list[Program] = []
        self.codes: list[int] = []
        self.restarts = 0.0

    def join(self, home: Path) -> Program:
        """Start a worker, and wait until it has published documents."""
        log = self._folder / f"worker-{len(self._programs)}.log"
        program = Program(home, self._settings, log)
        self._programs.append(program)
        deadline = time.monotonic() + 120
        while program.count("stream_dedup_documents_total") < SHARE:
            assert program.process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        return program

    def leave(self, program: Program) -> None:
        """Stop a worker."""
        self.restarts += program.count("stream_dedup_worker_restarts_total")
        program.process.terminate()
        self.codes.append(program.process.wait(40))

    def end(self) -> None:
        """Leave nothing behind."""
        for program in self._programs:
            program.end()


class Feed(threading.Thread):
    """Sends documents round the partitions until it is stopped."""

    def __init__(self, kafka: KafkaBroker, topic: str, stream: Iterator[GeneratedDocument]) -> None:
        super().__init__(daemon=True)
        self.sent: list[str] = []
        self._kafka, self._topic, self._stream = kafka, topic, stream
        self._stopping = threading.Event()

    def run(self) -> None:
        producer = KafkaProducer(bootstrap_servers=self._kafka.bootstrap, linger_ms=20)
        while not self._stopping.wait(0.1):
            for document in islice(self._stream, RATE // 10):
                partition = len(self.sent) % PARTITIONS
                producer.send(self._topic, msgspec.json.encode(document), partition=partition)
                self.sent.append(document.id)
        producer.close()

    def stop(self) -> None:
        self._stopping.set()
        self.join()


@pytest.mark.timeout(600)
def test_an_upgrade_and_the_way_back_cost_nothing(
    kafka: KafkaBroker, topics: Callable[..., Topics], redis_url: str, tmp_path: Path
) -> None:
    names = topics(partitions=PARTITIONS)
    settings = Settings(
        kafka_bootstrap=kafka.bootstrap,
        redis_url=redis_url,
        input_topic=names.input,
        output_topic=names.output,
        dead_letter_topic=names.dead_letter,
        group=names.input,
        transaction_timeout=10,
    )
    later = make_later(tmp_path / "later")
    stream = generate(msgspec.structs.replace(SHAPE, documents=100_000))
    feed = Feed(kafka, names.input, iter(stream))
    rollout = Rollout(settings, tmp_path)

    with Annotated(kafka, names.output) as annotated:
        feed.start()
        try:
            old = [rollout.join(ROOT), rollout.join(ROOT)]
            new = [rollout.join(later)]
            rollout.leave(old[0])
            new.append(rollout.join(later))
            rollout.leave(old[1])
            libraries = libraries_in(redis_url)
            # Nobody of the release before is left, and what it finds was written by the later one.
            back = rollout.join(ROOT)
            rollout.leave(new[0])
            rollout.leave(new[1])
            feed.stop()
            annotated.read_until(lambda: len(annotated.values) >= len(feed.sent), [back.process])
            annotated.read(2000)  # nothing may come twice
            rollout.leave(back)
        finally:
            feed.stop()
            rollout.end()

    assert rollout.codes == [0] * 5
    assert rollout.restarts == 0
    assert {CLAIMS.name, LATER_CLAIMS} <= libraries
    assert 0.1 < share_of_later_records(redis_url) < 0.9
    assert Counter(value["id"] for value in annotated.values) == Counter(feed.sent)
    assert len({value["dedup"]["configuration"] for value in annotated.values}) == 1
    check_groups(annotated.values)
    assert near_originals(annotated.values) == []
    assert audit(settings).violations == []


def libraries_in(url: str) -> set[str]:
    """Return the names of the libraries of Functions that are loaded."""
    with redis.Redis.from_url(url, decode_responses=True) as client:
        return {
            dict(zip(one[::2], one[1::2], strict=True))["library_name"]
            for one in client.function_list()
        }


def share_of_later_records(url: str) -> float:
    """Return which share of the originals the later release has written."""
    with redis.Redis.from_url(url) as client:
        values: list[bytes] = [
            value
            for key in client.scan_iter(match="sd:{0}:c*", count=1000)
            for value in client.hvals(key)
        ]
    originals = [value for value in values if value[:1] == b"O"]
    return sum(value.endswith(RECORD_TAIL) for value in originals) / len(originals)
