"""The tokens of HTTP servers: checking one that was sent, and warning where there is none."""

from __future__ import annotations

import hmac
import logging

log = logging.getLogger(__name__)

#: What a 401 answers in WWW-Authenticate (RFC 6750, section 3).
CHALLENGE = "Bearer"

_LOOPBACK = ("127.", "::1", "localhost")


def admits(token: str, header: str) -> bool:
    """Return whether a request may be answered; takes as long for one wrong token as for another.

    Args:
        token: of the server; empty when anybody may ask.
        header: Authorization of the request, ``Bearer TOKEN`` (RFC 6750, section 2.1); empty
            without one. The scheme may be in any case (RFC 9110, section 11.1).
    """
    scheme, _, sent = header.strip().partition(" ")
    if not token:
        return True
    # Servers hand the bytes of a header over as Latin-1.
    is_equal = hmac.compare_digest(sent.strip().encode("latin-1", "replace"), token.encode())
    return is_equal and scheme.lower() == CHALLENGE.lower()


def is_open(host: str, token: str) -> bool:
    """Return whether anybody beyond this machine may ask a server."""
    return not token and not is_loopback(host)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach what listens on an address."""
    return host.startswith(_LOOPBACK)


def warn_if_open(host: str, token: str, setting: str) -> None:
    """Warn that anybody who reaches a server may ask it.

    Args:
        host: that it listens on.
        token: what clients must send.
        setting: that would name the token's file.
    """
    if is_open(host, token):
        log.warning("anybody who reaches %s may ask: set %s", host, setting)
