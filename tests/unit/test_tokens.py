"""Who may ask a HTTP server."""

from __future__ import annotations

import logging

import pytest

from stream_dedup.tokens import admits, warn_if_open


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("Bearer secret", True),
        ("bearer  secret ", True),
        ("Bearer Secret", False),
        ("Bearer secret2", False),
        ("Bearer", False),
        ("Basic secret", False),
        ("secret", False),
        ("", False),
        ("Bearer s\u0119cret", False),
    ],
)
def test_only_the_token_is_admitted(header: str, expected: bool) -> None:
    assert admits("secret", header) is expected


def test_a_token_may_have_any_characters() -> None:
    assert admits("sęcret", "Bearer sęcret".encode().decode("latin-1"))


def test_without_a_token_everybody_is_admitted() -> None:
    assert admits("", "")
    assert admits("", "Bearer other")


@pytest.mark.parametrize(
    ("host", "token", "warned"),
    [("127.0.0.1", "", False), ("::1", "", False), ("0.0.0.0", "", True), ("::", "s", False)],
)
def test_an_open_server_is_warned_of(
    host: str, token: str, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        warn_if_open(host, token, "http_token_file")

    assert ("http_token_file" in caplog.text) is warned
