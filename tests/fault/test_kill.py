"""Three workers, one killed in mid-batch: nothing lost, nothing doubled, no two near originals."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal, Self

import msgspec
import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition  # type: ignore[import-untyped]

from stream_dedup import Settings
from stream_dedup.generate import GeneratedDocument, StreamShape, generate
from stream_dedup.index.audit import audit
from tests.services.kafka import KafkaBroker, Topics

#: Documents with each transport.
DOCUMENTS = {"kafka-python": 20_000, "confluent": 10_000}
PARTITIONS = 6
#: Annotated documents after which a worker is killed.
KILL_AFTER = 4_000
PROGRAM = Path(sys.executable).with_name("stream-dedup")

#: One changed word in 130 or more keeps also two copies of one original well above the threshold,
#: so the truth demands the same groups whichever member comes first. Copies follow closely, so
#: that they are handled by different workers at the same moment.
SHAPE = StreamShape(
    documents=20_000, duplicate_share=0.5, edits=1, words=200, distance=50, viral=2, seed=11
)


@pytest.mark.parametrize("transport", list(DOCUMENTS))
def test_a_killed_worker_costs_nothing(
    kafka: KafkaBroker,
    topics: Callable[..., Topics],
    redis_url: str,
    tmp_path: Path,
    transport: Literal["kafka-python", "confluent"],
) -> None:
    names = topics(partitions=PARTITIONS)
    stream = list(generate(msgspec.structs.replace(SHAPE, documents=DOCUMENTS[transport])))
    send(kafka, names.input, stream)
    members = f"{names.input}.members"
    kafka.create([members], PARTITIONS)
    settings = Settings(
        kafka_bootstrap=kafka.bootstrap,
        transport=transport,
        redis_url=redis_url,
        input_topic=names.input,
        output_topic=names.output,
        dead_letter_topic=names.dead_letter,
        members_topic=members,
        groups_topic=f"{names.input}.groups",
        group=names.input,
        partitions=8,
        batch_documents=250,
        transaction_timeout=10,
        http_port=0,
    )

    with (
        running_workers(settings, 3, tmp_path) as workers,
        Annotated(kafka, names.output) as annotated,
    ):
        annotated.read_until(lambda: len(annotated.values) >= KILL_AFTER, workers)
        os.killpg(workers[1].pid, signal.SIGKILL)
        killed_at = len(annotated.values)
        survivors = [workers[0], workers[2]]
        annotated.read_until(lambda: len(annotated.values) >= len(stream), survivors)
        annotated.read(2000)  # nothing may come twice
        codes = stop(survivors)
    duplicates = [v for v in annotated.values if v["dedup"]["status"] != "original"]
    with Annotated(kafka, members) as told:
        told.read_until(lambda: len(told.values) >= len(duplicates), [])
        told.read(2000)

    assert killed_at < len(stream)
    assert codes == [0, 0]
    times = Counter(value["id"] for value in annotated.values)
    assert times == Counter(document.id for document in stream)
    check_groups(annotated.values)
    names_of = Counter((value["id"], value["dedup"]["duplicate_id"]) for value in duplicates)
    assert Counter((value["id"], value["duplicate_id"]) for value in told.values) == names_of
    assert audit(settings).violations == []
    assert near_originals(annotated.values) == []


def send(kafka: KafkaBroker, topic: str, stream: list[GeneratedDocument]) -> None:
    """Produce documents round the partitions, so that copies go to all workers."""
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap, linger_ms=20)
    try:
        for number, document in enumerate(stream):
            value = msgspec.json.encode(document)
            producer.send(topic, value, partition=number % PARTITIONS)
        producer.flush()
    finally:
        producer.close()


@contextmanager
def running_workers(
    settings: Settings, count: int, folder: Path
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start workers, each the leader of a process group of its own."""
    plain = settings.model_dump(mode="json", exclude_defaults=True)
    environment = {f"STREAM_DEDUP_{name.upper()}": str(value) for name, value in plain.items()}
    with ExitStack() as stack:
        workers = []
        for number in range(count):
            log = stack.enter_context((folder / f"worker-{number}.log").open("wb"))
            process = subprocess.Popen(
                [str(PROGRAM), "worker"],
                env=os.environ | environment,
                stderr=log,
                start_new_session=True,
            )
            stack.callback(end, process)
            workers.append(process)
        yield workers


def stop(workers: list[subprocess.Popen[bytes]]) -> list[int]:
    """Ask workers to stop and return their exit codes."""
    for worker in workers:
        worker.terminate()
    return [worker.wait(40) for worker in workers]


def end(worker: subprocess.Popen[bytes]) -> None:
    """Leave nothing of a worker behind."""
    if worker.poll() is None:
        os.killpg(worker.pid, signal.SIGKILL)
    worker.wait(10)


class Annotated:
    """What a consumer of committed records sees of a topic."""

    def __init__(self, kafka: KafkaBroker, topic: str) -> None:
        self.values: list[dict[str, Any]] = []
        self._consumer = KafkaConsumer(
            bootstrap_servers=kafka.bootstrap,
            group_id=None,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        self._consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def read_until(
        self,
        done: Callable[[], bool],
        workers: Sequence[subprocess.Popen[bytes]],
        seconds: float = 120.0,
    ) -> None:
        """Read on until ``done``, while the workers live."""
        deadline = time.monotonic() + seconds
        while not done():
            assert {worker.poll() for worker in workers} <= {None}, "a worker ended"
            assert time.monotonic() < deadline, f"{len(self.values)} annotated documents"
            self.read()

    def read(self, milliseconds: int = 200) -> None:
        """Read once."""
        for records in self._consumer.poll(milliseconds).values():
            self.values += [msgspec.json.decode(record.value) for record in records]


def check_groups(values: list[dict[str, Any]]) -> None:
    """Check that duplicate groups and the truth's groups are the same, one original in each."""
    names: dict[str, set[str]] = defaultdict(set)
    groups: dict[str, set[str]] = defaultdict(set)
    originals: Counter[str] = Counter()
    for value in values:
        name, group = value["dedup"]["duplicate_id"], value["truth"]["group"]
        names[group].add(name)
        groups[name].add(group)
        originals[group] += value["dedup"]["status"] == "original"
    assert {group: found for group, found in names.items() if len(found) != 1} == {}
    assert {name: found for name, found in groups.items() if len(found) != 1} == {}
    assert {group: count for group, count in originals.items() if count != 1} == {}


def near_originals(values: list[dict[str, Any]], threshold: float = 0.8) -> list[tuple[str, str]]:
    """Return pairs of originals with an exact resemblance from the threshold on, by brute force."""
    with_shingle: dict[tuple[str, ...], list[str]] = defaultdict(list)
    sizes: dict[str, int] = {}
    for value in values:
        if value["dedup"]["status"] == "original":
            words = re.findall(r"\w+", value["text"].casefold())
            shingles = set(zip(words, words[1:], words[2:], strict=False))
            sizes[value["id"]] = len(shingles)
            for shingle in shingles:
                with_shingle[shingle].append(value["id"])
    common: Counter[tuple[str, str]] = Counter()
    for ids in with_shingle.values():
        common.update((one, other) for at, one in enumerate(ids) for other in ids[at + 1 :])
    return [
        (one, other)
        for (one, other), count in common.items()
        if count / (sizes[one] + sizes[other] - count) >= threshold
    ]
