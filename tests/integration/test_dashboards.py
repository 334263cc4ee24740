"""Every query of every dashboard has data: asked of a Prometheus that scrapes a loaded worker."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.services.dashboards import NAMES, filled, panels
from tests.services.kafka import KafkaBroker, Topics
from tests.services.observed import JOB, beside, messages, shadow_file
from tests.services.prometheus import Prometheus
from tests.services.redis import RedisServer
from tests.services.worker import Worker

#: Time until a query that is still without data fails the test.
PATIENCE = 120.0
#: Messages that are sent between two looks.
PART = 200
#: Times that Grafana would fill in for a scrape interval of a second.
TIMES = {"rate_seconds": 10, "range_seconds": 120}


@pytest.fixture(scope="module")
def redis_with_a_limit() -> Iterator[RedisServer]:
    """As in production: a panel shows how far the limit is away."""
    with RedisServer(extra=("--maxmemory", "512mb")) as server:
        yield server


@pytest.fixture
def loaded(
    kafka: KafkaBroker,
    topics: Callable[..., Topics],
    redis_with_a_limit: RedisServer,
    tmp_path: Path,
) -> Iterator[Worker]:
    """A worker with two processes and a shadow."""
    url, log = redis_with_a_limit.url, tmp_path / "worker.log"
    worker = Worker(kafka, topics(partitions=2), url, log, "kafka-python")
    worker.start(processes="2", shadow=shadow_file(tmp_path))
    yield worker
    assert worker.stop() == 0


def test_every_query_has_data(loaded: Worker) -> None:
    stream = messages(200_000)
    with beside([loaded]) as prometheus:
        deadline = time.monotonic() + PATIENCE
        missing = set(without_data(prometheus))
        # Not all at one moment: after a sweep there may be no original for a while.
        while missing := missing & set(without_data(prometheus)):
            assert time.monotonic() < deadline, "\n".join(sorted(missing))
            loaded.send(list(islice(stream, PART)), partition=0)
            loaded.send(list(islice(stream, PART)), partition=1)


def without_data(prometheus: Prometheus) -> list[str]:
    """Return the queries that give no number: dashboard, panel, legend, and what was asked."""
    return [
        f"{name}: {panel.title}: {target.legend}: {expression}"
        for name in NAMES
        for panel in panels(name)
        for target in panel.targets
        if not has_numbers(
            prometheus.query(expression := filled(target.expression, job=JOB, **TIMES))
        )
    ]


def has_numbers(found: list[dict[str, Any]]) -> bool:
    """Whether there are series, and all of their values are numbers."""
    return bool(found) and all(math.isfinite(float(series["value"][1])) for series in found)
