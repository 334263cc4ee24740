"""Errors of Redis by kind, and how often a call was tried again."""

from __future__ import annotations

import socket

import pytest
import redis.exceptions as client
from prometheus_client import REGISTRY
from redis.backoff import NoBackoff

from stream_dedup import ServiceError, Settings
from stream_dedup.index.connection import connect, reporting_errors
from stream_dedup.index.failures import CountedRetry, Kind, kind_of
from tests.services.process import free_ports


def value(name: str, **labels: str) -> float:
    found = REGISTRY.get_sample_value(f"stream_dedup_redis_{name}", labels)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (client.TimeoutError("late"), Kind.TIMEOUT),
        (TimeoutError("late"), Kind.TIMEOUT),
        (client.ConnectionError("refused"), Kind.CONNECTION),
        (client.BusyLoadingError("loading"), Kind.CONNECTION),
        (BrokenPipeError("gone"), Kind.CONNECTION),
        (client.OutOfMemoryError("command not allowed"), Kind.OUT_OF_MEMORY),
        (client.NoPermissionError("no"), Kind.PERMISSION),
        (client.AuthenticationError("wrong"), Kind.PERMISSION),
        (client.ResponseError("The user executing the script can't run"), Kind.PERMISSION),
        (client.ClusterDownError("down"), Kind.CLUSTER),
        (client.RedisClusterException("no node"), Kind.CLUSTER),
        (client.TryAgainError("moving"), Kind.CLUSTER),
        (client.MovedError("1 127.0.0.1:1"), Kind.CLUSTER),
        (client.ResponseError("Function not found"), Kind.OTHER),
    ],
)
def test_every_error_has_a_kind_and_is_counted(error: Exception, kind: Kind) -> None:
    before = value("errors_total", kind=str(kind))

    with pytest.raises(ServiceError), reporting_errors():
        raise error

    assert kind_of(error) is kind
    assert value("errors_total", kind=str(kind)) == before + 1


def test_a_server_that_is_not_there_is_counted_with_its_retries() -> None:
    errors, retries = value("errors_total", kind="connection"), value("retries_total")

    with pytest.raises(ServiceError):
        connect(Settings(redis_url=f"redis://127.0.0.1:{free_ports(1)[0]}/0"))

    assert value("errors_total", kind="connection") == errors + 1
    assert value("retries_total") >= retries + 3


class TestRetries:
    def test_calls_beyond_the_first_are_counted(self) -> None:
        before, outcomes = value("retries_total"), [socket.timeout, client.ConnectionError, None]
        failed: list[Exception] = []

        def call() -> str:
            error = outcomes.pop(0)
            if error is not None:
                raise error
            return "answer"

        answer = CountedRetry(NoBackoff(), 3).call_with_retry(call, failed.append)

        assert answer == "answer"
        assert len(failed) == 2
        assert value("retries_total") == before + 2

    def test_what_works_at_once_is_not(self) -> None:
        before = value("retries_total")

        assert CountedRetry(NoBackoff(), 3).call_with_retry(lambda: 7, print) == 7

        assert value("retries_total") == before
