"""Finding out why TLS cannot be had: clients tell of a failed handshake as of no answer.

Asked only after a failure. The address is called once more, and the handshake done by hand.
"""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from typing import Literal

from stream_dedup.settings import Settings
from stream_dedup.tls import tls_context

#: Time for the connection, and for the handshake.
_SECONDS = 5.0
#: Time in which a server that does not like this side's certificate says so, once it has it.
_ALERT_SECONDS = 1.0
#: OpenSSL's numbers for what can be wrong with a certificate.
_EXPIRED = 10
_OTHER_HOST = (62, 64)

Service = Literal["kafka", "redis"]


def tls_trouble(settings: Settings, service: Service, place: tuple[str, int], *, tls: bool) -> str:
    """Say what is wrong with TLS at an address, and what to do; empty when it is not TLS.

    Args:
        settings: name the files for TLS.
        service: whose settings.
        place: host and port.
        tls: whether the settings want it there.

    Raises:
        SettingsError: a file for TLS cannot be used.
    """
    name = f"{service.capitalize()} at {place[0]}:{place[1]}"
    if not tls:
        return f"{name} wants TLS. {_wish(service, tls=True)}" if _speaks_tls(place) else ""
    context = tls_context(settings, service)
    try:
        with socket.create_connection(place, _SECONDS) as connection:
            return _handshake(context, connection, service, name)
    except OSError:  # nobody is there
        return ""


def _handshake(
    context: ssl.SSLContext, connection: socket.socket, service: Service, name: str
) -> str:
    host = name.partition(" at ")[2].rpartition(":")[0]
    try:
        with context.wrap_socket(connection, server_hostname=host) as secure:
            secure.settimeout(_ALERT_SECONDS)
            # In TLS 1.3 the server looks at this side's certificate after the handshake.
            with suppress(TimeoutError):
                secure.recv(1)
    except TimeoutError:
        return f"{name} does not answer in TLS. {_wish(service, tls=False)}"
    except ssl.SSLCertVerificationError as error:
        return f"The certificate of {name} is refused: {_remedy(error, service)}"
    except ssl.SSLError as error:
        reason = (error.reason or "").lower().replace("_", " ")
        if "alert" in reason and ("cert" in reason or "unknown ca" in reason):
            return (
                f"{name} does not accept this program's certificate ({reason.split('alert ')[-1]})."
                f" Set {service}_certificate_file and {service}_key_file to one that it accepts."
            )
        return f"{name} does not speak TLS ({reason}). {_wish(service, tls=False)}"
    except OSError:
        return f"{name} does not speak TLS. {_wish(service, tls=False)}"
    return ""


def _remedy(error: ssl.SSLCertVerificationError, service: Service) -> str:
    if error.verify_code == _EXPIRED:
        return "it has expired. Have it renewed on the server."
    if error.verify_code in _OTHER_HOST:
        return (
            "it is for another host. Use an address that it names, or have one made with this "
            "address."
        )
    return (
        f"{error.verify_message}. Name the authority that issued it in {service}_ca_file, if you "
        "trust it."
    )


def _wish(service: Service, *, tls: bool) -> str:
    if service == "redis":
        return f"Begin its address in redis_url with {'rediss' if tls else 'redis'}://."
    kinds = "SSL, or with a login SASL_SSL" if tls else "PLAINTEXT, or use the port for TLS"
    return f"Set kafka_security_protocol to {kinds}."


def _speaks_tls(place: tuple[str, int]) -> bool:
    """Tell whether an address answers as TLS servers do; whose certificate it has is no matter."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection(place, _SECONDS) as connection,
            context.wrap_socket(connection, server_hostname=place[0]),
        ):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except OSError:
        return False
