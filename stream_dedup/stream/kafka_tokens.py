"""Tokens for OAUTHBEARER: from a file, or from an address that hands them out."""

from __future__ import annotations

import base64
import binascii
import importlib.util
import json
import time
from collections.abc import Callable
from typing import NamedTuple

from stream_dedup.errors import ServiceError, SettingsError
from stream_dedup.secrets import secret_of
from stream_dedup.settings import Settings

#: Time for an answer of the address.
_TIMEOUT = 10.0
#: Time after which a token that does not tell when it expires is fetched again.
_UNKNOWN_LIFE = 300.0
#: A token that has less of its life left than this is not handed out again.
_MARGIN = 30.0


class Token(NamedTuple):
    """A token, and when it expires, seconds since the epoch."""

    value: str
    expires: float


def token_source(settings: Settings) -> Callable[[], Token]:
    """Return where tokens come from; it is called whenever one is needed.

    It raises ``SettingsError`` for a file that cannot be read or a secret that is refused, and
    ``ServiceError`` when the address does not answer.

    Raises:
        SettingsError: the package that fetches tokens is not installed.
    """
    if settings.kafka_oauth_token_file is not None:
        return lambda: _from_file(settings)
    if any(importlib.util.find_spec(name) is None for name in ("authlib", "requests")):
        msg = (
            "kafka_oauth_token_url needs the packages authlib and requests, which are not "
            "installed. Install them (pip install 'stream-dedup[oauth]'), or set "
            "kafka_oauth_token_file."
        )
        raise SettingsError(msg)
    return _Fetched(settings)


def _from_file(settings: Settings) -> Token:
    path = settings.kafka_oauth_token_file
    assert path is not None  # noqa: S101 - for the type checker
    try:
        token = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a token"
        msg = f"kafka_oauth_token_file {path} cannot be read: {reason}. Have a token written there."
        raise SettingsError(msg) from error
    if not token:
        msg = f"kafka_oauth_token_file {path} is empty. Have a token written there."
        raise SettingsError(msg)
    return Token(token, _expiry(token))


class _Fetched:
    """Fetches a token when there is none, or the last one expires soon."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._last = Token("", 0.0)

    def __call__(self) -> Token:
        if self._last.expires - time.time() < _MARGIN:
            self._last = _fetch(self._settings)
        return self._last


def _fetch(settings: Settings) -> Token:
    """Ask for a token with the client's id and secret (RFC 6749, section 4.4)."""
    from authlib.common.errors import AuthlibBaseError  # noqa: PLC0415 - optional
    from authlib.integrations.requests_client import OAuth2Session  # noqa: PLC0415 - optional
    from requests import RequestException  # noqa: PLC0415 - optional

    url = settings.kafka_oauth_token_url
    client = OAuth2Session(
        settings.kafka_oauth_client_id,
        secret_of(settings, "kafka_oauth_client_secret"),
        scope=settings.kafka_oauth_scope or None,
    )
    authorities = settings.kafka_oauth_ca_file
    try:
        with client:
            answer = client.fetch_token(
                url,
                grant_type="client_credentials",
                timeout=_TIMEOUT,
                verify=True if authorities is None else str(authorities),
            )
    except AuthlibBaseError as error:
        msg = (
            f"{url} refuses a token ({error.error}). Correct kafka_oauth_client_id, its secret and "
            "kafka_oauth_scope."
        )
        raise ServiceError(msg) from error
    except (RequestException, OSError, ValueError) as error:
        msg = (
            f"{url} hands out no token ({type(error).__name__}). Check kafka_oauth_token_url and "
            "kafka_oauth_ca_file."
        )
        raise ServiceError(msg) from error
    value = str(answer.get("access_token", ""))
    if not value:
        msg = f"{url} answers without a token. Check that kafka_oauth_token_url is right."
        raise ServiceError(msg)
    return Token(value, float(answer.get("expires_at") or _expiry(value)))


def _expiry(token: str) -> float:
    """Read when a JWT expires; its signature is for the brokers to check (RFC 7519, 4.1.4)."""
    try:
        claims = token.split(".")[1]
        padded = claims + "=" * (-len(claims) % 4)
        return float(json.loads(base64.urlsafe_b64decode(padded))["exp"])
    except (IndexError, KeyError, TypeError, ValueError, binascii.Error):
        return time.time() + _UNKNOWN_LIFE
