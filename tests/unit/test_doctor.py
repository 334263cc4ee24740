"""What the doctor's checks say of facts: facts in, findings out."""

from __future__ import annotations

import dataclasses
import json
import socket
import stat
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from stream_dedup.cli.main import cli
from stream_dedup.doctor import examination, machine, redis_facts, redis_look, setup
from stream_dedup.doctor.examination import CHECKS, KAFKA, REDIS, examine
from stream_dedup.doctor.findings import (
    Check,
    Finding,
    Level,
    demand,
    exit_code,
    judged,
    may_not_look,
    of_error,
)
from stream_dedup.doctor.kafka_facts import KafkaFacts, Place, Role
from stream_dedup.doctor.redis_facts import Node, RedisFacts
from stream_dedup.doctor.setup import SetupFacts
from stream_dedup.errors import ConfigurationMismatch, ServiceError, SettingsError
from stream_dedup.settings import Settings
from tests.models import defects_of_kafka, defects_of_redis
from tests.models.defects_of_kafka import Defect
from tests.models.healthy import (
    MACHINE,
    SETTINGS,
    SPREAD,
    in_cluster,
    kafka,
    redis,
    said,
    with_node,
    with_topic,
)

DEFECTS = [*defects_of_kafka.DEFECTS, *defects_of_redis.DEFECTS]


class TestWell:
    def test_a_healthy_set_up_is_all_ok(self) -> None:
        findings = judged(KAFKA, kafka(), SETTINGS) + judged(REDIS, redis(), SETTINGS)
        findings += judged(machine.CHECKS, MACHINE, SETTINGS)
        findings += judged(setup.CHECKS, SetupFacts(plain=("seed",)), SETTINGS)
        findings += judged(REDIS, in_cluster(connected_slaves=2, used_memory=10**8), SPREAD)

        assert {found.level for found in findings} == {Level.OK}
        assert {found.check for found in findings} == {
            one.name for one in CHECKS if one.name != "shadow.redis"
        }

    def test_every_check_speaks_once_where_all_is_well(self) -> None:
        assert len(judged(KAFKA, kafka(), SETTINGS)) == len(KAFKA)


class TestDefects:
    @pytest.mark.parametrize(
        "defect", DEFECTS, ids=[f"{one.check}-{n}" for n, one in enumerate(DEFECTS)]
    )
    def test_it_is_found_with_its_remedy(self, defect: Defect) -> None:
        findings = said(defect.check, defect.facts, defect.settings)

        first = next(one for one in findings if one.level is not Level.OK)
        assert first.level is defect.level
        assert defect.found in first.found
        assert defect.remedy in first.advice

    def test_every_level_that_a_check_names_has_a_defect(self) -> None:
        named = {(one.name, level) for one in CHECKS for level in one.levels}
        elsewhere = {
            ("kafka.reachable", Level.ERROR),
            ("redis.reachable", Level.ERROR),
            ("settings.load", Level.ERROR),
            ("settings.secrets", Level.ERROR),
            ("settings.secrets", Level.HINT),
            ("shadow.redis", Level.WARNING),
            ("shadow.redis", Level.HINT),
        }

        assert {(one.check, one.level) for one in DEFECTS} | elsewhere == named


