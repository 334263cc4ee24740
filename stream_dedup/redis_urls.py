"""Addresses of Redis, and the password that one may bring along."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from stream_dedup.errors import SettingsError

_SCHEMES = ("redis://", "rediss://", "unix://")

# No message repeats an address: where it is wrong, nobody can tell which part is the password.
_WRONG = (
    "redis_url has an address that cannot be read. Write redis://host:port/database, with commas "
    "between several, and the password as redis_password or redis_password_file"
)


def take_password(urls: str) -> tuple[str, str]:
    """Take the password out of addresses.

    Args:
        urls: one address, or several with commas between; a password is percent-encoded in them.

    Returns:
        The addresses without it, and the password; empty if there is none.

    Raises:
        ValueError: one is no address, or they have different passwords. The message has no part of
            them.
    """
    taken = [_take(url.strip()) for url in urls.split(",")]
    passwords = {password for _, password in taken if password}
    if len(passwords) > 1:
        msg = "redis_url has several addresses with different passwords; all nodes must have one"
        raise ValueError(msg)
    if not passwords:
        return urls, ""
    return ",".join(url for url, _ in taken), passwords.pop()


def refuse_password(urls: str) -> None:
    """Refuse a password in an address that stands on the command line.

    Raises:
        SettingsError: there is one.
    """
    try:
        password = take_password(urls)[1]
    except ValueError as error:
        msg = f"{error}."
        raise SettingsError(msg) from None
    if password:
        msg = (
            "--redis-url has a password, and others can read the flags of a process. Give it as "
            "redis_password_file, or in STREAM_DEDUP_REDIS_URL or STREAM_DEDUP_REDIS_PASSWORD."
        )
        raise SettingsError(msg)


def _take(url: str) -> tuple[str, str]:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises if it is no number
    except ValueError:
        raise ValueError(_WRONG) from None
    # A # / or ? in a password that is not percent-encoded ends the host's part, and leaves the @.
    after = parts.path + parts.query + parts.fragment
    if not url.startswith(_SCHEMES) or "@" in after or parts.fragment:
        raise ValueError(_WRONG)
    host = parts.netloc.rpartition("@")[2]
    place = f"{parts.username}@{host}" if parts.username else host
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{place}{parts.path}{query}", unquote(parts.password or "")
