"""The worker programs log lines for people or for machines."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
from stream_dedup_workers import logs


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


def test_a_json_line_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("worker-3", "json")

    logging.getLogger("stream_dedup.test").info('with "quotes" and\na new line')

    lines = capsys.readouterr().err.splitlines()
    line = json.loads(lines[0])
    assert len(lines) == 1
    assert line["process"] == "worker-3"
    assert line["message"] == 'with "quotes" and\na new line'


def test_a_text_line_names_process_and_level(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("supervisor", "text")

    logging.getLogger("stream_dedup.test").warning("careful")

    assert "WARNING supervisor stream_dedup.test: careful" in capsys.readouterr().err


def test_the_kafka_client_does_not_repeat_itself(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("worker-0", "text")

    for _ in range(5):
        logging.getLogger("kafka.conn").error("no broker")

    assert len(capsys.readouterr().err.splitlines()) == 1


def test_librdkafka_tells_each_kind_of_event_once(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("worker-0", "text")

    for _ in range(5):
        for kind in ("FAIL", "TXNERR"):
            logging.getLogger("librdkafka").error("%s [%s] %s", kind, "producer-1", "no broker")

    assert len(capsys.readouterr().err.splitlines()) == 2
