"""The doctor over TLS and logins, as a user with few rights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka.admin import (  # type: ignore[import-untyped]
    ACL,
    ACLOperation,
    ACLPermissionType,
    KafkaAdminClient,
    ResourcePattern,
    ResourceType,
)

from stream_dedup import Settings
from stream_dedup.doctor.examination import KAFKA, examine, look_at_kafka, of_service
from stream_dedup.doctor.findings import Finding, Level
from tests.services import remedies
from tests.services.certificates import Certificates
from tests.services.secure import PASSWORD, USER, SecureKafka, SecureRedis


def secured(kafka: SecureKafka, certificates: Certificates, secret: Path) -> Settings:
    """Return the settings of a worker's user, for new topics."""
    secret.write_text(PASSWORD)
    secret.chmod(0o600)
    topics = kafka.create_topics(partitions=2)
    return Settings.model_validate(
        {
            "kafka_bootstrap": kafka.at("LOGIN"),
            "kafka_security_protocol": "SASL_SSL",
            "kafka_ca_file": certificates.ca,
            "kafka_sasl_mechanism": "SCRAM-SHA-512",
            "kafka_username": USER,
            "kafka_password_file": secret,
            "input_topic": topics.input,
            "output_topic": topics.output,
            "dead_letter_topic": topics.dead_letter,
            "group": topics.input,
            "http_port": 0,
        }
    )


def by_check(findings: list[Finding]) -> dict[str, Level]:
    return {one.check: one.level for one in findings if one.level is not Level.OK}


def test_it_comes_in_as_a_worker_does(
    secure_kafka: SecureKafka,
    secure_redis: SecureRedis,
    certificates: Certificates,
    tmp_path: Path,
) -> None:
    secure_redis.flush()
    settings = secured(secure_kafka, certificates, tmp_path / "password").model_copy(
        update={
            "redis_url": secure_redis.url,
            "redis_username": "worker",
            "redis_password_file": tmp_path / "password",
            "redis_ca_file": certificates.ca,
            "redis_certificate_file": certificates.client.certificate,
            "redis_key_file": certificates.client.key,
        }
    )

    findings = examine(lambda: settings)

    found = by_check(findings)
    assert "kafka.reachable" not in found
    assert "redis.reachable" not in found
    assert Level.ERROR not in found.values()
    assert found["redis.functions"] is Level.MAY_NOT_LOOK
    (memory,) = [one for one in findings if one.check == "redis.memory"]
    assert f"--user worker --tls --cacert {certificates.ca}" in memory.command
    (kept,) = [one for one in findings if one.check == "kafka.output_retention"]
    assert "--command-config client.properties --alter" in kept.command
    assert PASSWORD not in str(findings)


def test_a_wrong_password_is_told_of_once(
    secure_kafka: SecureKafka, certificates: Certificates, tmp_path: Path
) -> None:
    settings = secured(secure_kafka, certificates, tmp_path / "password")
    (tmp_path / "password").write_text("swordfish")

    found = remedies.doctor(settings)

    (first,) = found.pop("kafka.reachable")
    assert first["level"] == "error"
    assert "login" in first["found"] + first["remedy"]
    assert "swordfish" not in str(first)
    others = [one["level"] for name in found if name.startswith("kafka.") for one in found[name]]
    assert set(others) == {"not checked"}


class TestFewRights:
    @pytest.fixture
    def guarded(self, certificates: Certificates) -> Iterator[SecureKafka]:
        with SecureKafka(certificates, guarded=True) as broker:
            yield broker

    def test_what_may_not_be_seen_or_done(
        self, guarded: SecureKafka, certificates: Certificates, tmp_path: Path
    ) -> None:
        settings = secured(guarded, certificates, tmp_path / "password")

        blind = of_service("Kafka", KAFKA, settings, look_at_kafka)

        hidden = [one for one in blind if one.check == "kafka.topics"]
        assert [one.level for one in hidden] == [Level.ERROR] * 3
        assert hidden[0].command.endswith(f"--operation Read --topic {settings.input_topic}")
        others = {level for check, level in by_check(blind).items() if check != "kafka.topics"}
        assert Level.MAY_NOT_LOOK in others
        assert Level.ERROR not in others

        with KafkaAdminClient(bootstrap_servers=guarded.bootstrap) as admin:
            admin.create_acls(
                [
                    allowed(ACLOperation.READ, settings.input_topic),
                    allowed(ACLOperation.DESCRIBE, settings.output_topic),
                    allowed(ACLOperation.WRITE, settings.dead_letter_topic),
                ]
            )

        (found,) = [
            one
            for one in of_service("Kafka", KAFKA, settings, look_at_kafka)
            if one.check == "kafka.permissions"
        ]
        assert found.level is Level.ERROR
        assert found.found == f"This user may not write the topic {settings.output_topic}."
        assert found.command.endswith(f"--operation Write --topic {settings.output_topic}")


def allowed(operation: ACLOperation, topic: str) -> ACL:
    return ACL(
        principal=f"User:{USER}",
        host="*",
        operation=operation,
        permission_type=ACLPermissionType.ALLOW,
        resource_pattern=ResourcePattern(ResourceType.TOPIC, topic),
    )
