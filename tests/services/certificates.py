"""Certificates for TLS in tests, made when they are wanted."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

from tests.services.service import scratch_directory

HOST = "127.0.0.1"


class Pair(NamedTuple):
    """PEM files of a certificate and its key."""

    certificate: Path
    key: Path


class Certificates:
    """An authority, certificates that it issued, and another one that nobody trusts."""

    def __init__(self) -> None:
        self._directory = scratch_directory("certificates")
        self._authority = trustme.CA()
        self._other = trustme.CA()
        self.ca = self._written("ca.pem", self._authority.cert_pem.bytes())
        self.other_ca = self._written("other-ca.pem", self._other.cert_pem.bytes())
        #: For servers at 127.0.0.1, and not at localhost.
        self.server = self._pair("server", self._authority.issue_cert(HOST))
        past = datetime.now(UTC) - timedelta(days=1)
        begun = past - timedelta(days=1)
        self.expired = self._pair(
            "expired", self._authority.issue_cert(HOST, not_before=begun, not_after=past)
        )
        self.client = self._pair("client", self._authority.issue_cert("worker.test"))
        self.stranger = self._pair("stranger", self._other.issue_cert("stranger.test"))

    def encrypted_key(self, password: str) -> Path:
        """Return the client's key under a password."""
        key = serialization.load_pem_private_key(self.client.key.read_bytes(), None)
        how = serialization.BestAvailableEncryption(password.encode())
        name = f"key-{hashlib.sha256(password.encode()).hexdigest()[:8]}.pem"
        return self._written(name, self._pkcs8(key, how))

    def _pair(self, name: str, issued: trustme.LeafCert) -> Pair:
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
        plain = self._pkcs8(key, serialization.NoEncryption())
        return Pair(self._written(f"{name}.pem", chain), self._written(f"{name}-key.pem", plain))

    @staticmethod
    def _pkcs8(key: PrivateKeyTypes, how: serialization.KeySerializationEncryption) -> bytes:
        """Write a key as Java wants it; trustme writes the older format."""
        return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how)

    def _written(self, name: str, data: bytes) -> Path:
        path = self._directory / name
        path.write_bytes(data)
        path.chmod(0o644)
        return path
