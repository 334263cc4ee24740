"""``stream-dedup groups`` and ``group`` over a real Kafka and a real Redis."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from click.testing import CliRunner, Result
from kafka import KafkaConsumer, KafkaProducer, TopicPartition  # type: ignore[import-untyped]
from stream_dedup_workers.checks import check_kafka

from stream_dedup.cli.main import cli
from stream_dedup.deduplicator import Deduplicator
from stream_dedup.errors import ServiceError
from stream_dedup.generate import StreamShape, generate
from stream_dedup.groups import Group, Limits, Member, decode_group, decode_member, fold_all
from stream_dedup.index.connection import connect, nodes_of
from stream_dedup.index.group_store import GroupStore
from stream_dedup.index.redis import RedisIndex
from stream_dedup.settings import Settings
from stream_dedup.stream.attempts import LIVES
from stream_dedup.stream.clients import open_transport
from stream_dedup.stream.grouping import GroupLoop, settings_of_groups
from stream_dedup.stream.keeper import keeper_of
from stream_dedup.stream.loop import Loop
from stream_dedup.types import Status
from tests.services.kafka import KafkaBroker, Topics

PARTITIONS = 3
LIMITS = Limits(4, 3)
Transports = Literal["kafka-python", "confluent"]
both = pytest.mark.parametrize("transport", ["kafka-python", "confluent"])


@pytest.fixture(params=["node", "cluster"])
def url(request: pytest.FixtureRequest) -> str:
    name = "redis_url" if request.param == "node" else "redis_cluster_url"
    return str(request.getfixturevalue(name))


@pytest.fixture
def settings(kafka: KafkaBroker, topics: Callable[..., Topics], url: str) -> Settings:
    names = topics(partitions=PARTITIONS)
    members, groups = f"{names.input}.members", f"{names.input}.groups"
    kafka.create([members], PARTITIONS + 2)
    kafka.create([groups], 2, cleanup_policy="compact")
    return Settings(
        kafka_bootstrap=kafka.bootstrap,
        redis_url=url,
        partitions=8,
        input_topic=names.input,
        output_topic=names.output,
        dead_letter_topic=names.dead_letter,
        members_topic=members,
        groups_topic=groups,
        group=names.input,
        origin_field="origin",
        batch_documents=100,
        batch_wait=0.05,
        transaction_timeout=10,
        group_members=LIMITS.members,
        group_sources=LIMITS.sources,
    )


def with_(settings: Settings, **changed: Any) -> Settings:
    return settings.model_copy(update=changed)


@contextmanager
def group_loop(settings: Settings, identity: str = "g") -> Iterator[GroupLoop]:
    """The loop of one process of ``stream-dedup groups``."""
    settings = settings_of_groups(settings)
    with ExitStack() as stack:
        store = stack.enter_context(closing(GroupStore.connect(settings)))
        keeper = keeper_of(settings, store, time)
        keeper.open()
        transport = open_transport(settings, f"{settings.group}-{identity}")
        stack.enter_context(closing(transport))
        yield GroupLoop(settings, transport, keeper, time)


def until(step: Callable[[], int], count: int, seconds: float = 60) -> None:
    """Take steps until so many messages are done."""
    deadline = time.monotonic() + seconds
    while count > 0:
        count -= step()
        assert time.monotonic() < deadline, f"{count} are not done"
    assert count == 0


def committed(settings: Settings, topic: str) -> list[Any]:
    """Return what a reader of committed records sees of a topic, in order in each partition."""
    consumer = KafkaConsumer(
        bootstrap_servers=settings.kafka_bootstrap,
        group_id=None,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    with closing(consumer):
        places = [TopicPartition(topic, n) for n in consumer.partitions_for_topic(topic)]
        consumer.assign(places)
        ends = consumer.end_offsets(places)
        found: list[Any] = []
        while any(consumer.position(place) < ends[place] for place in places):
            for records in consumer.poll(200).values():
                found += records
        return found


def published(settings: Settings) -> dict[str, Group]:
    """Return the last state of each group on the groups topic, without its offsets."""
    assert settings.groups_topic is not None
    found: dict[str, Group] = {}
    for record in committed(settings, settings.groups_topic):
        group = decode_group(record.value)
        assert record.key == group.duplicate_id.encode()
        last = found.get(group.duplicate_id)
        assert last is None or last.revision <= group.revision
        group.applied = {}
        found[group.duplicate_id] = group
    return found


def truth(settings: Settings) -> dict[str, Group]:
    """Return the groups that the committed members make."""
    records = committed(settings, settings.members_topic)
    return fold_all((decode_member(record.value) for record in records), LIMITS)


def members(count: int, seed: int = 1) -> list[Member]:
    rng = random.Random(seed)
    return [
        Member(
            duplicate_id=f"{rng.randrange(25):08x}{'a' * 16}",
            original_id="o",
            id=f"{seed}-{number}",
            status=Status.NEAR_DUPLICATE,
            time=float(number),
            origin=rng.choice("abcde"),
        )
        for number in range(count)
    ]


def send_members(settings: Settings, sent: Sequence[Member], *, abort: bool = False) -> None:
    producer = KafkaProducer(
        bootstrap_servers=settings.kafka_bootstrap, transactional_id=f"{settings.group}-sender"
    )
    with closing(producer):
        producer.init_transactions()
        producer.begin_transaction()
        for member in sent:
            key = member.duplicate_id.encode()
            producer.send(settings.members_topic, msgspec.json.encode(member), key)
        producer.flush()
        if abort:
            producer.abort_transaction()
        else:
            producer.commit_transaction()


@both
class TestPipeline:
    def test_groups_are_those_of_the_annotations(
        self, settings: Settings, transport: Transports, tmp_path: Path
    ) -> None:
        """From documents to groups: what is published equals a count over the annotated topic."""
        settings = with_(settings, transport=transport)
        shape = StreamShape(documents=600, duplicate_share=0.6, edits=1, words=200, seed=4)
        stream = [
            msgspec.json.decode(msgspec.json.encode(document)) | {"origin": f"o{number % 7}"}
            for number, document in enumerate(generate(shape))
        ]
        with closing(KafkaProducer(bootstrap_servers=settings.kafka_bootstrap)) as producer:
            for number, document in enumerate(stream):
                value = json.dumps(document).encode()
                producer.send(settings.input_topic, value, partition=number % PARTITIONS)

        with ExitStack() as stack:
            reading = stack.enter_context(closing(open_transport(settings, settings.group)))
            deduplicator = Deduplicator(settings, index=RedisIndex.connect(settings))
            stack.enter_context(deduplicator)
            until(Loop(settings, reading, deduplicator, time).step, len(stream))
            annotated = [r.value for r in committed(settings, settings.output_topic)]
            duplicates = [line for line in annotated if b'"status":"original"' not in line]
            folding = stack.enter_context(group_loop(settings))
            until(folding.step, len(duplicates))

        found = published(settings)
        assert found == truth(settings)
        assert sum(group.size - 1 for group in found.values()) == len(duplicates)
        file = tmp_path / "annotated.jsonl"
        file.write_bytes(b"\n".join(annotated))
        counted = invoke("groups", str(file), "--origin-field=origin")
        assert counted.exit_code == 0, counted.output
        counts = [json.loads(line) for line in counted.stdout.splitlines()]
        assert {c["duplicate_id"]: c["size"] for c in counts} == {
            name: group.size for name, group in found.items()
        }
        largest = max(found.values(), key=lambda group: group.size)
        looked_up = look_up(settings, largest.duplicate_id, "--json")
        assert json.loads(looked_up.stdout)["size"] == largest.size
        shown = look_up(settings, largest.duplicate_id).stdout
        assert f"{largest.size - 1} similar to {largest.original_id}\n" in shown

    def test_aborted_members_and_members_that_come_again(
        self, settings: Settings, transport: Transports
    ) -> None:
        """A process dies between Redis and Kafka, another has its partitions, again and again.

        Not so often that one of the members is blamed for it (``LIVES`` of ``attempts``).
        """
        settings = with_(settings, transport=transport)
        for part in range(4):
            send_members(settings, members(150, seed=10 + part), abort=part % 2 == 1)
        done = 0
        for life in range(LIVES):
            with group_loop(settings) as folding:
                done += folding.step() if life else 0
                until(lambda folding=folding: polled(folding), 1)  # type: ignore[misc]
        with group_loop(settings) as folding:
            until(folding.step, 300 - done)

        found = published(settings)
        assert found == truth(settings)
        assert sum(group.revision for group in found.values()) == 300

    def test_lost_states_come_back(self, settings: Settings, transport: Transports) -> None:
        """Redis loses everything while the process runs, and again while it is away."""
        settings = with_(settings, transport=transport)
        with group_loop(settings) as folding:
            send_members(settings, members(200, seed=1))
            until(folding.step, 200)
            lose_everything(settings)
            send_members(settings, members(100, seed=2))
            with pytest.raises(Exception, match="lacks the Functions"):
                folding._keeper.fold([(record(0), members(1)[0])])
            folding._keeper.open()
            until(folding.step, 100)
        lose_everything(settings)
        send_members(settings, members(100, seed=3))
        with group_loop(settings) as folding:
            until(folding.step, 100)

        assert published(settings) == truth(settings)
        assert sum(group.size - 1 for group in published(settings).values()) == 400


def record(offset: int) -> Any:
    class Place:
        partition = 0

    place = Place()
    place.offset = offset  # type: ignore[attr-defined]
    return place


def polled(folding: GroupLoop) -> int:
    """Fold a batch into Redis, and then do not publish it."""
    records = folding._transport.poll()
    if records:
        folding._keeper.fold([(r, decode_member(r.value or b"")) for r in records])
    return bool(records)


def lose_everything(settings: Settings) -> None:
    with closing(connect(settings)) as client:
        for node in nodes_of(client):
            node.flushall()
            node.function_flush()


class TestStart:
    """Each mistake is one sentence on what is wrong and one on what to do."""

    def fail(self, settings: Settings, **changed: str) -> str:
        values = {
            "kafka_bootstrap": settings.kafka_bootstrap,
            "redis_url": settings.redis_url,
            "dead_letter_topic": settings.dead_letter_topic,
            "members_topic": settings.members_topic,
            "groups_topic": settings.groups_topic,
            "http_port": "0",
        } | changed
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in values.items()]
        program = Path(sys.executable).with_name("stream-dedup")
        done = subprocess.run(
            [program, "groups", *flags], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 69
        assert "Traceback" not in done.stderr
        return done.stderr

    def test_a_topic_that_is_not_compacted(self, settings: Settings) -> None:
        said = self.fail(settings, groups_topic=settings.output_topic)

        assert f"{settings.output_topic} has the cleanup policy delete" in said
        assert f"--alter --topic {settings.output_topic} --add-config cleanup.policy=comp" in said

    def test_no_topics(self, settings: Settings) -> None:
        said = self.fail(settings, groups_topic="absent", members_topic="nowhere")

        assert re.search("--create --topic absent --partitions .* --config cleanup.policy=co", said)
        assert re.search(r"--create --topic nowhere --partitions [0-9]+(?! --config)\b", said)

    def test_a_worker_without_a_members_topic(self, settings: Settings) -> None:
        with pytest.raises(ServiceError, match="topic nowhere does not exist"):
            check_kafka(with_(settings, members_topic="nowhere"))
        check_kafka(with_(settings, members_topic="nowhere", groups_topic=None))


class TestPoison:
    def test_what_is_no_member_goes_aside(self, settings: Settings) -> None:
        with closing(KafkaProducer(bootstrap_servers=settings.kafka_bootstrap)) as producer:
            for value in (b"hello", b'{"id": 1}', None, b'\xff"'):
                producer.send(settings.members_topic, value, b"k", partition=0)
        send_members(settings, members(1))

        with group_loop(settings) as folding:
            until(folding.step, 1)
            for _ in range(5):
                folding.step()

        letters = committed(settings, settings.dead_letter_topic)
        reasons = sorted(dict(r.headers)["dead-letter-reason"] for r in letters)
        assert reasons == [b"not_json", b"not_json", b"tombstone", b"wrong_type"]
        assert len(published(settings)) == 1


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


def look_up(settings: Settings, name: str, *flags: str) -> Result:
    where = (f"--redis-url={settings.redis_url}", f"--partitions={settings.partitions}")
    return invoke("group", name, *where, *flags)


class TestCommands:
    def test_restore(self, settings: Settings) -> None:
        send_members(settings, members(50))
        with group_loop(settings) as folding:
            until(folding.step, 50)
        groups = published(settings)
        lose_everything(settings)
        name = next(iter(groups))
        assert look_up(settings, name).exit_code == 1
        flags = [
            f"--{name}={getattr(settings, name.replace('-', '_'))}"
            for name in (*["kafka-bootstrap", "groups-topic", "members-topic"], "redis-url")
        ]

        done = invoke("groups", "--restore", "--partitions=8", *flags)

        assert done.stdout == f"Put back the states of {len(groups)} groups.\n"
        assert json.loads(look_up(settings, name, "--json").stdout)["size"] == groups[name].size
        again = invoke("groups", "--restore", "--partitions=8", *flags)
        assert again.stdout == "Put back the states of 0 groups.\n"

    def test_a_name_of_nothing(self, settings: Settings) -> None:
        missing = look_up(settings, "0" * 24)

        assert missing.exit_code == 1
        assert "no duplicate of it is known" in missing.output
