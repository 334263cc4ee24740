"""The files for TLS, looked at before a client uses them: clients say little of what is wrong."""

from __future__ import annotations

import ssl
from typing import Literal

from stream_dedup.errors import SettingsError
from stream_dedup.secrets import secret_of
from stream_dedup.settings import Settings


def tls_context(settings: Settings, service: Literal["kafka", "redis"]) -> ssl.SSLContext:
    """Return what a client of a service does TLS with: certificates and host names are checked.

    Args:
        settings: name the files.
        service: whose settings; they begin with its name.

    Raises:
        SettingsError: a file cannot be read or does not hold what it should.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    authorities = getattr(settings, f"{service}_ca_file")
    if authorities is None:
        context.load_default_certs()
    else:
        try:
            context.load_verify_locations(authorities)
        except OSError as error:
            msg = (
                f"{service}_ca_file {authorities} cannot be used: {_reason(error)}. Name a PEM "
                "file with the certificates of the authorities."
            )
            raise SettingsError(msg) from error
    certificate = getattr(settings, f"{service}_certificate_file")
    if certificate is not None:
        _load_pair(context, settings, service)
    return context


def _load_pair(context: ssl.SSLContext, settings: Settings, service: str) -> None:
    certificate = getattr(settings, f"{service}_certificate_file")
    key = getattr(settings, f"{service}_key_file")
    # Never None: OpenSSL would ask for the password on the terminal.
    password = secret_of(settings, "kafka_key_password") if service == "kafka" else ""
    try:
        context.load_cert_chain(certificate, key, password)
    except OSError as error:
        reason = _reason(error)
        # OpenSSL says different things of this, or nothing.
        if isinstance(error, ssl.SSLError) and b"ENCRYPTED" in key.read_bytes():
            reason = "the key is encrypted, and its password is wrong or missing"
        msg = (
            f"{service}_certificate_file {certificate} and {service}_key_file {key} cannot be "
            f"used: {reason}. Name PEM files of a certificate and of its key"
            f"{', and the password of the key if it has one' if service == 'kafka' else ''}."
        )
        raise SettingsError(msg) from error


def _reason(error: OSError) -> str:
    if not isinstance(error, ssl.SSLError):
        return error.strerror or type(error).__name__
    known = {
        "KEY_VALUES_MISMATCH": "the key belongs to another certificate",
        "NO_CERTIFICATE_OR_CRL_FOUND": "it holds no certificate",
        "NO_START_LINE": "there is no certificate in it",
    }
    reason = error.reason or ""
    return known.get(reason, reason.replace("_", " ").lower() or "it is no PEM file")
