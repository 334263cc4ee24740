"""Redis over TLS with a client certificate and a user, on one node and as a Cluster."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from pydantic import ValidationError

from stream_dedup import Deduplicator, Document, ServiceError, Settings, SettingsError, Status
from stream_dedup.index.connection import connect, nodes_of
from stream_dedup.index.look_up import RedisLookUp
from stream_dedup.index.redis import RedisIndex
from tests.services.certificates import Certificates
from tests.services.redis import RedisCluster, RedisServer
from tests.services.secure import PASSWORD, SecureRedis
from tests.services.service import listens

WRONG = "wrong and hidden"


def reached(url: str, certificates: Certificates, user: str = "worker") -> dict[str, Any]:
    return {
        "redis_url": url,
        "redis_ca_file": certificates.ca,
        "redis_certificate_file": certificates.client.certificate,
        "redis_key_file": certificates.client.key,
        "redis_username": user,
        "redis_password": PASSWORD,
    }


@pytest.fixture(scope="module")
def cluster(certificates: Certificates) -> Iterator[RedisCluster]:
    with RedisCluster(make=partial(SecureRedis, certificates)) as cluster:
        for master in cluster.masters:
            master.flush()
        yield cluster


@pytest.fixture
def node(secure_redis: SecureRedis) -> SecureRedis:
    secure_redis.flush()
    return secure_redis


@pytest.mark.parametrize("kind", ["node", "cluster"])
def test_documents_are_decided_and_looked_up(
    kind: str, request: pytest.FixtureRequest, certificates: Certificates
) -> None:
    url = request.getfixturevalue(kind).url
    settings = Settings(**reached(url, certificates), partitions=8)
    documents = [Document(n, f"The ferry to the island leaves at {n % 10}.") for n in range(20)]

    with Deduplicator(settings, index=RedisIndex.connect(settings)) as deduplicator:
        decisions = deduplicator.decide(documents)

    assert [decision.status for decision in decisions].count(Status.ORIGINAL) == 10
    with connect(settings) as client:
        nodes = nodes_of(client)
        assert len(nodes) == (1 if kind == "node" else 3)
        assert all(node.ping() for node in nodes)
    RedisLookUp.connect(Settings(**reached(url, certificates, "reader"), partitions=8)).close()


def test_a_renewed_password_counts_for_the_next_connection(
    node: SecureRedis, certificates: Certificates, tmp_path: Path
) -> None:
    held = tmp_path / "password"
    held.write_text(PASSWORD)
    options = reached(node.url, certificates) | {"redis_password_file": held}
    del options["redis_password"]
    with connect(Settings(**options)) as client:
        client.ping()
        with node.client() as admin:
            # Ends the connections of the user, too.
            admin.acl_setuser("worker", enabled=True, passwords=["+new"], reset_passwords=True)
            admin.client_kill_filter(_type="normal", skipme=True)
            try:
                held.write_text("new")
                assert client.ping()
            finally:
                admin.acl_setuser("worker", enabled=True, passwords=[f"+{PASSWORD}"])


def mistakes(url: str, certificates: Certificates) -> dict[str, dict[str, Any]]:
    right = reached(url, certificates)
    stranger = certificates.stranger
    tls = ("redis_ca_file", "redis_certificate_file", "redis_key_file")
    return {
        "password": right | {"redis_password": WRONG},
        "nobody": {name: right[name] for name in (*tls, "redis_url")},
        "authority": right | {"redis_ca_file": certificates.other_ca},
        "host": right | {"redis_url": url.replace("127.0.0.1", "localhost")},
        "no TLS": {"redis_url": url.replace("rediss:", "redis:")},
        "no certificate": {n: v for n, v in right.items() if n not in tls[1:]},
        "stranger": right
        | {"redis_certificate_file": stranger.certificate, "redis_key_file": stranger.key},
    }


TOLD = {
    "password": r"refuses the login\. Correct redis_username and",
    "nobody": r"refuses the login\. Correct redis_username and",
    "authority": r"is refused: .* certificate.*\. Name .* in redis_ca_file",
    "host": r"is refused: it is for another host\. Use an address that it names",
    "no TLS": r"wants TLS\. Begin its address in redis_url with rediss://",
    "no certificate": r"does not accept this program's certificate .*redis_certificate_file",
    "stranger": r"does not accept this program's certificate .*redis_certificate_file",
}


@pytest.mark.parametrize("mistake", TOLD)
def test_each_mistake_is_one_sentence_and_what_to_do(
    mistake: str, node: SecureRedis, certificates: Certificates
) -> None:
    settings = Settings(**mistakes(node.url, certificates)[mistake])

    with pytest.raises(ServiceError, match=TOLD[mistake]) as raised:
        connect(settings)

    assert WRONG not in str(raised.value)


def test_a_server_with_an_expired_certificate_is_told(certificates: Certificates) -> None:
    pair = certificates.expired
    names = {"cert": pair.certificate, "key": pair.key, "ca-cert": certificates.ca}
    files = [word for n, path in names.items() for word in (f"--tls-{n}-file", str(path))]
    extra = (*files, "--tls-auth-clients", "no")
    with (
        _Unchecked(extra=extra, local=True, tls=True) as server,
        pytest.raises(ServiceError, match=r"is refused: it has expired\. Have it renewed"),
    ):
        connect(Settings(redis_url=server.url, redis_ca_file=certificates.ca))


def test_a_server_without_tls_is_told(redis_url: str, certificates: Certificates) -> None:
    url = redis_url.replace("redis:", "rediss:")

    with pytest.raises(
        ServiceError, match=r"does not answer in TLS.*Begin its address .* redis://"
    ):
        connect(Settings(redis_url=url, redis_ca_file=certificates.ca))


def test_a_missing_permission_is_told(node: SecureRedis, certificates: Certificates) -> None:
    settings = Settings(**reached(node.url, certificates, "reader"))

    with pytest.raises(ServiceError, match=r"lacks a permission: see docs/redis\.md"):
        RedisIndex.connect(settings)


def test_user_and_password_may_be_in_the_address_but_not_differ(
    node: SecureRedis, certificates: Certificates
) -> None:
    inside = node.url.replace("//", f"//worker:{quote(PASSWORD)}@")
    right = reached(inside, certificates)
    with connect(Settings(**right | {"redis_username": "", "redis_password": ""})) as client:
        assert client.ping()
    with connect(Settings(**right)) as client:
        assert client.ping()

    with pytest.raises(SettingsError, match="redis_url and redis_username name different users"):
        connect(Settings(**right | {"redis_username": "reader"}))
    with pytest.raises(
        ValidationError, match="another one is set; take it out of redis_url"
    ) as raised:
        Settings(**right | {"redis_password": WRONG})
    assert WRONG not in str(raised.value)


class _Unchecked(RedisServer):
    """A server that is ready when its port is open."""

    def is_ready(self) -> bool:
        return listens(self.port)