class TestUnknown:
    def test_what_may_not_be_seen_names_the_permission(self) -> None:
        hidden = may_not_look("the configuration of documents", "DescribeConfigs on the topic")
        facts = with_topic(Role.INPUT, config=hidden)

        (found,) = said("kafka.retention", facts)

        assert found.level is Level.MAY_NOT_LOOK
        assert found.found == "This user is not shown the configuration of documents."
        assert "DescribeConfigs on the topic" in found.remedy

    @pytest.mark.parametrize("facts", ["kafka", "redis"])
    def test_no_check_fails_where_nothing_may_be_seen(self, facts: str) -> None:
        hidden = may_not_look("anything", "everything")
        whole: Any = kafka() if facts == "kafka" else redis()
        if isinstance(whole, KafkaFacts):
            topics = dict.fromkeys(whole.topics, hidden)
            blind: Any = dataclasses.replace(
                whole, topics=topics, inner={}, config=hidden, group=hidden, places=hidden
            )
            blind = dataclasses.replace(blind, latest=hidden)
        else:
            node = Node("redis:6379", "redis-cli", hidden, *[hidden] * 5)
            blind = RedisFacts("redis", (node,), None, hidden, hidden, hidden, hidden)
        checks = KAFKA if facts == "kafka" else REDIS

        findings = judged(checks, blind, SETTINGS)

        assert {found.check for found in findings} == {one.name for one in checks}
        bad = {found.check for found in findings if found.level in {Level.ERROR, Level.WARNING}}
        # What a worker's own user cannot see, a worker cannot use.
        assert bad <= {"kafka.topics"}

    def test_a_value_that_is_not_told_ends_its_check_alone(self) -> None:
        (found,) = said("redis.clients", with_node(info={"connected_clients": 1}))

        assert found.level is Level.NOT_CHECKED
        assert found.found == "redis-0:6379 does not tell maxclients."


class TestWorkers:
    def test_a_required_check_raises_all_its_errors(self) -> None:
        facts = kafka(topics={**kafka().topics, Role.INPUT: None, Role.OUTPUT: None})

        with pytest.raises(ServiceError) as raised:
            demand(KAFKA, facts, SETTINGS)

        first, second = str(raised.value).splitlines()
        assert first.startswith("The Kafka topic documents does not exist. Create it: kafka-topics")
        assert second.startswith("The Kafka topic documents.annotated does not exist.")

    def test_other_errors_and_warnings_let_it_start(self) -> None:
        demand(KAFKA, kafka(places={0: Place(5, 7, 9)}), SETTINGS)
        demand(REDIS, redis(info={"maxmemory": 0}), SETTINGS)

    def test_the_error_is_of_the_checks_class(self) -> None:
        with pytest.raises(SettingsError, match=r"^No file\. Name one\.$"):
            demand(setup.CHECKS, SetupFacts(files=SettingsError("No file. Name one.")), SETTINGS)


class TestExitCodes:
    WARNED = (Finding(Level.WARNING, "", check="redis.memory"),)

    @pytest.mark.parametrize(
        ("check", "code"), [("redis.index", 78), ("http.port", 2), ("kafka.topics", 69)]
    )
    def test_an_error_gives_its_own(self, check: str, code: int) -> None:
        findings = [*self.WARNED, Finding(Level.ERROR, "", check=check)]

        assert exit_code(findings, CHECKS, strict=True) == code

    def test_warnings_count_when_strict(self) -> None:
        assert exit_code(self.WARNED, CHECKS, strict=False) == 0
        assert exit_code(self.WARNED, CHECKS, strict=True) == 69

    def test_the_mismatch_of_a_worker_is_told_in_its_words(self) -> None:
        told = ConfigurationMismatch("The index differs. What differs: x. Rebuild it.")

        assert of_error(told).sentence == str(told)


class TestChecks:
    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
    def test_each_says_what_it_checks(self, check: Check) -> None:
        assert check.about.endswith(".")
        assert check.remedy
        assert check.levels
        assert check.name.count(".") == 1

    def test_their_names_differ(self) -> None:
        assert len({check.name for check in CHECKS}) == len(CHECKS)


