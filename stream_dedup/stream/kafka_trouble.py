"""Finding out why Kafka cannot be used: both clients try on, and in the end tell of a timeout."""

from __future__ import annotations

from typing import Any

from kafka.errors import (  # type: ignore[import-untyped]
    IllegalSaslStateError,
    KafkaError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)
from kafka.net.manager import KafkaConnectionManager  # type: ignore[import-untyped]
from kafka.net.selector import NetworkSelector  # type: ignore[import-untyped]

from stream_dedup.errors import StreamDedupError
from stream_dedup.settings import Settings
from stream_dedup.stream.kafka_clients import connection_options
from stream_dedup.stream.kafka_tokens import token_source
from stream_dedup.tls_trouble import tls_trouble

#: Time for a connection that is made to see what is wrong with it.
_TRY_MS = 5000
_PORT = 9092


def kafka_trouble(settings: Settings, error: BaseException) -> str:
    """Say what is wrong with TLS or the login, and what to do; empty when it is neither.

    Calls the brokers once more, so it is for when they could not be used.

    Args:
        settings: brokers, TLS and login.
        error: what a client raised.
    """
    if isinstance(error, SaslAuthenticationFailedError | UnsupportedSaslMechanismError):
        return _login_trouble(settings, error)
    try:
        for server in settings.kafka_bootstrap.split(","):
            host, _, port = server.strip().rpartition(":")
            place = (host.strip("[]") or server.strip(), int(port) if port.isdecimal() else _PORT)
            if found := tls_trouble(settings, "kafka", place, tls=settings.kafka_has_tls):
                return found
        if settings.kafka_sasl_mechanism == "OAUTHBEARER":
            token_source(settings)()
        return _try(settings)
    except StreamDedupError as cause:
        return str(cause)


def _try(settings: Settings) -> str:
    """Connect to the first broker that can be reached, once, and say what it did not like."""
    net = NetworkSelector()
    manager = KafkaConnectionManager(net, **connection_options(settings))
    try:
        for broker in manager.cluster.bootstrap_brokers():
            reached: list[Any] = []
            try:
                net.run(_connect, manager, broker.node_id, reached)
            except KafkaError as error:
                if reached and settings.kafka_has_login:
                    return _login_trouble(settings, error)
                if reached and reached[0].connected:
                    continue
                if reached:
                    return (
                        f"Kafka at {settings.kafka_bootstrap} ends the connection, as it does when "
                        "it wants a login. Set kafka_security_protocol to what it listens for."
                    )
        return ""
    finally:
        manager.close()
        net.close()


async def _connect(manager: Any, node: str, reached: list[Any]) -> None:
    """Connect, log in, and ask who the brokers are; ``reached`` gets a connection that answered."""
    connection = manager.get_connection(
        node, timeout_ms=_TRY_MS, pop_on_close=False, refresh_metadata_on_err=False
    )
    try:
        await connection
    finally:
        # The broker has said which versions it speaks, so what follows was the login.
        if connection.broker_version_data is not None:
            reached.append(connection)
    await manager.cluster.refresh_metadata(node)


def _login_trouble(settings: Settings, error: BaseException) -> str:
    where = f"Kafka at {settings.kafka_bootstrap}"
    mechanism = settings.kafka_sasl_mechanism
    if isinstance(error, IllegalSaslStateError):
        protocol = settings.kafka_security_protocol.removeprefix("SASL_")
        return f"{where} wants no login there. Set kafka_security_protocol to {protocol}."
    if isinstance(error, UnsupportedSaslMechanismError):
        return f"{where} has no login by {mechanism}. Set kafka_sasl_mechanism to what it offers."
    if mechanism == "OAUTHBEARER":
        source = "kafka_oauth_token_file" if settings.kafka_oauth_token_file else "the token URL"
        return f"{where} refuses the token. Check what {source} gives: audience, issuer, expiry."
    # Often the client misses the broker's answer, because the connection ends with it.
    return (
        f"{where} refuses the login of {settings.kafka_username} by {mechanism}. Correct "
        "kafka_username and kafka_password_file (or kafka_password)."
    )
