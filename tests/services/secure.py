"""A Kafka and a Redis that want TLS and a login."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import redis
from kafka.admin import (  # type: ignore[import-untyped]
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    KafkaAdminClient,
    ResourcePattern,
    ResourceType,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.services.certificates import HOST, Certificates
from tests.services.kafka import KafkaBroker
from tests.services.redis import RedisServer
from tests.services.service import scratch_directory

USER, PASSWORD = "worker", "correct horse, battery=staple"
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_SECURITY = "org.apache.kafka.common.security"
_GUARD = {"allow.everyone.if.no.acl.found": "false"}
_PROJECT = Path(__file__).parents[2]
USERS = _PROJECT / "ops" / "redis" / "users.acl"
LIBRARIES = sorted((_PROJECT / "stream_dedup" / "index" / "lua").glob("*.lua"))


class SecureKafka(KafkaBroker):
    """A broker that also listens with TLS: with a login, for certificates, and long expired."""

    def __init__(self, certificates: Certificates, *, guarded: bool = False) -> None:
        """Describe the broker; a ``guarded`` one lets users do only what they are allowed to."""
        kinds = {"LOGIN": "SASL_SSL", "MUTUAL": "SSL", "EXPIRED": "SSL"}
        super().__init__(
            listeners=kinds, extra=_security(certificates) | (_GUARD if guarded else {})
        )

    def start(self) -> SecureKafka:
        super().start()
        with KafkaAdminClient(bootstrap_servers=self.bootstrap) as admin:
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
                user = UserScramCredentialUpsertion(USER, mechanism, PASSWORD)
                # One after the other: a broker refuses a user that comes twice in a request.
                assert admin.alter_user_scram_credentials([user]) == {USER: None}
        return self

    def grant(self, topics: Mapping[str, Sequence[str]], prefix: str) -> None:
        """Let the user do something with topics, and nobody do anything else with them.

        Args:
            topics: operations by name of topic.
            prefix: of the groups that it may read and the transactional ids that it may use.
        """
        wanted = [
            (ResourcePattern(ResourceType.TOPIC, topic), operation)
            for topic, operations in topics.items()
            for operation in operations
        ]
        named = {ResourceType.GROUP: "READ", ResourceType.TRANSACTIONAL_ID: "WRITE"}
        for kind, operation in named.items():
            pattern = ResourcePattern(kind, prefix, ACLResourcePatternType.PREFIXED)
            wanted.append((pattern, operation))
        rights = [
            ACL(f"User:{USER}", "*", ACLOperation[operation], ACLPermissionType.ALLOW, pattern)
            for pattern, operation in wanted
        ]
        with KafkaAdminClient(bootstrap_servers=self.bootstrap) as admin:
            assert admin.create_acls(rights)["failed"] == []

    def at(self, listener: str, host: str = HOST) -> str:
        """Return the address of a listener."""
        return f"{host}:{self.ports[listener]}"


class SecureRedis(RedisServer):
    """A Redis behind TLS with the users of ops/redis/users.acl, all with one password."""

    def __init__(
        self,
        certificates: Certificates,
        *,
        clients: str = "yes",
        policy: str = "noeviction",
        extra: Sequence[str] = (),
        local: bool = True,
    ) -> None:
        """Describe the server.

        Args:
            certificates: where its own come from, and whose clients' it accepts.
            clients: whether clients must show one (``tls-auth-clients``).
            policy: see ``RedisServer``.
            extra: see there.
            local: see there; never in Docker, where the files are not.
        """
        self._certificates = certificates
        users = scratch_directory("users") / "users.acl"
        users.write_text(users_with(PASSWORD))
        given = {
            "tls-cert-file": str(certificates.server.certificate),
            "tls-key-file": str(certificates.server.key),
            "tls-ca-cert-file": str(certificates.ca),
            "tls-auth-clients": clients,
            "tls-cluster": "yes",
            "tls-replication": "yes",
            "aclfile": str(users),
        }
        more = [word for name, value in given.items() for word in (f"--{name}", value)]
        super().__init__(policy=policy, extra=(*extra, *more), local=local, tls=True)

    @contextmanager
    def client(self, user: str = "admin") -> Iterator[redis.Redis]:
        """Return a client of a user."""
        pair = self._certificates.client
        with redis.Redis.from_url(
            self.url,
            username=user,
            password=PASSWORD,
            ssl_ca_certs=str(self._certificates.ca),
            ssl_certfile=str(pair.certificate),
            ssl_keyfile=str(pair.key),
            decode_responses=True,
        ) as client:
            yield client

    def flush(self) -> None:
        """Remove all keys, and load the Functions anew, as at a deployment."""
        super().flush()
        with self.client("deployer") as deployer:
            for library in LIBRARIES:
                deployer.function_load(library.read_text())


def users_with(password: str) -> str:
    """Return ops/redis/users.acl with one password for every user."""
    hashed = hashlib.sha256(password.encode()).hexdigest()
    return "".join(f"{line} #{hashed}\n" for line in USERS.read_text().splitlines())


def token(seconds: float = 300) -> str:
    """Return a token that the broker takes: without a signature, which is for tests alone."""
    now = time.time()
    parts = ({"alg": "none"}, {"sub": USER, "iat": now, "exp": now + seconds})
    encoded = (base64.urlsafe_b64encode(json.dumps(part).encode()) for part in parts)
    return ".".join(part.decode().rstrip("=") for part in encoded) + "."


def _security(certificates: Certificates) -> dict[str, str]:
    """Return the broker's properties for its secure listeners."""
    login = "listener.name.login"
    user = f'user_{USER}="{PASSWORD}"'
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # Who comes by the plain listener may do everything, and others what nobody has a right to.
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "true",
        "sasl.enabled.mechanisms": ",".join(_MECHANISMS),
        f"{login}.plain.sasl.jaas.config": f"{_SECURITY}.plain.PlainLoginModule required {user};",
        f"{login}.oauthbearer.sasl.jaas.config": (
            f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule required "
            'unsecuredLoginStringClaim_sub="broker";'
        ),
        f"{login}.oauthbearer.sasl.server.callback.handler.class": (
            f"{_SECURITY}.oauthbearer.internals.unsecured."
            "OAuthBearerUnsecuredValidatorCallbackHandler"
        ),
        "listener.name.mutual.ssl.client.auth": "required",
    }
    for bits in (256, 512):
        module = f"{_SECURITY}.scram.ScramLoginModule required;"
        properties[f"{login}.scram-sha-{bits}.sasl.jaas.config"] = module
    for listener in ("login", "mutual", "expired"):
        pair = certificates.expired if listener == "expired" else certificates.server
        properties |= {
            f"listener.name.{listener}.ssl.keystore.type": "PEM",
            f"listener.name.{listener}.ssl.keystore.certificate.chain": _line(pair.certificate),
            f"listener.name.{listener}.ssl.keystore.key": _line(pair.key),
            f"listener.name.{listener}.ssl.truststore.type": "PEM",
            f"listener.name.{listener}.ssl.truststore.certificates": _line(certificates.ca),
        }
    return properties


def _line(pem: Path) -> str:
    """Return a PEM file in one line, as a property has it."""
    return " ".join(pem.read_text().split("\n"))
