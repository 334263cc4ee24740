"""The worker programs log lines for people or for machines."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
import threading
from collections.abc import Iterator

import pytest
from pydantic import SecretStr
from stream_dedup_workers import logs
from stream_dedup_workers.process import digest_of

from stream_dedup import secret_values
from stream_dedup.settings import Settings

log = logging.getLogger("stream_dedup.test")


@pytest.fixture(autouse=True)
def _restore(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # What other tests had for a secret may be part of a word here.
    monkeypatch.setattr(secret_values, "_forms", ())
    for module in (sys, threading):
        monkeypatch.setattr(module, "excepthook", module.excepthook)
    names = ("", "stream_dedup", "stream_dedup_workers", "kafka")
    levels = {name: logging.getLogger(name).level for name in names}
    handlers = logging.getLogger().handlers[:]
    yield
    logging.captureWarnings(capture=False)
    logging.getLogger().handlers[:] = handlers
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, to be set."""
    time = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: time[0])
    return time


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


class Terminal(io.StringIO):
    """Standard error on a terminal."""

    def isatty(self) -> bool:
        return True


class TestJson:
    def test_a_line_is_one_object(self, capsys: pytest.CaptureFixture[str]) -> None:
        logs.configure("worker-3", "json")

        log.info('with "quotes" and\na new line')

        (line,) = lines(capsys)
        found = json.loads(line)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", found.pop("time"))
        assert found == {
            "level": "info",
            "process": "worker-3",
            "logger": "stream_dedup.test",
            "message": 'with "quotes" and\na new line',
        }

    def test_what_is_put_into_the_words_is_in_fields_too(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        logs.configure("worker-3", "json")
        fields = {"partitions": [1, 2], "topic": "documents", "level": "none of it"}

        log.info("assigned partitions: %(partitions)s", fields)

        found = json.loads(lines(capsys)[0])
        assert found["message"] == "assigned partitions: [1, 2]"
        assert (found["partitions"], found["topic"]) == ([1, 2], "documents")
        assert found["level"] == "info"

    def test_an_exception_is_one_field(self, capsys: pytest.CaptureFixture[str]) -> None:
        logs.configure("worker-3", "json")

        try:
            int("two\nlines")
        except ValueError:
            log.exception("it failed")

        (line,) = lines(capsys)
        assert "Traceback" in json.loads(line)["exception"]
        assert json.loads(line)["level"] == "error"

    def test_what_nobody_catches_is_a_line_too(self, capsys: pytest.CaptureFixture[str]) -> None:
        logs.configure("worker-3", "json")

        thread = threading.Thread(target=lambda: 1 // 0, name="sweep")
        thread.start()
        thread.join()
        try:
            1 // 0  # noqa: B018 - it is the error that counts
        except ZeroDivisionError as error:
            sys.excepthook(type(error), error, error.__traceback__)

        in_thread, in_main = map(json.loads, lines(capsys))
        assert in_thread["thread"] == "sweep"
        assert "ZeroDivisionError" in in_thread["exception"]
        assert "ZeroDivisionError" in in_main["exception"]
        assert in_main["level"] == "critical"


class TestText:
    def test_a_line_names_process_and_level(self, capsys: pytest.CaptureFixture[str]) -> None:
        logs.configure("supervisor", "text")

        log.warning("careful")

        (line,) = lines(capsys)
        assert re.search(
            r"^\S+T\S+\.\d{3}Z WARNING supervisor stream_dedup.test: careful$", line, re.M
        )

    def test_auto_is_json_in_a_pipe(self, capsys: pytest.CaptureFixture[str]) -> None:
        logs.configure("supervisor", "auto")

        log.warning("careful")

        assert json.loads(lines(capsys)[0])["message"] == "careful"

    def test_auto_is_text_on_a_terminal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        terminal = Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setenv("TERM", "xterm")
        logs.configure("supervisor", "auto")

        log.warning("careful, however long this line becomes: %s", "x" * 200)

        written = re.sub(r"\x1b\[[\d;]*m", "", terminal.getvalue())
        assert written != terminal.getvalue()
        assert re.fullmatch(
            r"\d\d:\d\d:\d\d WARNING supervisor careful, however .*: x{200}\n", written
        )


class TestLevels:
    @pytest.mark.parametrize(
        ("level", "ours", "theirs"),
        [("debug", 4, 3), ("info", 3, 2), ("warning", 2, 2), ("error", 1, 1)],
    )
    def test_say_what_is_written(
        self, level: str, ours: int, theirs: int, capsys: pytest.CaptureFixture[str]
    ) -> None:
        logs.configure("worker-0", "json", level)

        for name in ("stream_dedup.test", "another.library"):
            for number in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
                logging.getLogger(name).log(number, "something")

        written = [json.loads(line)["logger"] for line in lines(capsys)]
        assert written.count("stream_dedup.test") == ours
        assert written.count("another.library") == theirs


class TestClients:
    def test_their_errors_are_warnings(self, capsys: pytest.CaptureFixture[str]) -> None:
        logs.configure("worker-0", "json")

        logging.getLogger("kafka.coordinator").error("something else")

        assert json.loads(lines(capsys)[0])["level"] == "warning"

    @pytest.mark.parametrize(("level", "count"), [("info", 0), ("debug", 1)])
    def test_a_scheduler_that_was_late_is_told_to_who_debugs(
        self, level: str, count: int, capsys: pytest.CaptureFixture[str]
    ) -> None:
        logs.configure("worker-0", "json", level)

        logging.getLogger("kafka.net.selector").warning("Task ran for 0.277s")

        assert len(lines(capsys)) == count

    def test_repetitions_are_told_at_growing_intervals(
        self, capsys: pytest.CaptureFixture[str], now: list[float]
    ) -> None:
        logs.configure("worker-0", "json")

        times = []
        for second in range(300):
            now[0] = float(second)
            logging.getLogger("kafka.coordinator").error("no answer %d", second)
            times += [second] * len(lines(capsys))

        assert times == [0, 30, 90, 210]

    def test_what_was_left_out_is_counted(
        self, capsys: pytest.CaptureFixture[str], now: list[float]
    ) -> None:
        logs.configure("worker-0", "json")

        for second in range(31):
            now[0] = float(second)
            logging.getLogger("kafka.coordinator").error("no answer")

        messages = [json.loads(line)["message"] for line in lines(capsys)]
        assert messages == ["no answer", "no answer (29 like it were left out)"]

    def test_what_comes_again_after_a_quiet_time_is_new(
        self, capsys: pytest.CaptureFixture[str], now: list[float]
    ) -> None:
        logs.configure("worker-0", "json")

        for second in (0, 1, 31, 32, 500, 501):
            now[0] = float(second)
            logging.getLogger("kafka.coordinator").error("no answer")

        assert len(lines(capsys)) == 3

    def test_a_broken_connection_is_one_outage_until_one_stands(
        self, capsys: pytest.CaptureFixture[str], now: list[float]
    ) -> None:
        logs.configure("worker-0", "json")

        logging.getLogger("kafka.net.connection").info("%s: Connected", "node 1")
        for _ in range(5):
            logging.getLogger("kafka.net.transport").error("%s: socket disconnected", "node 1")
            logging.getLogger("kafka.net.manager").error("Connection failed: %s", "disconnected")
        now[0] = 7.0
        logging.getLogger("kafka.net.connection").info("%s: Connected", "node 1")
        logging.getLogger("kafka.net.connection").info("%s: Connected", "node 2")

        down, up = map(json.loads, lines(capsys))
        assert down["message"].startswith("the connection to Kafka is broken, trying again: node 1")
        assert up["message"] == "the connection to Kafka is back after 7.0 s"
        assert (up["seconds"], up["tries"]) == (7.0, 10)

    def test_librdkafka_tells_each_kind_of_event_once(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        logs.configure("worker-0", "text")

        for _ in range(5):
            for kind in ("FAIL", "TXNERR"):
                logging.getLogger("librdkafka").error("%s [%s] %s", kind, "producer-1", "no broker")

        assert len(lines(capsys)) == 2


class TestDigest:
    def test_is_that_of_the_settings(self) -> None:
        assert digest_of(Settings()) == digest_of(Settings())
        assert digest_of(Settings()) != digest_of(Settings(threshold=0.7))

    def test_has_no_part_of_a_secret(self) -> None:
        one = Settings(redis_url="redis://user:one@host/0", serve_token=SecretStr("one"))
        other = Settings(redis_url="redis://user:other@host/0", serve_token=SecretStr("other"))

        assert digest_of(one) == digest_of(other)