class TestSetup:
    def test_a_secret_that_everybody_may_read(self, tmp_path: Path) -> None:
        token = tmp_path / "token"
        token.write_text("swordfish")
        token.chmod(0o644)
        settings = Settings(http_token_file=token)

        (found,) = said("settings.secrets", setup.look(settings), settings)

        assert found.level is Level.HINT
        assert found.command == f"chmod o-r {token}"
        token.chmod(stat.S_IRUSR)
        (found,) = said("settings.secrets", setup.look(settings), settings)
        assert found.found == "Set: http_token from a file."

    def test_a_secret_that_is_not_there(self, tmp_path: Path) -> None:
        settings = Settings(http_token_file=tmp_path / "absent")

        (found,) = said("settings.secrets", setup.look(settings), settings)

        assert found.level is Level.ERROR
        assert "http_token_file cannot be read" in found.found

    def test_files_of_the_fingerprint_and_the_shadow(self, tmp_path: Path) -> None:
        settings = Settings(
            clean="boilerplate", boilerplate_file=tmp_path / "no", shadow=tmp_path / "none.toml"
        )

        facts = setup.look(settings)

        assert isinstance(facts.shadow, SettingsError)
        assert facts.files is not None

    def test_the_shadows_findings_are_warnings(self) -> None:
        facts = [Finding(Level.ERROR, "Full.", "Empty it", "now", "redis.memory")]

        (found,) = said("shadow.redis", facts)

        assert found == Finding(
            Level.WARNING, "redis.memory: Full.", "Empty it", "now", "shadow.redis"
        )


@pytest.mark.usefixtures("alone")
class TestCommand:
    def test_settings_that_cannot_be_read_leave_all_else_unchecked(self) -> None:
        result = CliRunner().invoke(cli, ["doctor", "--threshold=7", "--json"])

        told = json.loads(result.stdout)
        assert result.exit_code == told["exit_code"] == 2
        first, *others = told["findings"]
        assert (first["check"], first["level"]) == ("settings.load", "error")
        assert "threshold" in first["found"]
        assert {one["level"] for one in others} == {"not checked"}
        assert len(others) == len(CHECKS) - 1

    def test_services_that_are_away_are_one_error_each(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def away(_settings: Settings) -> None:
            raise ServiceError("Nobody answers. Start it.")

        monkeypatch.setattr(examination, "look_at_kafka", away)
        monkeypatch.setattr(redis_look, "look", away)

        findings = examine(Settings)

        found = {one.check: one for one in findings}
        assert found["kafka.reachable"].level is found["redis.reachable"].level is Level.ERROR
        assert found["kafka.reachable"].remedy == "Start it."
        of_services = {one.name for one in (*KAFKA[1:], *REDIS[1:])}
        assert {found[name].level for name in of_services} == {Level.NOT_CHECKED}
        assert len([one for one in findings if one.level is Level.ERROR]) == 2

    def test_lines_are_plain_and_whole(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(examination, "look_at_kafka", lambda _: kafka(brokers=1))
        monkeypatch.setattr(redis_look, "look", lambda _: redis())
        monkeypatch.setenv("COLUMNS", "40")

        result = CliRunner().invoke(cli, ["doctor", "--http-port=0", "--groups-topic=g"])

        assert result.exit_code == 0
        assert "\x1b" not in result.stdout
        lines = result.stdout.splitlines()
        assert lines[0].startswith("ok           settings.load ")
        at = next(n for n, line in enumerate(lines) if "kafka.replication" in line)
        assert lines[at].startswith("warning      kafka.replication ")
        assert lines[at + 1].startswith("             -> Run three brokers")
        assert lines[-1].endswith(", hint 1, warning 1")

    def test_strict_counts_warnings(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(examination, "look_at_kafka", lambda _: kafka(brokers=1))
        monkeypatch.setattr(redis_look, "look", lambda _: redis())

        result = CliRunner().invoke(cli, ["doctor", "--strict", "--http-port=0"])

        assert result.exit_code == 69


class TestMachine:
    def test_a_port_that_is_taken_by_something_else(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            settings = Settings(http_port=taken.getsockname()[1])
            began = time.monotonic()

            facts = machine.look(settings)

        assert facts.taken
        assert not facts.ours
        assert time.monotonic() - began < 10

    def test_facts_of_redis_are_of_the_nodes(self) -> None:
        assert redis_facts.Node("n", "c", {"used_memory": 5, "maxmemory": 9}).limit == 9
