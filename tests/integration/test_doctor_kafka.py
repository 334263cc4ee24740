"""The doctor on a real broker: healthy topics, then each defect made, found and mended."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from kafka import KafkaConsumer, KafkaProducer, TopicPartition  # type: ignore[import-untyped]
from kafka.admin import ConfigResource, KafkaAdminClient  # type: ignore[import-untyped]
from kafka.errors import CoordinatorNotAvailableError  # type: ignore[import-untyped]
from kafka.structs import OffsetAndMetadata  # type: ignore[import-untyped]

from stream_dedup import Settings
from stream_dedup.cli.main import cli
from stream_dedup.doctor import examination
from stream_dedup.doctor.examination import KAFKA, of_service
from stream_dedup.doctor.findings import Finding, Level
from tests.services import remedies
from tests.services.kafka import KafkaBroker, Topics
from tests.services.process import free_ports
from tests.services.redis import RedisServer
from tests.services.worker import Worker

DAY_MS = 86_400_000
#: What a broker without others is told.
ALONE = {"kafka.replication": Level.WARNING}


@pytest.fixture
def admin(kafka: KafkaBroker) -> Iterator[Any]:
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap) as admin:
        yield admin


@pytest.fixture
def settings(kafka: KafkaBroker, topics: Callable[..., Topics], admin: Any) -> Settings:
    """Those of new topics that are as they must be."""
    made = topics(partitions=2)
    names = f"{made.input}.groups", f"{made.input}.members"
    admin.create_topics(
        {
            names[0]: {"num_partitions": 2, "configs": {"cleanup.policy": "compact"}},
            names[1]: {"num_partitions": 2},
        },
        wait_for_metadata=True,
    )
    configure(admin, made.output, **{"retention.ms": "-1"})
    return Settings(
        kafka_bootstrap=kafka.bootstrap,
        input_topic=made.input,
        output_topic=made.output,
        dead_letter_topic=made.dead_letter,
        groups_topic=names[0],
        members_topic=names[1],
        group=made.input,
    )


def configure(admin: Any, topic: str, **config: str) -> None:
    admin.alter_configs([ConfigResource("TOPIC", topic, config)])


def examine(settings: Settings) -> list[Finding]:
    return of_service("Kafka", KAFKA, settings, examination.look_at_kafka)


def bad(findings: list[Finding]) -> dict[str, Level]:
    return {one.check: one.level for one in findings if one.level is not Level.OK}


def named(settings: Settings, check: str) -> list[Finding]:
    return [one for one in examine(settings) if one.check == check]


def send(settings: Settings, count: int, timestamp_ms: int | None = None) -> None:
    with closing(KafkaProducer(bootstrap_servers=settings.kafka_bootstrap)) as producer:
        for _ in range(count):
            topic = settings.input_topic
            producer.send(topic, b"{}", partition=0, timestamp_ms=timestamp_ms).get(30)


def commit(settings: Settings, offset: int) -> None:
    """Have the group stand at an offset of the input's first partition."""
    place = TopicPartition(settings.input_topic, 0)
    wanted = {place: OffsetAndMetadata(offset, "", -1)}
    deadline = time.monotonic() + 60
    with KafkaAdminClient(bootstrap_servers=settings.kafka_bootstrap) as admin:
        while True:
            try:
                admin.alter_group_offsets(settings.group, wanted)
            except CoordinatorNotAvailableError:  # the broker makes the topic for groups
                assert time.monotonic() < deadline
                time.sleep(0.2)
            else:
                return


class TestTopics:
    def test_healthy_topics_are_all_ok(self, settings: Settings) -> None:
        findings = examine(settings)

        assert bad(findings) == ALONE
        assert [one.check for one in findings] == [one.name for one in KAFKA]

    def test_topics_that_are_missing(self, settings: Settings) -> None:
        name = f"{settings.input_topic}.absent"
        other = settings.model_copy(update={"output_topic": name, "groups_topic": f"{name}.groups"})

        missing = named(other, "kafka.topics")

        assert [one.level for one in missing] == [Level.ERROR] * 2
        for one in missing:
            remedies.run(one.command)
        found = bad(examine(other))
        assert found == ALONE | {"kafka.output_retention": Level.HINT}

    def test_each_defect_of_a_topic_is_mended_by_its_command(
        self, settings: Settings, admin: Any
    ) -> None:
        assert settings.groups_topic is not None
        configure(admin, settings.input_topic, **{"retention.ms": "60000"})
        configure(admin, settings.groups_topic, **{"cleanup.policy": "delete"})
        configure(
            admin,
            settings.output_topic,
            **{
                "retention.ms": str(DAY_MS),
                "max.message.bytes": "200000",
                "message.timestamp.type": "LogAppendTime",
                "compression.type": "gzip",
            },
        )
        admin.create_partitions({settings.input_topic: 3})

        findings = [one for one in examine(settings) if one.check not in ALONE]

        assert bad(findings) == {
            "kafka.retention": Level.WARNING,
            "kafka.compaction": Level.ERROR,
            "kafka.output_retention": Level.HINT,
            "kafka.message_bytes": Level.WARNING,
            "kafka.timestamps": Level.WARNING,
            "kafka.compression": Level.WARNING,
            "kafka.partitions": Level.WARNING,
        }
        for one in findings:
            if one.command:
                remedies.run(one.command)
        assert bad(examine(settings)) == ALONE

    def test_looking_makes_no_topic(self) -> None:
        with KafkaBroker() as broker:
            findings = examine(Settings(kafka_bootstrap=broker.bootstrap))

            with KafkaAdminClient(bootstrap_servers=broker.bootstrap) as admin:
                assert admin.list_topics() == []
        assert [one.level for one in findings if one.check == "kafka.topics"] == [Level.ERROR] * 3
        assert Level.NOT_CHECKED in bad(findings).values()


