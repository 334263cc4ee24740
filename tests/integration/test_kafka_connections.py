"""Both Kafka clients over TLS and with each login, and what is said when that cannot be."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient  # type: ignore[import-untyped]
from pydantic import SecretStr
from stream_dedup_workers.checks import check_kafka

from stream_dedup.doctor import kafka_look
from stream_dedup.errors import ServiceError
from stream_dedup.settings import Settings
from stream_dedup.stream import confluent_clients, kafka_clients
from stream_dedup.stream.clients import open_transport
from stream_dedup.stream.compacted import read_all
from stream_dedup.stream.kafka_tokens import token_source
from stream_dedup.stream.kafka_trouble import kafka_trouble
from stream_dedup.stream.topic import TopicReader
from stream_dedup.stream.transport import Output, Record
from tests.services.certificates import Certificates
from tests.services.process import free_ports
from tests.services.secure import PASSWORD, USER, SecureKafka, token
from tests.services.tokens import CLIENT, SECRET, token_server

on_both_transports = pytest.mark.parametrize("transport", ["kafka-python", "confluent"])

#: Makes the settings that some way of connecting takes.
Way = Callable[[SecureKafka, Certificates, Path], dict[str, Any]]


def _login(kafka: SecureKafka, certificates: Certificates, mechanism: str) -> dict[str, Any]:
    return {
        "kafka_bootstrap": kafka.at("LOGIN"),
        "kafka_security_protocol": "SASL_SSL",
        "kafka_ca_file": certificates.ca,
        "kafka_sasl_mechanism": mechanism,
        "kafka_username": USER,
    }


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    yield
    gc.collect()


def by_password(mechanism: str) -> Way:
    def way(kafka: SecureKafka, certificates: Certificates, files: Path) -> dict[str, Any]:
        secret = files / "password"
        secret.write_text(PASSWORD + "\n")
        return _login(kafka, certificates, mechanism) | {"kafka_password_file": secret}

    return way


def by_token(kafka: SecureKafka, certificates: Certificates, files: Path) -> dict[str, Any]:
    held = files / "token"
    held.write_text(token())
    options = _login(kafka, certificates, "OAUTHBEARER") | {"kafka_oauth_token_file": held}
    del options["kafka_username"]
    return options


def by_certificate(kafka: SecureKafka, certificates: Certificates, _: Path) -> dict[str, Any]:
    return {
        "kafka_bootstrap": kafka.at("MUTUAL"),
        "kafka_security_protocol": "SSL",
        "kafka_ca_file": certificates.ca,
        "kafka_certificate_file": certificates.client.certificate,
        "kafka_key_file": certificates.encrypted_key("of the key"),
        "kafka_key_password": "of the key",
    }


WAYS = {
    "PLAIN": by_password("PLAIN"),
    "SCRAM-SHA-256": by_password("SCRAM-SHA-256"),
    "SCRAM-SHA-512": by_password("SCRAM-SHA-512"),
    "OAUTHBEARER": by_token,
    "certificate": by_certificate,
}


def copy_one(settings: Settings, topics: Any) -> None:
    """Take one record from the input topic to the output topic, in a transaction."""
    transport = open_transport(settings, f"{settings.group}-0")
    try:
        deadline = time.monotonic() + 30
        records: list[Record] = []
        while not records:
            assert time.monotonic() < deadline
            records = list(transport.poll())
        (record,) = records
        transport.publish([Output(topics.output, record, record.value, [], record.key, None)])
    finally:
        transport.close()


@on_both_transports
@pytest.mark.parametrize("way", WAYS)
def test_a_record_is_consumed_and_another_published_in_a_transaction(
    way: str,
    transport: str,
    secure_kafka: SecureKafka,
    certificates: Certificates,
    tmp_path: Path,
) -> None:
    topics = secure_kafka.create_topics(partitions=1)
    secure_kafka.produce(topics.input, b"hello")
    settings = Settings.model_validate(
        WAYS[way](secure_kafka, certificates, tmp_path)
        | {"input_topic": topics.input, "output_topic": topics.output, "group": topics.input}
        | {"dead_letter_topic": topics.dead_letter, "transport": transport}
    )
    check_kafka(settings)

    copy_one(settings, topics)

    found = [record for records in read_all(settings, topics.output) for record in records]
    assert [record.value for record in found] == [b"hello"]


@on_both_transports
def test_a_token_is_fetched_with_the_clients_secret(
    transport: str, secure_kafka: SecureKafka, certificates: Certificates
) -> None:
    topics = secure_kafka.create_topics(partitions=1)
    secure_kafka.produce(topics.input, b"hello")
    with token_server(certificates) as (url, forms):
        settings = _by_client(secure_kafka, certificates, url).model_copy(
            update={
                "input_topic": topics.input,
                "output_topic": topics.output,
                "group": topics.input,
                "transport": transport,
            }
        )

        copy_one(settings, topics)

    assert forms[0] == {"grant_type": ["client_credentials"], "scope": ["kafka"]}


def test_a_token_that_is_refused_or_not_had_is_told(
    secure_kafka: SecureKafka, certificates: Certificates
) -> None:
    with token_server(certificates) as (url, _):
        settings = _by_client(secure_kafka, certificates, url)
        wrong = settings.model_copy(update={"kafka_oauth_client_secret": SecretStr("hidden")})
        with pytest.raises(ServiceError, match=r"refuses a token \(invalid_client\)\. Correct"):
            token_source(wrong)()
        untrusted = settings.model_copy(update={"kafka_oauth_ca_file": certificates.other_ca})
        with pytest.raises(ServiceError, match=r"no token \(SSLError\).*kafka_oauth_ca_file"):
            token_source(untrusted)()
        source = token_source(settings)
        assert source() == source()  # not fetched again before it expires
    with pytest.raises(ServiceError, match=r"no token \(ConnectionError\)"):
        token_source(settings)()


def _by_client(kafka: SecureKafka, certificates: Certificates, url: str) -> Settings:
    options = _login(kafka, certificates, "OAUTHBEARER") | {
        "kafka_oauth_token_url": url,
        "kafka_oauth_client_id": CLIENT,
        "kafka_oauth_client_secret": SECRET,
        "kafka_oauth_scope": "kafka",
        "kafka_oauth_ca_file": certificates.ca,
    }
    del options["kafka_username"]
    return Settings.model_validate(options)


WRONG = "wrong and hidden"


def mistakes(kafka: SecureKafka, certificates: Certificates) -> dict[str, dict[str, Any]]:
    login = _login(kafka, certificates, "SCRAM-SHA-512") | {"kafka_password": PASSWORD}
    tls = {"kafka_security_protocol": "SSL", "kafka_ca_file": certificates.ca}
    stranger = certificates.stranger
    return {
        "password": login | {"kafka_password": WRONG},
        "user": login | {"kafka_username": "nobody"},
        "authority": login | {"kafka_ca_file": certificates.other_ca},
        "expired": tls | {"kafka_bootstrap": kafka.at("EXPIRED")},
        "host": login | {"kafka_bootstrap": kafka.at("LOGIN", "localhost")},
        "no TLS": {"kafka_bootstrap": kafka.at("LOGIN")},
        "TLS": tls | {"kafka_bootstrap": kafka.bootstrap},
        "no login": tls | {"kafka_bootstrap": kafka.at("LOGIN")},
        "no certificate": tls | {"kafka_bootstrap": kafka.at("MUTUAL")},
        "stranger": tls
        | {
            "kafka_bootstrap": kafka.at("MUTUAL"),
            "kafka_certificate_file": stranger.certificate,
            "kafka_key_file": stranger.key,
        },
    }


TOLD = {
    "password": r"refuses the login of worker by SCRAM-SHA-512\. Correct kafka_username and",
    "user": r"refuses the login of nobody by SCRAM-SHA-512\. Correct kafka_username and",
    "authority": r"is refused: .* certificate.*\. Name .* in kafka_ca_file",
    "expired": r"is refused: it has expired\. Have it renewed",
    "host": r"is refused: it is for another host\. Use an address that it names",
    "no TLS": r"wants TLS\. Set kafka_security_protocol to SSL, or with a login SASL_SSL",
    "TLS": r"does not speak TLS .*\. Set kafka_security_protocol to PLAINTEXT",
    "no login": r"ends the connection, as it does when it wants a login\. Set kafka_security_",
    "no certificate": r"does not accept this program's certificate .*kafka_certificate_file",
    "stranger": r"does not accept this program's certificate .*kafka_certificate_file",
}


@pytest.mark.parametrize("mistake", TOLD)
def test_each_mistake_is_one_sentence_and_what_to_do(
    mistake: str,
    secure_kafka: SecureKafka,
    certificates: Certificates,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_look, "TIMEOUT_MS", 1500)
    settings = Settings.model_validate(mistakes(secure_kafka, certificates)[mistake])

    with pytest.raises(ServiceError, match=TOLD[mistake]) as raised:
        check_kafka(settings)

    assert WRONG not in str(raised.value)


@on_both_transports
@pytest.mark.parametrize("mistake", ["password", "authority"])
def test_a_transport_that_cannot_be_opened_tells_the_same(
    mistake: str,
    transport: str,
    secure_kafka: SecureKafka,
    certificates: Certificates,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_clients, "OPEN_TIMEOUT_MS", 1500)
    monkeypatch.setattr(confluent_clients, "OPEN_TIMEOUT", 1.5)
    settings = Settings.model_validate(
        mistakes(secure_kafka, certificates)[mistake] | {"transport": transport}
    )

    with pytest.raises(ServiceError, match=TOLD[mistake]) as raised:
        open_transport(settings, "nobody-0")

    assert WRONG not in str(raised.value)


def test_readers_tell_the_same(
    secure_kafka: SecureKafka, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_clients, "OPEN_TIMEOUT_MS", 1500)
    settings = Settings.model_validate(mistakes(secure_kafka, certificates)["authority"])

    with pytest.raises(ServiceError, match=TOLD["authority"]):
        list(read_all(settings, "groups"))
    with pytest.raises(ServiceError, match=TOLD["authority"]):
        TopicReader(settings, "documents", {})


def test_a_broker_that_is_not_there_is_told_as_such(certificates: Certificates) -> None:
    port = free_ports(1)[0]
    settings = Settings(
        kafka_bootstrap=f"127.0.0.1:{port}",
        kafka_security_protocol="SSL",
        kafka_ca_file=certificates.ca,
    )

    assert kafka_trouble(settings, TimeoutError()) == ""


def test_a_renewed_password_counts_for_the_next_connection(
    secure_kafka: SecureKafka, certificates: Certificates, tmp_path: Path
) -> None:
    options = by_password("SCRAM-SHA-512")(secure_kafka, certificates, tmp_path)
    settings = Settings.model_validate(options)
    options["kafka_password_file"].write_text(WRONG)
    assert "refuses the login" in kafka_trouble(settings, TimeoutError())

    client = kafka_clients.connection_options(settings)
    options["kafka_password_file"].write_text(PASSWORD)

    assert kafka_trouble(settings, TimeoutError()) == ""
    with KafkaAdminClient(**client) as admin:
        assert admin.list_topics()
