"""Which Kafka client is taken, and what is said when it is not there."""

from __future__ import annotations

import importlib.util

import pytest

from stream_dedup.errors import SettingsError
from stream_dedup.settings import Settings
from stream_dedup.stream.clients import check_installed, open_transport


def test_the_default_needs_no_other_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)

    check_installed(Settings())


def test_an_absent_client_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)

    with pytest.raises(SettingsError, match=r"pip install 'stream-dedup\[confluent\]'"):
        open_transport(Settings(transport="confluent"), "worker-0")
