"""Every class of hostile records: exactly one answer, the expected one, and no harm to others."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner
from kafka import TopicPartition  # type: ignore[import-untyped]
from kafka.record import MemoryRecords  # type: ignore[import-untyped]

from stream_dedup import Deduplicator, Settings
from stream_dedup.cli.main import cli
from stream_dedup.stream.kafka_records import bound
from stream_dedup.stream.loop import Loop
from stream_dedup.stream.poison import Reason
from stream_dedup.stream.transport import Output, Partition, Record
from stream_dedup.types import Status
from tests.hostile.catalogue import (
    CATALOGUE,
    GOOD,
    NOW,
    OPTIONS,
    SETTINGS,
    Hostile,
    neighbour,
    text_of,
)

PAGE = Path(__file__).parents[2] / "docs" / "hostile-input.md"


class Message(NamedTuple):
    """An input record."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp: int
    offset: int
    topic: str = "documents"
    partition: int = 0


def message(record: Hostile, offset: int) -> Message:
    """Return the record as it is polled."""
    if record.batch is None:
        return Message(record.key, record.value, record.headers, record.timestamp, offset)
    consumer = bound(SimpleNamespace(_fetcher=SimpleNamespace()), OPTIONS["max_unpacked_bytes"])
    fetched = TopicPartition("documents", 0), MemoryRecords(bytearray(record.batch))
    (read,) = consumer._fetcher.PartitionRecords(0, *fetched).take()
    return Message(read.key, read.value, read.headers, read.timestamp, offset)


class Log:
    """One batch of records, and what was published about it."""

    def __init__(self, records: Sequence[Hostile]) -> None:
        self.records = [message(record, offset) for offset, record in enumerate(records)]
        self.published: list[Output] = []

    def poll(self) -> Sequence[Record]:
        return self.records

    def publish(self, outputs: Sequence[Output]) -> None:
        self.published += outputs

    def lag(self) -> Mapping[Partition, int]:
        return {}

    def joined(self) -> bool:
        return True

    def stay(self) -> None:
        pass

    def unmark(self) -> None:
        pass

    def close(self) -> None:
        pass


class Clock:
    """Stands still."""

    def monotonic(self) -> float:
        return 0.0

    def time(self) -> float:
        return NOW / 1000

    def sleep(self, seconds: float, /) -> None:
        raise AssertionError


def good(name: str) -> Hostile:
    return Hostile(name, "none", Status.EXACT_DUPLICATE, neighbour(name))


def published(records: Sequence[Hostile], settings: Settings = SETTINGS) -> list[Output]:
    """Run records through the loop, in one batch; return the answer to each, in order."""
    log = Log(records)
    with Deduplicator(settings) as deduplicator:
        assert Loop(settings, log, deduplicator, Clock()).step() == len(records)
    assert sorted(o.record.offset for o in log.published) == list(range(len(records)))
    return sorted(log.published, key=lambda output: output.record.offset)


def fate(output: Output) -> str:
    """Return the status or the reason; hold the answer to its own contract."""
    headers = dict(output.headers)
    if output.topic == "documents.dead-letter":
        assert 0 < len(headers["dead-letter-detail"]) <= 200
        assert headers["source-offset"] == str(output.record.offset).encode()
        names = [name for name, _ in output.headers]
        assert names.count("dead-letter-reason") == 1
        return headers["dead-letter-reason"].decode()
    assert output.value is not None
    annotation = json.loads(output.value)["dedup"]
    assert headers["dedup-status"].decode() == annotation["status"]
    assert (output.key, output.timestamp) == (output.record.key, output.record.timestamp)
    return str(annotation["status"])


@pytest.mark.parametrize("hostile", CATALOGUE, ids=lambda hostile: hostile.name)
def test_alone_among_good_ones(hostile: Hostile) -> None:
    first, answer, last = published([good("before"), hostile, good("after")])

    assert fate(first) == "original"
    assert fate(answer) == hostile.fate
    assert fate(last) == "exact_duplicate"


def test_all_of_them_in_one_batch() -> None:
    records = [good("first")]
    for number, hostile in enumerate(CATALOGUE):
        records += [hostile, good(str(number))]

    answers = published(records)

    assert fate(answers[0]) == "original"
    found = {r.name: fate(o) for r, o in zip(records[1:], answers[1:], strict=True)}
    assert found == {record.name: record.fate for record in records[1:]}


def test_a_record_without_a_time_is_set_aside_where_one_is_needed() -> None:
    settings = SETTINGS.model_copy(update={"window": 60.0})
    timeless = Hostile("timeless", "timestamp", Reason.BAD_TIME, neighbour("x"), timestamp=-1)

    answers = published([good("before"), timeless, good("after")], settings)

    assert [fate(one) for one in answers] == ["original", "bad_time", "exact_duplicate"]


def test_a_run_on_a_file(tmp_path: Path) -> None:
    records = [record for record in CATALOGUE if record.in_file]
    lines = [neighbour("first")]
    for record in records:
        assert record.value is not None
        lines += [record.value, neighbour("again")]
    source, out, aside = (tmp_path / name for name in ("in.jsonl", "out.jsonl", "aside.jsonl"))
    source.write_bytes(b"\n".join(lines) + b"\n")
    fields = [
        f"--{name.replace('_', '-')}={OPTIONS[name]}" for name in OPTIONS if "unpacked" not in name
    ]

    done = CliRunner().invoke(
        cli, ["run", str(source), "-o", str(out), "--dead-letters", str(aside), *fields]
    )

    assert done.exit_code == 0, done.output
    letters = {
        int(letter["source"].rpartition(":")[2]): letter["reason"]
        for letter in map(json.loads, aside.read_bytes().splitlines())
    }
    statuses = [json.loads(line)["dedup"]["status"] for line in out.read_bytes().split(b"\n")[:-1]]
    assert len(letters) + len(statuses) == len(lines)
    remaining = iter(statuses)
    found = [letters.get(number) or next(remaining) for number in range(1, len(lines) + 1)]
    assert found[0] == "original"
    assert set(found[2::2]) == {"exact_duplicate"}
    assert dict(zip([r.name for r in records], found[1::2], strict=True)) == {
        record.name: record.fate for record in records
    }


class TestTheCatalogue:
    def test_it_has_enough_classes_and_every_reason(self) -> None:
        assert len({record.name for record in CATALOGUE}) == len(CATALOGUE) >= 60
        # What a broker refuses depends on the broker, and what processes die at on a defect.
        assert {r.fate for r in CATALOGUE} >= set(Reason) - {Reason.REFUSED, Reason.FATAL}
        parts = {"value", "key", "headers", "timestamp", "batch"}
        assert {record.part for record in CATALOGUE} == parts

    def test_new_texts_are_new(self) -> None:
        assert text_of("a") != text_of("b")
        assert GOOD not in text_of("a")

    def test_the_documentation_lists_it(self) -> None:
        rows: list[Any] = re.findall(
            r"^\| ([^|]+) \| ([a-z]+) \| `(\w+)` \|$", PAGE.read_text(), re.M
        )

        expected = [(record.name, record.part, str(record.fate)) for record in CATALOGUE]
        assert rows == expected, "make it with python -m tests.hostile.catalogue"
