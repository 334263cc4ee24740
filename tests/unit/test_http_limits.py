"""Whose requests HTTP servers answer."""

from __future__ import annotations

import pytest

from stream_dedup.http_limits import Hosts


@pytest.mark.parametrize(
    ("host", "token", "names", "checked"),
    [
        ("127.0.0.1", "", "", True),
        ("localhost", "", "", True),
        ("::1", "", "", True),
        ("127.0.0.1", "a token", "", False),
        ("127.0.0.1", "a token", "dedup.example", True),
        ("0.0.0.0", "", "", False),
        ("10.1.2.3", "", "dedup.example", True),
        ("", "", "", False),
    ],
)
def test_names_are_checked_where_a_page_could_ask_what_nobody_else_can(
    host: str, token: str, names: str, checked: bool
) -> None:
    hosts = Hosts.of(host, token, names)

    assert (hosts is not None) == checked
    assert hosts is None or not hosts.admit("evil.example", None)


@pytest.mark.parametrize(
    ("host", "origin", "admitted"),
    [
        ("localhost:9464", None, True),
        ("LocalHost", None, True),
        ("dedup.example:80", None, True),
        ("10.1.2.3:9464", None, True),  # what a kubelet asks by
        ("[fd00::1]:9464", None, True),
        ("localhost", "http://localhost:3000", True),
        ("localhost", "http://evil.example", False),
        ("localhost", "null", False),
        ("localhost", "http://[", False),
        ("evil.example", None, False),
        ("localhost.evil.example", None, False),
        ("evil.example:localhost", None, False),
        ("", None, False),
        (":9464", None, False),
        ("[::1", None, False),
        ("127.0.0.1:x", None, False),
    ],
)
def test_addresses_and_names_that_are_set_are_ours(
    host: str, origin: str | None, admitted: bool
) -> None:
    assert Hosts("dedup.example").admit(host, origin) == admitted
