"""``stream-dedup forget`` and ``sweep``, and the sweeps of workers."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from stream_dedup_workers.sweeping import Sweeps, sweeping

from stream_dedup import Deduplicator, Document, Settings, metrics
from stream_dedup.cli.main import cli
from stream_dedup.index.redis import RedisIndex

SMALL = ["--expected-originals", "1000", "--longest-attempt", "0.001"]


@pytest.fixture(params=["state", "redis"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """Flags that name an index with four originals, the first of which has expired."""
    documents = [
        Document("b", "the first of them all, which is too old by now", 1_700_000_000.0),
        Document(7, "the seventh text, which has a number for its name", 1_700_200_000.0),
        Document("7", "another one whose name is the digit, not the number", 1_700_200_000.0),
        Document("a", "one more that is there to be kept, or forgotten", 1_700_200_000.0),
    ]
    settings = Settings(window=60.0, expected_originals=1_000)
    if request.param == "state":
        state = tmp_path / "originals.db"
        with Deduplicator(settings, state=state) as deduplicator:
            deduplicator.decide(documents)
        return ["--state", str(state)]
    url = request.getfixturevalue("redis_url")
    settings = settings.model_copy(update={"redis_url": url})
    with Deduplicator(settings, index=RedisIndex.connect(settings)) as deduplicator:
        deduplicator.decide(documents)
    return ["--redis-url", url]


def call(command: str, *arguments: str, given: str = "") -> Result:
    arguments = (command, "--window", "60s", *SMALL, *arguments)
    result = CliRunner().invoke(cli, arguments, input=given)
    assert result.exit_code == 0, result.output
    return result


def test_a_number_means_both_ids_and_in_quotes_the_string_alone(where: list[str]) -> None:
    first = json.loads(call("forget", *where, "--json", '"7"', "nobody").stdout)
    second = json.loads(call("forget", *where, "--json", "7", "a").stdout)

    assert first == {"ids": 2, "originals": 1, "unknown": 1}
    assert second == {"ids": 2, "originals": 2, "unknown": 0}


def test_ids_come_from_standard_input(where: list[str]) -> None:
    shown = call("forget", *where, "-", given='a\n\n "7" \nc\n').stdout

    assert [line.split()[0] for line in shown.splitlines()] == ["2", "1"]


def test_forgetting_and_sweeping_are_told(where: list[str]) -> None:
    done = json.loads(call("forget", *where, "--json", "--sweep", "a").stdout)
    again = json.loads(call("sweep", *where, "--json").stdout)
    shown = call("sweep", *where).stdout

    assert done["originals"] == 1
    assert done["swept"]["originals"] == 2
    assert again == {"expired": 0, "claims": 0, "entries": 0, "originals": 2}
    assert "originals stay" in shown


def test_a_word_that_begins_like_json_and_is_none_is_told() -> None:
    result = CliRunner().invoke(cli, ["forget", '"a', "--redis-url", "redis://127.0.0.1:1"])

    assert result.exit_code in {65, 69}
    assert "Error:" in result.stderr


def test_an_index_without_ids_says_so(redis_url: str) -> None:
    where = ["--redis-url", redis_url, "--index-ids", "false"]

    result = CliRunner().invoke(cli, ["forget", "a", *where])

    assert result.exit_code == 69
    assert "keeps no document ids" in result.stderr


def test_a_worker_sweeps_beside_the_stream_and_counts(redis_url: str) -> None:
    settings = Settings(
        redis_url=redis_url,
        window=1.0,
        lateness=1.0,
        expected_originals=1_000,
        sweep_interval=0.2,
        longest_attempt=0.001,
    )
    before = metrics.swept_originals_total._value.get()
    sweeps = Sweeps(settings)
    thread = threading.Thread(target=sweeps.run)
    thread.start()
    try:
        with Deduplicator(settings, index=RedisIndex.connect(settings)) as deduplicator:
            for second in range(10):
                text = " ".join(f"word{second}{number}" for number in range(20))
                deduplicator.decide([Document(second, text, float(second))])
        deadline = time.monotonic() + 30
        while metrics.index_originals._value.get() != 3 and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        sweeps.stop()
        thread.join()

    assert metrics.index_originals._value.get() == 3
    assert metrics.swept_originals_total._value.get() - before == 7


def test_the_index_of_a_shadow_is_swept_and_not_counted(
    redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    settings = Settings(
        redis_url=redis_url, window=1.0, expected_originals=1_000, sweep_interval=0.2
    )
    before = metrics.sweeps_total._value.get()

    with sweeping(settings, shadow=True):
        deadline = time.monotonic() + 30
        while "swept the shadow's index" not in caplog.text and time.monotonic() < deadline:
            time.sleep(0.05)

    assert "swept the shadow's index" in caplog.text
    assert metrics.sweeps_total._value.get() == before