class TestOffsets:
    def test_what_is_read_too_slowly(self, settings: Settings) -> None:
        now = int(time.time() * 1000)
        send(settings, 1, now - 4 * DAY_MS)
        commit(settings, 0)
        (found,) = named(settings, "kafka.retention")
        assert (found.level, "less than half" in found.found) == (Level.WARNING, True)

        commit(settings, 1)

        assert bad(named(settings, "kafka.retention")) == {}

    def test_what_is_nearly_lost(self, settings: Settings) -> None:
        send(settings, 1, int(time.time() * 1000) - int(6.5 * DAY_MS))
        commit(settings, 0)

        (found,) = named(settings, "kafka.retention")

        assert (found.level, "less than a tenth" in found.found) == (Level.ERROR, True)

    def test_what_was_lost(self, settings: Settings, admin: Any) -> None:
        send(settings, 5)
        commit(settings, 1)
        admin.delete_records({TopicPartition(settings.input_topic, 0): 4})

        (found,) = named(settings, "kafka.offsets")

        assert found.level is Level.ERROR
        assert found.found.startswith("3 documents of")
        remedies.run(found.command)
        assert bad(named(settings, "kafka.offsets")) == {}

    def test_a_record_of_tomorrow(self, settings: Settings, admin: Any) -> None:
        far = {"message.timestamp.after.max.ms": str(9 * DAY_MS)}
        configure(admin, settings.input_topic, **far)
        send(settings, 1, int(time.time() * 1000) + DAY_MS)

        (found,) = named(settings, "clock.documents")

        assert found.level is Level.WARNING
        assert "24 h ahead" in found.found

    def test_another_program_in_the_group(self, settings: Settings) -> None:
        options = {"bootstrap_servers": settings.kafka_bootstrap, "group_id": settings.group}
        with closing(
            KafkaConsumer(settings.members_topic, client_id="stranger", **options)
        ) as consumer:
            while not consumer.assignment():
                consumer.poll(100)

            (found,) = named(settings, "kafka.group")

        assert found.level is Level.ERROR
        assert f"readers of {settings.members_topic} (stranger)" in found.found


def test_services_that_are_away() -> None:
    kafka, redis = free_ports(2)
    found = remedies.doctor(
        Settings(
            kafka_bootstrap=f"127.0.0.1:{kafka}",
            redis_url=f"redis://127.0.0.1:{redis}",
            redis_timeout=1,
            http_port=0,
        )
    )

    errors = {check: one for check, (one, *_) in found.items() if one["level"] == "error"}
    assert set(errors) == {"kafka.reachable", "redis.reachable"}
    for name, option in (("kafka", "--kafka-bootstrap"), ("redis", "--redis-url")):
        assert option in errors[f"{name}.reachable"]["remedy"]
        others = [one for check, one in found.items() if check.startswith(f"{name}.")]
        assert len(others) > 5
        assert {one[0]["level"] for one in others} == {"error", "not checked"}


@pytest.mark.usefixtures("alone")
class TestWhole:
    def test_a_healthy_set_up(
        self, settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("STREAM_DEDUP_SEED", "swordfish")
        kinds = ("input", "output", "dead_letter", "groups", "members")
        names = ("kafka_bootstrap", "group", *(f"{kind}_topic" for kind in kinds))
        lines = [f'{name} = "{getattr(settings, name)}"' for name in names]
        config, shadow = tmp_path / "worker.toml", tmp_path / "shadow.toml"
        shadow.write_text('redis_namespace = "sd-shadow"\nthreshold = 0.7\n')
        with RedisServer(extra=("--maxmemory", "2gb", "--appendonly", "yes")) as server:
            lines += [f'redis_url = "{server.url}"', "http_port = 0", f'shadow = "{shadow}"']
            config.write_text("\n".join(lines))

            result = CliRunner().invoke(cli, ["doctor", "--json", "--config", str(config)])
            strict = CliRunner().invoke(cli, ["doctor", "--strict", "--config", str(config)])
            shadow.write_text("redis_namespace = 5\n")
            broken = CliRunner().invoke(cli, ["doctor", "--config", str(config)])

        told = json.loads(result.stdout)
        found = {one["check"]: one["level"] for one in told["findings"] if one["level"] != "ok"}
        found.pop("redis.latency", None)  # this machine may be busy
        assert found == {"kafka.replication": "warning"}
        assert result.exit_code == told["exit_code"] == 0
        assert strict.exit_code == 69
        assert broken.exit_code == 2
        assert "swordfish" not in result.stdout

    def test_beside_a_worker(self, worker: Worker) -> None:
        worker.start()
        flags = [flag for flag in worker.command()[2:] if not flag.startswith("--transport")]

        result = CliRunner().invoke(cli, ["doctor", "--json", *flags])

        told = {one["check"]: one for one in json.loads(result.stdout)["findings"]}
        assert "A worker answers on" in told["http.port"]["found"]
        assert told["kafka.group"]["found"].endswith("Stable, 1 member(s).")
        assert told["redis.index"]["level"] == "ok"
        assert told["redis.functions"]["level"] == "ok"
        assert result.exit_code == 0
